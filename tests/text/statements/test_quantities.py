"""Quantities are compared across units; other values in other units leave it open."""

import pytest

from ragguard.text.statements.quantities import same_quantity


@pytest.mark.parametrize(
    ("answer", "reference", "same"),
    [
        ("It lasts a fortnight, 14 days.", "two weeks", True),
        ("two hundred dollars", "$200", True),
        ("1.2 thousand euros", "€1,200", True),
        ("half past two, 14:30", "2:30 pm", True),
        ("6 feet 2 inches", "74 inches", True),
        ("It is 212 °F.", "100 °C", True),
        ("3 weeks", "14 days", None),
        ("15 days", "14 days", False),
        ("5 km/h", "5 km", False),
        ("two weeks", "in the second week of May", False),
    ],
)
def test_a_quantity_is_the_same_in_another_unit(answer, reference, same):
    assert same_quantity(answer, reference) is same
