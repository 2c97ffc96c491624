"""The passages that stand in a text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragguard.capture.passage_search import PassageSearch
from ragguard.records import Passage

OSLO = "Fjord is a shipping firm that is based in Oslo; it was founded by Ada Berg in 1922."
BERGEN = "Skagen is a fishing firm that is based in Bergen; it was founded by Olav Dahl in 1931."
MOLDE = "Romsdal is a timber firm that is based in Molde; it was founded by Kari Lie in 1948."
LONG = " ".join(f"Sentence {n} tells of harbour {n * 7} and its {n + 2} cranes." for n in range(60))
HAN = "奥斯陆的公司由阿达·贝格于一九二二年创立，主要从事航运业务，并在卑尔根设有分公司。"
FOUND = [Passage(OSLO, "a", 0.9), Passage(BERGEN, "b", 0.8), Passage(MOLDE, "c", 0.7)]


def delivered(found, output, bodies=()):
    """The passages in the output; None where one is cut."""
    search = PassageSearch(found, [[body] for body in bodies])
    places = search.places_in([output])
    there = [search.passage(number, text) for number, text in places.whole.items()]
    wordless = [one for number, one in enumerate(found) if number not in search.with_words]
    return None if places.begun else [*there, *wordless]


def ids(output, found=FOUND):
    got = delivered(found, output)
    return None if got is None else [passage.id for passage in got]


def test_words_that_near_misses_share_count_for_the_one_that_is_there():
    near = "Fjord is a shipping firm that is based in Oslo; it was founded by Per Lund in 1899."
    assert ids(f"Result: {near}", [*FOUND, Passage(near, "near")]) == ["near"]


@pytest.mark.parametrize(
    "output", [LONG[:500] + "...", f"1. {OSLO}\n2. {LONG[:200]}", HAN[:12], f"1. {HAN[:30]}…"]
)
def test_beginning_of_a_passage_without_its_end_is_cut(output):
    assert delivered([Passage(LONG, "long"), Passage(HAN, "han"), *FOUND], output) is None


@pytest.mark.parametrize(
    "output", ["Sentence 7 tells of harbour 49", "Ada Berg founded it.", "", "...", f"答案：{HAN[2:14]}"]
)
def test_output_in_other_words_holds_no_passage(output):
    assert delivered([Passage(LONG, "long"), Passage(HAN, "han"), *FOUND], output) == []


def test_a_text_inside_another_is_the_other_one():
    inner = Passage("it was founded by Ada Berg in 1922", "inner")
    assert ids(OSLO, [inner, *FOUND]) == ["a"]
    assert ids(f"{OSLO}\n{inner.text}", [inner, *FOUND]) == ["a", "inner"]


def test_the_same_text_twice_is_there_as_often_as_it_is_written():
    twice = [Passage(OSLO, "first"), Passage(OSLO, "second")]
    assert ids(OSLO, twice) == ["first"]
    assert ids(OSLO + OSLO, twice) == ["first", "second"]


@pytest.mark.parametrize(
    "body",
    [
        "Records show Ursula Almberg founded Corwell Mills.",
        "$5.00 off, C++ and C# users only (-10%)",
        "- a one thing\n- b two things\n\n- c three things!",
        "```def f(x):\n    return {x: 1}\n```",
        "¿Sí?",
    ],
)
@pytest.mark.parametrize("write", ["{}", "Found:\n{}\n", "1. {}\n2. " + OSLO])
def test_body_without_its_title_counts_as_the_passage(body, write):
    titled = Passage(f"title: Mills\n\n{body}", "titled", 0.9, {"title": "Mills"})
    got = delivered([FOUND[0], titled], write.format(body), ["", body])
    assert [one.text for one in got if one.id == "titled"] == [body]


@pytest.mark.parametrize(
    "text",
    [
        HAN,
        "Straße und Öl: die Größe der Häfen wächst, sagt der Bürgermeister von Tromsø über den Fjörd.",
        "บริษัทในออสโลก่อตั้งโดยอาดา เบิร์ก",
        "オスロの会社はアダ・ベルグによって設立されました。",
        "a &amp; b are joined by R&amp;D in the \\n literal of the source code",
    ],
)
def test_delivered_passage_is_found_in_other_scripts_and_notations(text):
    found = [Passage(text, "text"), *FOUND]
    assert ids(f"1. {text}", found) == ["text"]
    assert ids(json.dumps([text]), found) == ["text"]
    assert ids(f"Results: {json.dumps({'content': text})}\n{json.dumps({'content': OSLO})}", found) == [
        "text",
        "a",
    ]


@given(st.lists(st.text(), max_size=6), st.text())
def test_any_text_is_answered_with_candidates(texts, output):
    found = [Passage(text, str(number)) for number, text in enumerate(texts)]
    got = delivered(found, output)
    assert got is None or {passage.id for passage in got} <= {passage.id for passage in found}
