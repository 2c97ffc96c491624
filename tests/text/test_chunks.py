"""A text is cut where its author cut it: at headings, paragraphs, items and rows."""

import pytest

from ragguard.records import Passage
from ragguard.text.chunks import WORDS, Chunk, sentences, split

MARKDOWN = """# Handbook

Everybody who works full time gets 28 days of leave. Days that are left
can be taken until March.

## Rooms

| room | seats |
|---|---|
| Lynx | 20 |
| Otter | 6 |

- tea
- coffee, which is
  bought on Mondays

```sh
# no heading
make
```
"""


def test_headings_rows_items_and_code_are_kept_apart():
    first, second = split(MARKDOWN, ".md")
    leave = (
        "Everybody who works full time gets 28 days of leave. Days that are left can be taken until March."
    )
    assert first == Chunk("Handbook", f"Handbook\n{leave}")
    assert second.heading == "Handbook › Rooms"
    assert second.text.splitlines() == [
        "Handbook › Rooms", "room: Lynx; seats: 20", "room: Otter; seats: 6", "- tea",
        "- coffee, which is bought on Mondays",
        "```sh", "# no heading", "make", "```",
    ]  # fmt: skip


@pytest.mark.parametrize(("text", "kind", "headings"), [
    ("Title\n=====\n\nOne.\n\nBelow\n-----\n\nTwo.", ".rst", ["Title", "Title › Below"]),
    ("# comment\nx = 1\n", ".py", [""]),
    ("no heading", ".txt", [""]),
])  # fmt: skip
def test_headings_of_other_kinds(text, kind, headings):
    assert [chunk.heading for chunk in split(text, kind)] == headings


def test_short_lines_stand_for_themselves_and_wrapped_ones_are_joined():
    (chunk,) = split(
        "Wifi: Heron\nDoor: 4411\n\nA line that is long enough to have been wrapped by an editor\ngoes on."
    )
    assert chunk.text.splitlines() == [
        "Wifi: Heron", "Door: 4411", "A line that is long enough to have been wrapped by an editor goes on.",
    ]  # fmt: skip


def test_long_paragraphs_end_with_a_sentence_if_they_can():
    assert [len(chunk.text.split()) for chunk in split("word " * 250)] == [120, 120, 10]
    assert [len(chunk.text) for chunk in split("字" * 1_000)] == [600, 400]
    parts = split(("One two three four five six seven. " * 40).strip())
    assert all(chunk.text.endswith("seven.") for chunk in parts)


def test_sentences_end_where_people_end_them():
    text = "Dr. Berg was born in 1.5 rooms. She left! Why? “So.” He said J. Smith came, e.g. Anna.\nLynx: 20"
    assert sentences(Passage(f"Heading\n{text}", metadata={"heading": "Heading"})) == [
        "Dr. Berg was born in 1.5 rooms.", "She left!", "Why?", "“So.", "He said J. Smith came, e.g. Anna.",
        "Lynx: 20",
    ]  # fmt: skip


def test_long_lines_of_code_count_by_their_characters_and_are_cut_between_lines():
    line = " ".join(["reader.configuration.of_passages"] * 4)
    passages = [chunk.text for chunk in split("```\n" + "\n".join([line] * 60) + "\n```")]
    assert max(map(len, passages)) <= 10 * WORDS
    assert "".join(passages).count(line) == 60
