"""The support of a right answer by what was read, by words only: no model is asked."""

from __future__ import annotations

import re

from ragguard.scorers.view import View
from ragguard.text.statements.phrases import findable, mentions
from ragguard.text.statements.verdict import ONE_CLAUSE, right_by_words
from ragguard.text.statements.words import answer_words

_PRONOUN = re.compile(r"^(?:he|she|it|they)\s", re.IGNORECASE)
"""A subject with which an answer may begin where a passage has its name."""


def supported_by_words(view: View) -> bool:
    """Returns whether a passage that was read has the words of a reference, or those of a short answer, in whatever
    spelling; true of a run without short references."""
    phrases, answer = (
        findable(view.short_references),
        _PRONOUN.sub("", (view.run.answer or "").strip(), count=1),
    )
    is_short = len(answer_words(answer)) <= ONE_CLAUSE
    return not phrases or any(
        mentions(text, phrases) or (is_short and right_by_words(text, answer, view.run.question))
        for text in (step.all[at].text for step in view.steps for at in step.got)
    )
