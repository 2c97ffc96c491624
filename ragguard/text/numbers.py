"""Scores as people see them: rounded by one rule in terminal, sentence, JSON and page."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

KNOWN_DIGITS = 4
"""The digits after the point that the page and JSON know of a score."""


def as_shown(value: float, digits: int = 2) -> Decimal:
    """Returns a score as people see it, to be formatted with as many digits.

    The page knows four digits, and rounds a half up in size; what is rounded otherwise differs from it by 0.01.
    """
    return Decimal(round(value, KNOWN_DIGITS)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
