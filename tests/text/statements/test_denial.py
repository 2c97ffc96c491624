"""What an answer states, in its own spelling: not what it denies."""

import pytest

from ragguard.text.statements.denial import stated_in


@pytest.mark.parametrize(
    ("answer", "text", "stated"),
    [
        ("It was built in 1910, not in 1901.", "1901", ""),
        ("It was built in 1910, not in 1901.", "1910", "1910"),
        ("Lea Simm did not win.", "Lea Simm", ""),
        ("Ines Ruh wrote it, not Pavel Horn.", "Pavel Horn", ""),
        ("Ines Ruh wrote it, not Pavel Horn.", "Ines Ruh", "Ines Ruh"),
        ("Ines Ruh, not Pavel Horn", "Ines Ruh", "Ines Ruh"),
        ("It isn't Oslo; it's Bergen.", "Oslo", ""),
        ("It isn't Oslo; it's Bergen.", "Bergen", "Bergen"),
        ("It was not Oslo at first, but Oslo it is.", "Oslo", "Oslo"),
        ("It has 1250 seats.", "1,250", "1250"),
        ("It is Ada Berg's mill.", "Ada Berg", "Ada Berg"),
        ("It is a mill.", "Ada Berg", ""),
        ("王明建立了学校。", "王明", "王明"),
    ],
)
def test_an_answer_states_what_it_does_not_deny(answer, text, stated):
    assert stated_in(answer, text) == stated
