"""Texts from outside on their way to a terminal: nothing in them is a command to it."""

from __future__ import annotations

from rich.markup import escape

LONGEST = 200
_LINE = 2000
_CONTROLS = (*range(0x20), *range(0x7F, 0xA0))
_DIRECTIONS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""What turns the order of letters about, so that a line reads as what it is not."""
_HARMLESS = dict.fromkeys((*_CONTROLS, *_DIRECTIONS), "�") | {
    ord("\r"): " ",
    ord("\t"): " ",
    ord("\n"): "\n",
}


def harmless(text: str) -> str:
    """The text with a mark in the place of every character that moves the cursor, clears the screen or worse."""
    return text.translate(_HARMLESS)


def line_of(text: str) -> str:
    """The text in one line, harmless; cut where it is longer than any terminal is wide."""
    return harmless(" ".join(text[:_LINE].split()))


def question_line(question: str) -> str:
    """A question in one line of at most 200 characters; says so where there is none."""
    line = " ".join(question.split())
    return (line if len(line) <= LONGEST else line[: LONGEST - 1] + "…") or "(no question)"


def as_markup(text: str) -> str:
    """The same where Rich reads markup: its brackets are letters, too."""
    return escape(harmless(text))
