"""Makes single lines, and markup for Rich, of texts that come from outside."""

from __future__ import annotations

from rich.markup import escape

from ragguard.text.terminal import harmless

LONGEST = 200
"""The most characters of a question that is shown in one line."""
_LINE = 2000


def line_of(text: str) -> str:
    """Returns the text in one line without control characters, cut after 2,000 characters."""
    return harmless(" ".join(text[:_LINE].split()))


def question_line(question: str) -> str:
    """Returns a question in one line of at most 200 characters, "(no question)" for an empty one."""
    line = " ".join(question.split())
    return (line if len(line) <= LONGEST else line[: LONGEST - 1] + "…") or "(no question)"


def as_markup(text: str) -> str:
    """Returns the text as markup for Rich, with escaped brackets and without control characters."""
    return escape(harmless(text))
