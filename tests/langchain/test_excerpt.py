"""What is left of a tool's content when some of its passages go: each goes with its frame."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragguard_langchain.excerpt import without

PASSAGES = ["Oslo has a firm.", "The firm is old.\nIt was founded twice.", "Ada Berg founded it."]


def left(content, *stays, passages=PASSAGES, render=" | ".join):
    return without(content, passages, [bool(stay) for stay in stays], render)


def framed(before, frame, between, behind, numbers=range(3)):
    cells = [frame.format(n=n, text=PASSAGES[n]) for n in numbers]
    return before + between.join(cells) + behind


FRAMES = {
    "plain": ("", "{text}", "\n\n", ""),
    "a rule": ("", "{text}", "\n\n---\n\n", "\n"),
    "headed": ("Found this:\n\n", "{text}", "\n\n", "\n\nThat is all."),
    "numbered": ("", "[{n}] {text}", "\n\n", ""),
    "sources": ("", "Source: s{n}\nContent: {text}", "\n\n", ""),
    "sources behind": ("Results:\n\n", "{text}\n(from s{n})", "\n\n", "\n"),
    "bullets": ("Results:\n", "- {text}", "\n", "\n"),
    "a line each": ("", "{n}. {text} <- s{n}", "\n", "\nAsk for more."),
    "tags": ("", '<doc id="{n}">{text}</doc>', "\n", "\n"),
    "tags on lines": ("<docs>\n", '<doc id="{n}">\n{text}\n</doc>', "\n", "\n</docs>"),
    "tags without room": ("<docs>", "<doc>{text}</doc>", "", "</docs>"),
    "commas": ("Found: ", "{text}", " ;; ", "."),
}


@pytest.mark.parametrize("kept", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)])
@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_the_rest_is_as_if_it_had_been_alone(frame, kept):
    assert left(framed(*frame), *(n in kept for n in range(3))) == framed(*frame, kept)


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_nothing_left_is_nothing(frame):
    assert left(framed(*frame), 0, 0, 0) == ""


@pytest.mark.parametrize(
    "text",
    [
        "Source: a\n\nText: {0}\nSource: b\n\nScore: 1\n\nText: {1}\n{2}",  # no telling where one ends
        "{2}\n\n{1}\n\n{0}",  # in another order
        "{0}\n\nThe firm is old. It was founded twice.\n\n{2}",  # one was rewritten
    ],
)
def test_where_frames_cannot_be_told_apart_what_stays_is_rendered(text):
    assert left(text.format(*PASSAGES), 1, 0, 1) == "Oslo has a firm. | Ada Berg founded it."


def test_a_shortened_passage_does_not_stay_by_its_beginning():
    long = ["a long story about one thing " * 5, "a long story about another " * 5]
    assert left("\n".join(one[:60] + "…" for one in long), 1, 0, passages=long) == long[0]


def test_a_text_that_holds_no_passage_is_left():
    assert left("3 results, see below.", 1, 0, 1) == "3 results, see below."


@pytest.mark.parametrize("indent", [None, 2])
def test_json_stays_json(indent):
    items = [{"url": f"u{n}", "content": text, "note": 'ä "'} for n, text in enumerate(PASSAGES)]
    whole = {"query": "who?", "results": items}
    for value, fewer in ((items, [items[0], items[2]]), (whole, {**whole, "results": [items[0], items[2]]})):
        for ascii_only in (True, False):
            text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
            assert left(text, 1, 0, 1) == json.dumps(fewer, indent=indent, ensure_ascii=ascii_only)


def test_json_of_another_length_is_a_text_like_any_other():
    assert left(
        json.dumps({"results": ["x"], "text": "\n\n".join(PASSAGES[::2])}), 1, 0, passages=PASSAGES[::2]
    )


def test_blocks_of_a_passage_each():
    image = {"type": "image", "url": "u"}
    blocks = [{"type": "text", "text": f"<{n}> {text}"} for n, text in enumerate(PASSAGES)]
    assert left([image, *blocks], 1, 0, 1) == [image, blocks[0], blocks[2]]
    assert left(list(PASSAGES), 0, 1, 1) == PASSAGES[1:]


def test_one_block_of_all_passages():
    image = {"type": "image", "url": "u"}
    block = {"type": "text", "text": "\n\n".join(PASSAGES)}
    assert left([block, image], 1, 0, 1) == [
        {"type": "text", "text": "Oslo has a firm.\n\nAda Berg founded it."}, image,
    ]  # fmt: skip
    assert left([image, {"type": "text", "text": "see there"}], 1, 0, 1) == [
        image,
        {"type": "text", "text": "see there"},
    ]


@pytest.mark.parametrize("content", [None, 3, {"type": "text"}])
def test_value_that_is_no_content_is_left_as_it_is(content):
    assert left(content, 1, 0, 1) is content


@given(
    st.lists(st.text("ab <>/\n-[]{}\"", min_size=1), min_size=1, max_size=5),
    st.text("ab <>/\n-[]{}\"", max_size=6), st.text("ab <>/\n-[]{}\"", max_size=6), st.data(),
)  # fmt: skip
def test_whatever_the_passages_are_nothing_raises(passages, before, between, data):
    stays = data.draw(st.lists(st.booleans(), min_size=len(passages), max_size=len(passages)))
    assert isinstance(left(before + between.join(passages), *stays, passages=passages), str)
