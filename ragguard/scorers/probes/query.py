"""The probe of the query: how probable a query is behind a passage, and without one."""

from __future__ import annotations

from ragguard.engines.base import Prompt
from ragguard.engines.prompts import PromptSet
from ragguard.scorers.probes.question import TextQuestion


def query_likelihood(prompts: PromptSet, query: str, passage: str | None = None) -> TextQuestion:
    """Returns the question for the reader how probable a query is behind a passage; None: without one."""
    asked = prompts.render("query_closed") if passage is None else prompts.render("query", [passage])
    return TextQuestion(Prompt(asked.messages, asked.cuttable, query))
