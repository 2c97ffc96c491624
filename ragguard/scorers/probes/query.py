"""The probe of the query: how probable a query is behind a passage, and without one."""

from __future__ import annotations

from ragguard.engines.base import Prompt
from ragguard.engines.prompts import PromptSet
from ragguard.scorers.probes.question import TextQuestion, Who


def query_likelihood(prompts: PromptSet, query: str, *passages: str, who: Who = "engine") -> TextQuestion:
    """Returns the question how probable a query is behind passages, or without any."""
    asked = prompts.render("query", passages) if passages else prompts.render("query_closed")
    return TextQuestion(Prompt(asked.messages, asked.cuttable, query), who, "query_gain")
