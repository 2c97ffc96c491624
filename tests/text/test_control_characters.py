"""Texts from outside on terminals: nothing in them controls the screen, fakes a line or is hidden."""

from __future__ import annotations

import pytest

from ragguard.text.control_characters import strip_control_characters


@pytest.mark.parametrize(
    "character", ["\x1b", "\x9b", "\x07", "\u2028", "\u2029", "\u202e", "\u2066", "\U000e0041", "\U000e007f"]
)
def test_character_that_controls_or_hides_is_marked(character):
    assert strip_control_characters(f"a{character}b") == "a�b"


@pytest.mark.parametrize("character", ["\u200b", "\u200e", "\u2060", "\ufeff", "\xad"])
def test_character_without_width_is_left_out(character):
    assert strip_control_characters(f"a{character}b") == "ab"


@pytest.mark.parametrize("text", ["plain", "two\nlines", "Zoë", "می‌روم", "👩‍🔬", "東京"])
def test_text_that_people_write_stays(text):
    assert strip_control_characters(text) == text


def test_carriage_return_and_tab_become_spaces():
    assert strip_control_characters("a\rb\tc") == "a b c"
