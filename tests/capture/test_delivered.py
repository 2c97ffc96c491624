"""What of the retrieved texts is in a tool's output."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragguard.capture.delivered import DELIVERED, PART, delivered
from ragguard.records import CONTENT_KIND, Passage

OSLO = "Fjord is a shipping firm that is based in Oslo; it was founded by Ada Berg in 1922."
BERGEN = "Skagen is a fishing firm that is based in Bergen; it was founded by Olav Dahl in 1931."
MOLDE = "Romsdal is a timber firm that is based in Molde; it was founded by Kari Lie in 1948."
LONG = " ".join(f"Sentence {n} tells of harbour {n * 7} and its {n + 2} cranes." for n in range(60))
FOUND = [Passage(OSLO, "a", 0.9), Passage(BERGEN, "b", 0.8), Passage(MOLDE, "c", 0.7)]


def ids(output, found=FOUND):
    got = delivered(found, output)
    return None if got is None else [passage.id for passage in got]


@pytest.mark.parametrize(
    "output",
    [
        BERGEN,
        f"Best match: {BERGEN}\nSource: registry",
        BERGEN.replace(" ", "\n  "),
        f"<doc id=3>{BERGEN.upper()}</doc>",
        "> **" + BERGEN.replace("firm", "_firm_") + "**",
        json.dumps({"results": [{"content": BERGEN, "score": 0.8}]}),
        repr([{"page_content": BERGEN.replace("; ", ";\n")}]),
    ],
)
def test_one_of_three(output):
    assert ids(output) == ["b"]


def test_it_is_the_candidate_itself_with_its_score():
    assert delivered(FOUND, BERGEN)[0] is FOUND[1]


@pytest.mark.parametrize("join", ["\n\n", "\n---\n", " ", ", ", "\n2. ", "\n[2] "])
def test_joins_in_the_outputs_order(join):
    assert ids(f"1. {MOLDE}{join}{OSLO}") == ["c", "a"]


def test_a_cut_text_is_what_is_left_of_it():
    (got,) = delivered([Passage(LONG, "long"), FOUND[0]], LONG[:500] + "...")
    assert (got.id, got.text, got.metadata[DELIVERED]) == ("long", LONG[:500].rsplit(" ", 1)[0], PART)


def test_quoted_sentences_are_what_was_quoted():
    output = (
        "From the files: Sentence 7 tells of harbour 49 and its 9 cranes. And then: "
        "Sentence 30 tells of harbour 210 and its 32 cranes."
    )
    (got,) = delivered([Passage(LONG, "long"), *FOUND], output)
    assert got.text == (
        "Sentence 7 tells of harbour 49 and its 9 cranes … Sentence 30 tells of harbour 210 and its 32 cranes"
    )


def test_words_that_near_misses_share_count_for_the_one_that_is_there():
    near = "Fjord is a shipping firm that is based in Oslo; it was founded by Per Lund in 1899."
    assert ids(f"Result: {near}", [*FOUND, Passage(near, "near")]) == ["near"]
    assert ids(f"Result: {near[:70]}...", [Passage(near, "near"), *FOUND]) == ["near"]


def test_a_text_inside_another_is_the_other_one():
    inner = Passage("it was founded by Ada Berg in 1922", "inner")
    assert ids(OSLO, [inner, *FOUND]) == ["a"]
    assert ids(f"{OSLO}\n{inner.text}", [inner, *FOUND]) == ["a", "inner"]


def test_the_same_text_twice_is_there_as_often_as_it_is_written():
    twice = [Passage(OSLO, "first"), Passage(OSLO, "second")]
    assert ids(OSLO, twice) == ["first"]
    assert ids(OSLO + OSLO, twice) == ["first", "second"]


@pytest.mark.parametrize(
    "output",
    [
        "Ada Berg founded it.",
        "It is a shipping firm that is based in Oslo. " + "So says the registry of companies. " * 5,
        "doc-17, doc-4",
    ],
)
def test_a_summary_tells_nothing(output):
    assert delivered(FOUND, output) is None


@pytest.mark.parametrize("output", ["", " \n", "[]", "..."])
def test_an_output_without_words_gave_nothing(output):
    assert delivered(FOUND, output) == []


def test_nothing_found_and_nothing_given():
    assert delivered([], "No results.") == []


def test_images_stay():
    picture = Passage("", "picture", metadata={CONTENT_KIND: "image"})
    assert ids(OSLO, [picture, *FOUND]) == ["a", "picture"]


def test_short_texts_are_whole_words():
    years = [Passage("1922", "year"), Passage("No", "no")]
    assert ids("It was known in 1922.", years) == ["year"]


@pytest.mark.parametrize(
    "text",
    [
        "奥斯陆的公司由阿达·贝格于一九二二年创立，主要从事航运业务，并在卑尔根设有分公司。",
        "Straße und Öl: die Größe der Häfen wächst, sagt der Bürgermeister von Tromsø über den Fjörd.",
        "a &amp; b are joined by R&amp;D in the \\n literal of the source code",
    ],
)
def test_other_scripts_and_notations(text):
    found = [Passage(text, "text"), *FOUND]
    assert ids(f"1. {text}", found) == ["text"]
    assert ids(json.dumps([text]), found) == ["text"]
    assert ids(f"Results: {json.dumps({'content': text})}\n{json.dumps({'content': OSLO})}", found) == [
        "text",
        "a",
    ]


@given(st.lists(st.text(), max_size=6), st.text())
def test_any_text_is_answered_with_candidates_or_their_parts(texts, output):
    found = [Passage(text, str(number)) for number, text in enumerate(texts)]
    got = delivered(found, output)
    assert got is None or {passage.id for passage in got} <= {passage.id for passage in found}


@given(st.lists(st.text(min_size=1).filter(str.isalnum), min_size=1, max_size=6, unique_by=str.casefold))
def test_all_of_what_is_joined_is_there(texts):
    found = [Passage(text, str(number)) for number, text in enumerate(texts)]
    assert {passage.id for passage in delivered(found, "\n\n".join(texts))} == {p.id for p in found}


def test_a_hundred_long_texts_in_a_long_output_are_found_soon():
    found = [Passage(f"Number {n}. " + LONG, str(n)) for n in range(100)]
    output = "\n\n".join(passage.text[:300] for passage in found)
    assert len(delivered(found, output)) == 100
