"""docs/telemetry.md says what the code says."""

from pathlib import Path

from ragguard.sinks import names
from ragguard.sinks.reference import tables

PAGE = Path(__file__).parents[2] / "docs" / "telemetry.md"


def test_the_page_holds_the_generated_tables():
    written = PAGE.read_text().partition("<!-- names -->\n")[2].partition("<!-- /names -->")[0]
    assert written == tables(), "run `python -m ragguard.sinks.reference` and put it between the markers"


def test_no_name_is_said_twice_and_every_one_has_a_meaning():
    every = [name for group in names.ATTRIBUTES.values() for name in group]
    assert len(every) == len(set(every))
    for name in every:
        assert name.meaning
        assert name.places
