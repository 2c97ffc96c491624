"""Ratings of how well texts answer sub-questions; each text is rated once in a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ragguard.engines.prompts import PromptSet
from ragguard.errors import RagguardError
from ragguard.records import Usage
from ragguard.scorers.probes.question import Ask, LabelAnswer, LabelQuestion, answered
from ragguard.scorers.probes.rating import Rating, answerability, read_rating


@dataclass(slots=True)
class Ratings:
    """Holds, for each text, one rating or error for each sub-question."""

    sub_questions: tuple[str, ...]
    rows: dict[str, list[Rating | RagguardError]] = field(default_factory=dict)

    async def learn(self, texts: Iterable[str], prompts: PromptSet, ask: Ask) -> None:
        """Asks for the ratings of the texts, all at once."""
        wanted = list(dict.fromkeys(texts))
        questions = self.questions(wanted, prompts)
        self.read(wanted, questions, await ask(questions))

    def questions(self, texts: Sequence[str], prompts: PromptSet) -> list[LabelQuestion]:
        """Returns the questions about each text, in the order of the sub-questions."""
        return [answerability(prompts, sub, text) for text in texts for sub in self.sub_questions]

    def read(
        self,
        texts: Sequence[str],
        questions: Sequence[LabelQuestion],
        answers: Sequence[LabelAnswer | RagguardError],
    ) -> list[Rating | RagguardError]:
        """Takes the answers to `questions` about the texts; returns the ratings, with errors in the place of others."""
        cells = [_read(question, answer) for question, answer in zip(questions, answers, strict=True)]
        width = len(self.sub_questions)
        self.rows |= {text: cells[row * width : (row + 1) * width] for row, text in enumerate(texts)}
        return cells

    def table(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Returns the most probable ratings, (texts, sub-questions); raises the error of one that is missing."""
        values = [[answered(cell).value for cell in self.rows[text]] for text in texts]
        return np.array(values, dtype=np.float64).reshape(len(texts), len(self.sub_questions))

    def answered_by(self, text: str, eta: float) -> set[int]:
        """Returns the numbers of the sub-questions that a text answers, with a rating of at least `eta`."""
        cells = enumerate(self.rows[text])
        return {number for number, cell in cells if isinstance(cell, Rating) and cell.value >= eta}

    def usage(self, text: str) -> Usage:
        """Returns the cost of rating a text."""
        return sum((cell.usage for cell in self.rows[text] if isinstance(cell, Rating)), Usage())

    def stderr(self, texts: Iterable[str]) -> float | None:
        """Returns 0 where no rating of the texts was estimated: what thresholds give has no error then; else None."""
        cells = (cell for text in texts for cell in self.rows[text])
        return 0.0 if all(isinstance(cell, Rating) and cell.stderr == 0.0 for cell in cells) else None


def _read(question: LabelQuestion, answer: LabelAnswer | RagguardError) -> Rating | RagguardError:
    """Returns the rating, or why there is none."""
    try:
        return read_rating(question, answered(answer))
    except RagguardError as error:
        return error
