"""How short texts, figures above all, are found in passages word for word."""

import pytest

from ragguard.scorers.run_facts import findable, mentions, names_in


@pytest.mark.parametrize(
    ("phrase", "passage", "stands"),
    [
        ("2.4", "The tyre needs 2.4.", True),
        ("2.4 bar", "The tyre needs 2.4 bar (cold).", True),
        ("2.4 bar", "The tyre needs 2.4bar.", True),
        ("2.4", "There are 24 tyres.", False),
        ("24", "The tyre needs 2.4 bar.", False),
        ("1,200", "It costs 1,200 euros.", True),
        ("1,200", "It costs 1200 euros.", True),
        ("1200", "It costs 1,200 euros.", True),
        ("1 200", "It costs 1\u202f200 euros.", False),  # an ordinary space may part two figures
        ("1\u202f200", "It costs 1200 euros.", True),
        ("1,200,000.50", "In all 1200000.50.", True),
        ("200", "It costs 1,200 euros.", False),
        ("$3.50", "A ticket is $3.50.", True),
        ("3.50", "A ticket is $3.50.", True),
        ("$3.50", "A ticket is 3.50 francs.", False),
        ("€ 3.50", "A ticket is €3.50.", True),
        ("2024-05-04", "Due 2024-05-04, at noon.", True),
        ("2024-05-04", "Number 20240504.", False),
        ("04/05/2024", "Due on 04/05/2024.", True),
        ("12:30", "It leaves at 12:30.", True),
        ("12:30", "There were 1,230 of them.", False),
        ("15 %", "At most 15%.", True),
        ("15%", "At most 15 percent of it.", True),
        ("15 %", "All 15 dogs.", False),
        ("10 km/h", "At most 10 km/h here.", True),
        ("10 km", "It is 10km away.", True),
        ("-5 °C", "It had −5 °C.", True),
        ("5", "It had -5 degrees.", False),
        ("1939", "In the years 1939–1945.", True),
        ("1939-1945", "In the years 1939–1945.", True),
        ("20%", "From 15%-20%.", True),
        ("3D", "A 3D printer.", True),
        ("U.S.", "In the U.S. it is known.", True),
        ("O'Brien", "It was O'Brien.", True),
        ("East Dundale", "East Dundale's mayor.", True),
        ("East Dundale", "Born in East Dundale—a town.", True),
        ("Ke$ha", "Ke$ha sang in 2010.", True),
        ("2.4巴", "轮胎需要2.4巴。", True),
    ],
)
def test_a_phrase_is_found_exactly_where_it_stands(phrase, passage, stands):
    assert mentions(passage, findable([phrase])) is stands


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
        ("", []),
    ],
)
def test_names_are_runs_of_capitals_and_figures(text, names):
    assert names_in(text) == names
