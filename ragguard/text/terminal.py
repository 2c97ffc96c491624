"""Makes texts from outside harmless for terminals and logs, so that no part of them is a control sequence."""

from __future__ import annotations

_CONTROLS = (*range(0x20), *range(0x7F, 0xA0))
_DIRECTIONS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""The characters that reverse the order of letters, so that a line can be read as another text."""
_HARMLESS = dict.fromkeys((*_CONTROLS, *_DIRECTIONS), "�") | {ord("\r"): " ", ord("\t"): " ", ord("\n"): "\n"}


def harmless(text: str) -> str:
    """Returns the text with a mark in place of each character that moves the cursor, clears the screen or worse."""
    if text.isascii() and text.isprintable():
        return text
    return text.translate(_HARMLESS)
