"""Texts from outside on their way to a terminal: nothing in them is a command to it."""

from __future__ import annotations

from rich.markup import escape

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


def as_markup(text: str) -> str:
    """The same where Rich reads markup: its brackets are letters, too."""
    return escape(harmless(text))
