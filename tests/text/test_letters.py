"""The forms of Unicode in which texts are compared."""

import pytest

from ragguard.text.letters import folded, without_accents
from ragguard.text.statements.words import answer_words
from ragguard.text.words import running_words


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("Zürich", "Zurich"),
        ("Zu\u0308rich", "Zurich"),
        ("ﬁﬁ Ａ", "fifi A"),
        ("が", "が"),  # another sound than か
        ("한국", "한국"),
        ("Νῆσοι", "Νησοι"),
    ],
)
def test_accents_go_and_letters_stay(text, plain):
    assert without_accents(text) == plain


def test_case_and_compatible_forms_are_evened_out():
    assert folded("Ｃafe\u0301 STRAẞE") == folded("CAFÉ Strasse") == "café strasse"


def test_an_accent_is_no_end_of_a_word():
    assert running_words("Μακάρων νῆσοι") == "μακάρων νῆσοι"
    assert answer_words("がぎ 한국") == ("がぎ", "한국")
