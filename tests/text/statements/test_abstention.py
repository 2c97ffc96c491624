"""Answers that say that they give none, and answers that resemble one."""

from pathlib import Path

from ragguard.text.statements.abstention import is_abstention

ABSTENTIONS, FURTHER, ANSWERS = (
    (Path(__file__).parent / "data" / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    for name in ("abstentions", "further", "answers")
)
"""Phrases for which the lists of `ENGLISH` were made; sixty that were written when these lists were done, of which 39
were recognised then; and answers that resemble an abstention, many of them titles of works."""


def test_abstentions_are_recognised_but_for_those_that_are_counted():
    missed = [phrase for phrase in ABSTENTIONS if not is_abstention(phrase)]
    assert missed == [
        "NA",  # sodium
        "None",  # an answer to "how many?"
        "The information needed is not in the passages.",
        "The requested information is missing.",
        "My sources do not cover that.",
    ]
    assert len(ABSTENTIONS) == 157


def test_further_abstentions_are_recognised_for_the_most_part():
    assert len(FURTHER) == 60
    assert sum(map(is_abstention, FURTHER)) >= 39


def test_answers_and_titles_are_no_abstentions_but_for_those_that_are_counted():
    taken = [phrase for phrase in ANSWERS if is_abstention(phrase)]
    assert taken == ["Nobody Knows", "Insufficient Evidence (film)"]
