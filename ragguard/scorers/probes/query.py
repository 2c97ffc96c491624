"""The probe of the query: how probable a query is behind a passage, and without one."""

from __future__ import annotations

from ragguard.engines.base import Prompt
from ragguard.engines.prompts import PromptSet
from ragguard.scorers.probes.question import TextQuestion, Who


def query_likelihood(prompts: PromptSet, query: str, *passages: str, who: Who = "engine") -> TextQuestion:
    """Returns a question that measures how probable a query is as the text after the passages, or after none."""
    asked = prompts.render("query", passages) if passages else prompts.render("query_closed")
    return TextQuestion(Prompt(asked.messages, asked.cuttable, query), who, "query_gain")
