"""Makes texts from outside safe for terminals and logs: no part of them controls the terminal or is hidden."""

from __future__ import annotations

_CONTROLS = (*range(0x20), *range(0x7F, 0xA0))
_SEPARATORS = (0x2028, 0x2029)
"""Characters that end a line for some terminals and log readers, so that a text can pretend to be a line of its own."""
_DIRECTIONS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Characters that reverse the order of letters, so that a line can be read as another text."""
_TAGS = range(0xE0000, 0xE0080)
"""Characters that spell a hidden text in ASCII."""
_INVISIBLE = (
    0xAD,
    0x61C,
    0x180E,
    0x200B,
    0x200E,
    0x200F,
    *range(0x2060, 0x2066),
    *range(0x206A, 0x2070),
    0xFEFF,
)
"""Characters without width, which are left out. The joiners U+200C and U+200D stay: Persian and emoji need them."""
_REPLACED: dict[int, str | None] = {
    **dict.fromkeys((*_CONTROLS, *_SEPARATORS, *_DIRECTIONS, *_TAGS), "\N{REPLACEMENT CHARACTER}"),
    **dict.fromkeys(_INVISIBLE),
    ord("\r"): " ",
    ord("\t"): " ",
    ord("\n"): "\n",
}


def strip_control_characters(text: str) -> str:
    """Returns the text without invisible characters, and with a mark in place of each character that moves the cursor,
    clears the screen, starts a line, reverses the order of letters or spells a hidden text; line feeds stay."""
    if text.isascii() and text.isprintable():
        return text
    return text.translate(_REPLACED)
