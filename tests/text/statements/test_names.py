"""Names and figures in a text."""

import pytest

from ragguard.text.statements.names import names_in, new_names
from ragguard.text.statements.phrases import mentions


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Where was Ada Berg born?", ["Ada Berg"]),
        ("Ada Berg's firm, Zantek Foods, was founded in 1929.", ["Ada Berg", "Zantek Foods", "1929"]),
        ("He met Bo Lund. She left.", ["Bo Lund"]),
        ("1929 it was", ["1929"]),
        ("It needs 2.4 bar, which costs $3.50.", ["2.4", "$3.50"]),
        ("At most 15 % are lost, at −5 °C.", ["15%", "−5"]),
        ("$3.50 it was", ["$3.50"]),
        ("no name here", []),
        ("It is Boravia, I believe, as I'm told; I’ve read it.", ["Boravia"]),
        ("It was Elizabeth I, not Henry V.", ["Elizabeth I", "Henry V"]),
        ("By Dr. Berg, who met Mr. Lund.", ["By Dr Berg", "Mr Lund"]),
        ("By Dr.", []),
        ("They saw The Who.", ["The Who"]),
        ("", []),
    ],
)
def test_names_are_runs_of_capitals_and_figures(text, names):
    assert names_in(text) == names


@pytest.mark.parametrize(
    "answer", ["By Dr. Berg.", "Sen. Berg voted.", "Frau Berg war es.", "Either Berg or nobody."]
)
def test_a_name_is_looked_for_without_titles_and_function_words_before_it(answer):
    (forms,) = new_names(answer, "Who was it?").values()
    assert mentions("It was Berg.", forms)
    assert not mentions("It was the doctor.", forms)
