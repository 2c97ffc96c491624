"""What an answer states, in its own spelling: not what it denies."""

import pytest

from ragguard.text.statements.denial import stated_in

ENGLISH = [
    ("It was built in 1910, not in 1901.", "1901", ""),
    ("It was built in 1910, not in 1901.", "1910", "1910"),
    ("Lea Simm did not win.", "Lea Simm", ""),
    ("Ines Ruh wrote it, not Pavel Horn.", "Pavel Horn", ""),
    ("Ines Ruh wrote it, not Pavel Horn.", "Ines Ruh", "Ines Ruh"),
    ("Ines Ruh, not Pavel Horn", "Ines Ruh", "Ines Ruh"),
    ("Ines Ruh and not Pavel Horn", "Ines Ruh", "Ines Ruh"),
    ("Not only Ines Ruh was there.", "Ines Ruh", "Ines Ruh"),
    ("It isn't Oslo; it's Bergen.", "Oslo", ""),
    ("It isn't Oslo; it's Bergen.", "Bergen", "Bergen"),
    ("It was not Oslo at first, but Oslo it is.", "Oslo", "Oslo"),
    ("Tom Arl instead of Lea Simm", "Lea Simm", ""),
    ("No, Lea Simm won.", "Lea Simm", "Lea Simm"),
    ("It has 1250 seats.", "1,250", "1250"),
    ("It is Ada Berg's mill.", "Ada Berg", "Ada Berg"),
    ("It is a mill.", "Ada Berg", ""),
]
OTHER_LANGUAGES = [
    ("Lea Simm war es nicht, sondern Tom Arl.", "Lea Simm", ""),
    ("Lea Simm war es nicht, sondern Tom Arl.", "Tom Arl", "Tom Arl"),
    ("Ce n'est pas Lea Simm.", "Lea Simm", ""),
    ("Lea Simm n'a pas gagné.", "Lea Simm", ""),
    ("Le 8 mai 1945.", "1945", "1945"),
    ("No fue Lea Simm.", "Lea Simm", ""),
    ("Non è stata Lea Simm.", "Lea Simm", ""),
    ("A ponte é de 1910, não de 1901.", "1901", ""),
    ("Het was niet Lea Simm.", "Lea Simm", ""),
    ("Det var inte Lea Simm.", "Lea Simm", ""),
]
CHINESE = [
    ("王明建立了学校。", "王明", "王明"),
    ("学校由李华建立，而不是王明。", "王明", ""),
    ("学校由李华建立，而不是王明。", "李华", "李华"),
    ("王明从来没有当过市长。", "王明", ""),
    ("学校不仅由王明建立。", "王明", "王明"),
    ("校長不是陳大文。", "陳大文", ""),
]


@pytest.mark.parametrize(("answer", "text", "stated"), [*ENGLISH, *OTHER_LANGUAGES, *CHINESE])
def test_an_answer_states_what_it_does_not_deny(answer, text, stated):
    assert stated_in(answer, text) == stated
