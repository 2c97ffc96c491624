"""A scripted engine that also tells how probable a given text is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from support.scripted_engine import Call, ScriptedEngine

from ragguard.engines.base import Continuation, Continuations, as_prompt


@dataclass
class LikelyEngine(ScriptedEngine):
    likely: Callable[[str, str], float] = lambda prompt, text: -1.0
    """(last message, text) → the log-probability of each of the text's words."""
    end: float | None = 0.0
    """The log-probability of an answer's end behind any text; None if the engine does not tell it."""

    async def continuations(self, prompts, texts, deadline=None, priority=0):
        call = Call("continuations", tuple(as_prompt(prompt) for prompt in prompts))
        await self._serve(call)
        rows = [
            [Continuation(text, (self.likely(message, text),) * len(text.split()), self.end) for text in row]
            for message, row in zip(call.texts, texts, strict=True)
        ]
        return Continuations(rows, self._usage(call, 0))
