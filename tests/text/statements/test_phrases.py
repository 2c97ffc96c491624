"""A phrase is found in a passage word for word, figures with their marks."""

import pytest

from ragguard.text.statements.phrases import findable, mentions


@pytest.mark.parametrize(
    ("phrase", "passage", "stands"),
    [
        ("2.4 bar", "The tyre needs 2.4bar.", True),
        ("2.4", "There are 24 tyres.", False),
        ("24", "The tyre needs 2.4 bar.", False),
        ("1,200", "It costs 1200 euros.", True),
        ("1 200", "It costs 1\u202f200 euros.", False),  # an ordinary space may part two figures
        ("1\u202f200", "It costs 1200 euros.", True),
        ("200", "It costs 1,200 euros.", False),
        ("$3.50", "A ticket is $3.50.", True),
        ("$3.50", "A ticket is 3.50 francs.", False),
        ("2024-05-04", "Due 2024-05-04, at noon.", True),
        ("2024-05-04", "Number 20240504.", False),
        ("12:30", "There were 1,230 of them.", False),
        ("15%", "At most 15 percent of it.", True),
        ("15 %", "All 15 dogs.", False),
        ("10 km/h", "At most 10 km/h here.", True),
        ("-5 °C", "It had −5 °C.", True),
        ("5", "It had -5 degrees.", False),
        ("1939", "In the years 1939–1945.", True),
        ("U.S.", "In the U.S. it is known.", True),
        ("East Dundale", "East Dundale's mayor.", True),
        ("East Dundale", "Born in East Dundale—a town.", True),
        ("Ke$ha", "Ke$ha sang in 2010.", True),
        ("2.4巴", "轮胎需要2.4巴。", True),
    ],
)
def test_a_phrase_is_found_exactly_where_it_stands(phrase, passage, stands):
    assert mentions(passage, findable([phrase])) is stands
