"""Utility given earlier passages: what a passage adds, for the run's question, to the passages of earlier turns.

With E for what the model got in the turns before, p(C) for how probable the reader abstains from the run's question
with the context C, and R for whether the judge finds the passage d relevant to the query of its own step (+1 or -1, or
its expectation): R * max(0, p(E) - p(E + d)). Utility itself is the same with a p of 1 for having read nothing. So a
passage of a second hop gets utility for what it completes, and a passage without new information gets none. A passage
that makes the reader abstain more gets none either: whether that is good depends on the truth of the earlier passages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

from ragguard.errors import RagguardError
from ragguard.metrics.distraction import utility_given
from ragguard.records import LEFT_OUT, Usage
from ragguard.scorers.contexts import Key, window
from ragguard.scorers.probes.abstention import Abstention, abstention, read_abstention
from ragguard.scorers.probes.question import LabelAnswer, LabelQuestion, answered, remarks_of_both
from ragguard.scorers.score_writer import ScoreWriter
from ragguard.scorers.view import StepView


class Relevant(NamedTuple):
    """How relevant a passage is to its step's query: from 0 to 1, with the error where it counts as a probability."""

    p: float
    stderr: float | None


@dataclass(frozen=True, slots=True)
class _PassageInTurn:
    """A passage, with the context before it and the context with it."""

    step: StepView
    at: int
    before: Key
    after: Key
    dropped: int
    """How many earlier passages are left out, as the model's window is too small."""


class UtilityGiven:
    """Gives `utility_given` of each judged passage of a run."""

    def __init__(self, writer: ScoreWriter) -> None:
        self._writer = writer
        self._readings = _readings(writer) if writer.view.run.question.strip() else []
        read = (context for reading in self._readings for context in (reading.before, reading.after))
        self._contexts = list(dict.fromkeys(read))

    def questions(self) -> list[LabelQuestion]:
        """Returns one question for each context: whether the reader would abstain from the run's question."""
        view = self._writer.view
        return [abstention(view.setting.prompts, view.run.question, *context) for context in self._contexts]

    def write(
        self, answers: Sequence[LabelAnswer | RagguardError], relevance: Mapping[tuple[str, int], Relevant]
    ) -> None:
        """Adds the scores, from the answers to `questions` and the relevance of passages by step id and index."""
        abstains = {context: _read(answer) for context, answer in zip(self._contexts, answers, strict=True)}
        paid: set[Key] = set()
        for reading in self._readings:
            relevant = relevance.get((reading.step.step.id, reading.at))
            if relevant is None:
                continue  # the failure of p_relevant says why
            before, after = abstains[reading.before], abstains[reading.after]
            if isinstance(before, RagguardError) or isinstance(after, RagguardError):
                for fault in (before, after):
                    if isinstance(fault, RagguardError):
                        self._writer.fail(fault, f"utility_given of passage {reading.at + 1}", reading.step)
            else:
                usage = Usage()
                for context, found in ((reading.before, before), (reading.after, after)):
                    if context not in paid:
                        paid.add(context)
                        usage += found.usage
                self._write(reading, relevant, before, after, usage)

    def _write(
        self, reading: _PassageInTurn, relevant: Relevant, before: Abstention, after: Abstention, usage: Usage
    ) -> None:
        same = reading.before == reading.after
        metadata = {"read_before": len(reading.before), **remarks_of_both(before.remarks, after.remarks)}
        if reading.dropped:
            metadata[LEFT_OUT] = reading.dropped
        self._writer.add(
            "utility_given",
            float(utility_given(relevant.p, before.p, after.p)),
            step=reading.step,
            at=reading.at,
            stderr=0.0 if same else _stderr(relevant, before, after),
            label="repeats" if same else "",
            explanation=f"p(abstain) {before.p:.2f} → {after.p:.2f}",
            usage=usage,
            metadata=metadata,
        )


def _stderr(relevant: Relevant, before: Abstention, after: Abstention) -> float | None:
    """Returns the standard error of (2r - 1)(p - q), to first order."""
    if relevant.stderr is None or before.stderr is None or after.stderr is None:
        return None
    fall = max(0.0, before.p - after.p)
    return math.hypot(
        (2 * relevant.p - 1) * math.hypot(before.stderr, after.stderr), 2 * fall * relevant.stderr
    )


def _read(answer: LabelAnswer | RagguardError) -> Abstention | RagguardError:
    return answer if isinstance(answer, RagguardError) else read_abstention(answered(answer))


def _readings(writer: ScoreWriter) -> list[_PassageInTurn]:
    """Returns each judged passage with what the model got in the turns before."""
    view = writer.view
    fit = window(
        view.setting.prompts, view.setting.engine.context, task="abstention", query=view.run.question
    )
    readings: list[_PassageInTurn] = []
    earlier: list[StepView] = []
    for _, group in groupby(view.turns, key=lambda entry: entry[0]):
        together = [step for _, step in group]
        before = fit(earlier).passages
        for step in together:
            for at in sorted(step.judged):
                after = fit([*earlier, replace(step, got=(at,))])
                readings.append(_PassageInTurn(step, at, before, after.passages, dropped=after.dropped))
        earlier += [step for step in together if step.readable]
    return readings
