"""Utility given what was read before: what a passage adds, for the run's question, to the passages of earlier turns.

v(C) is the utility of a whole context C for the run's question: (2r - 1)(1 - p), with r whether the judge finds the
answer in C and p how probable the reader abstains with C before it; v of nothing is 0. The passage d of a step adds
v(E + d) - v(E), where E is what the model got in the turns before. So a second hop earns what it completes, a passage
that repeats earns nothing, and one that turns a right reading into a wrong one loses up to 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

from ragguard.errors import RagguardError
from ragguard.metrics.distraction import utility
from ragguard.probes.abstention import abstention, read_abstention
from ragguard.probes.question import LabelAnswer, LabelQuestion, answered
from ragguard.probes.relevance import read_relevance, relevance
from ragguard.records import Usage
from ragguard.scorers.contexts import CLOSED_BOOK, Key, window
from ragguard.scorers.sheet import Sheet
from ragguard.scorers.view import StepView


class _Value(NamedTuple):
    """The utility of a context, its error, and what it cost to know."""

    value: float
    stderr: float | None
    usage: Usage


@dataclass(frozen=True, slots=True)
class _Reading:
    """One passage, and the contexts before it and with it."""

    step: StepView
    at: int
    before: Key
    after: Key
    dropped: int
    """How many earlier passages had to go, as the window is too small."""


class UtilityGiven:
    """Says `utility_given` of each judged passage of a run."""

    def __init__(self, sheet: Sheet, *, soft: bool) -> None:
        self._sheet, self._soft = sheet, soft
        self._readings = _readings(sheet) if sheet.view.run.question.strip() else []
        read = (context for reading in self._readings for context in (reading.before, reading.after))
        self._contexts = [context for context in dict.fromkeys(read) if context != CLOSED_BOOK]

    def questions(self) -> list[LabelQuestion]:
        """Two for each context: would the reader abstain, and is the answer there."""
        view = self._sheet.view
        question = view.run.question
        return [
            asked
            for context in self._contexts
            for asked in (
                abstention(view.setting.prompts, question, *context),
                relevance(view.setting.judge_prompts, question, *context),
            )
        ]

    def write(
        self, questions: Sequence[LabelQuestion], answers: Sequence[LabelAnswer | RagguardError]
    ) -> None:
        """Adds the scores, given the answers to `questions`."""
        values: dict[Key, _Value | RagguardError] = {CLOSED_BOOK: _Value(0.0, 0.0, Usage())}
        for number, context in enumerate(self._contexts):
            values[context] = self._value(questions[2 * number + 1], *answers[2 * number : 2 * number + 2])
        told: set[Key] = set()
        for reading in self._readings:
            before, after = values[reading.before], values[reading.after]
            if isinstance(before, RagguardError) or isinstance(after, RagguardError):
                for fault in (before, after):
                    if isinstance(fault, RagguardError):
                        self._sheet.fail(fault, f"utility_given of passage {reading.at + 1}", reading.step)
            else:
                self._write(reading, before, after, told)

    def _write(self, reading: _Reading, before: _Value, after: _Value, told: set[Key]) -> None:
        same = reading.before == reading.after
        known = before.stderr is not None and after.stderr is not None
        stderr = 0.0 if same else math.hypot(before.stderr or 0.0, after.stderr or 0.0) if known else None
        usage = Usage()
        for context, value in ((reading.before, before), (reading.after, after)):
            if context not in told:
                told.add(context)
                usage += value.usage
        metadata = {"read_before": len(reading.before)}
        if reading.dropped:
            metadata["dropped_passages"] = reading.dropped
        self._sheet.add(
            "utility_given", after.value - before.value, step=reading.step, at=reading.at, stderr=stderr,
            label="repeats" if same else "", explanation=f"{before.value:.2f} → {after.value:.2f}",
            usage=usage, metadata=metadata,
        )  # fmt: skip

    def _value(
        self,
        asked: LabelQuestion,
        abstains: LabelAnswer | RagguardError,
        relevant: LabelAnswer | RagguardError,
    ) -> _Value | RagguardError:
        try:
            reader, judged = read_abstention(answered(abstains)), read_relevance(asked, answered(relevant))
        except RagguardError as error:
            return error
        r = judged.p if self._soft else float(judged.p >= 0.5)
        stderr = reader.stderr
        if self._soft and stderr is not None:
            of_r = None if judged.stderr is None else 2 * (1 - reader.p) * judged.stderr
            stderr = None if of_r is None else math.hypot((2 * r - 1) * stderr, of_r)
        return _Value(float(utility(r, reader.p)), stderr, reader.usage + judged.usage)


def _readings(sheet: Sheet) -> list[_Reading]:
    """Each judged passage with what the model got in the turns before."""
    view = sheet.view
    fit = window(
        view.setting.prompts, view.setting.engine.context, task="abstention", query=view.run.question
    )
    readings: list[_Reading] = []
    earlier: list[StepView] = []
    for _, group in groupby(view.turns, key=lambda entry: entry[0]):
        together = [step for _, step in group]
        before = fit(earlier).passages if earlier else CLOSED_BOOK
        for step in together:
            for at in sorted(step.judged):
                after = fit([*earlier, replace(step, got=(at,))])
                readings.append(_Reading(step, at, before, after.passages, after.dropped))
        earlier += [step for step in together if step.readable]
    return readings
