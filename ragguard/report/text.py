"""Texts from outside as lines and as markup for Rich."""

from __future__ import annotations

from rich.markup import escape

from ragguard.runtime.terminal_text import harmless

LONGEST = 200
"""Characters of a question that is shown in one line."""
_LINE = 2000


def line_of(text: str) -> str:
    """The text in one line, harmless; cut where it is longer than any terminal is wide."""
    return harmless(" ".join(text[:_LINE].split()))


def question_line(question: str) -> str:
    """A question in one line of at most 200 characters; says so where there is none."""
    line = " ".join(question.split())
    return (line if len(line) <= LONGEST else line[: LONGEST - 1] + "…") or "(no question)"


def as_markup(text: str) -> str:
    """Returns the text, harmless, for Rich to read as markup: its brackets stay brackets."""
    return escape(harmless(text))
