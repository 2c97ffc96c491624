"""The correctness of an answer that is given now: for calibration, where the references are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ragguard.advice.evidence import fitting
from ragguard.probes.belief import belief
from ragguard.probes.question import Ask, SampleQuestion, answered
from ragguard.scorers.answers import verdict_of
from ragguard.scorers.meanings import Meanings
from ragguard.scorers.pipeline import Inquiry
from ragguard.scorers.view import View


@dataclass(slots=True)
class OutcomeSearch:
    """Asks the reader for its likeliest answer with what was read so far, and whether that is right."""

    correct: float = 0.0
    """1 where the answer means a reference, else 0."""

    @property
    def inquiries(self) -> Sequence[Inquiry]:
        """The inquiry that asks."""
        return (self._answer,)

    async def _answer(self, view: View, ask: Ask) -> None:
        context = fitting(view, view.steps)
        drawn = belief(
            view.setting.prompts,
            view.run.question,
            context.passages,
            cut_order=context.cut_order,
            n=1,
            seed=view.seed,
        )
        likeliest = SampleQuestion(drawn.prompt, 1, drawn.max_tokens, 0.0, seed=view.seed)
        samples = answered((await ask([likeliest]))[0]).samples
        meanings = Meanings(view.run.question, ask, view.setting.language)
        verdict, _ = await verdict_of(samples[0].text if samples else "", view.short_references, meanings)
        self.correct = float(verdict == "correct")
