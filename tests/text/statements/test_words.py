"""Words of answers have one spelling, and the words of the lexicon have it, too."""

from pathlib import Path

import pytest

from ragguard.text import lexicon, statements
from ragguard.text.statements.words import answer_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The 3rd of two", "the 3 of 2"),
        ("twentieth", "20"),
        ("Harald VII", "harald 7"),
        ("1,200.50 km", "1200.5 kilometer"),
        ("José's cities", "jose city"),
        ("the U.S.A.", "the us"),
        ("isn’t", "isnt"),
    ],
)
def test_words_have_one_spelling(text, words):
    assert answer_words(text) == tuple(words.split())


@pytest.mark.parametrize("field", ["small", "vague", "quantifying"])
def test_function_words_are_found_in_that_spelling(field):
    """A word of the lexicon in another spelling would never be found."""
    assert {answer_words(word) for word in lexicon.words("function_words", field)} == {
        (word,) for word in lexicon.words("function_words", field)
    }


def test_units_are_found_in_that_spelling():
    units = {
        unit for table in lexicon.languages("units").values() for kind in table.values() for unit in kind
    }
    assert {unit for unit in units if answer_words(unit) != (unit,)} == {"second"}  # the ordinal
    assert answer_words("seconds") == ("second",)


@pytest.mark.parametrize("package", [lexicon, statements])
def test_each_file_of_a_room_is_in_its_table(package):
    folder = Path(package.__file__).parent
    files = {path.name for path in folder.iterdir() if path.suffix in (".py", ".toml")} - {"__init__.py"}
    assert {line.split()[0] for line in package.__doc__.splitlines() if line.startswith("    ")} == files
