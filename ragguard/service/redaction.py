"""Takes out of a captured record what must not be written; runs before the store, never in a hook."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from ragguard.capture.events import Event, RunEnded, RunStarted, StepAmended, StepEnded
from ragguard.capture.faults import Faults
from ragguard.records import Decision, Passage, RetrievalStep, Run

Redact: TypeAlias = Callable[[str], str | None]
"""A text → what may be kept of it; None or an empty text: nothing."""


class Redactor:
    """Applies a user's function to every text of a record: questions, queries, passages, answers, references,
    errors and whatever texts the metadata hold. Where the function fails, the text is dropped."""

    def __init__(self, redact: Redact, faults: Faults) -> None:
        self._redact, self._faults = redact, faults

    def event(self, event: Event) -> Event:
        """The event as it may be written."""
        match event:
            case RunStarted():
                return RunStarted(self.run(event.run))
            case StepEnded():
                return StepEnded(self._step(event.step))
            case StepAmended():
                return StepAmended(
                    event.run_id,
                    event.step_id,
                    None if event.passages is None else self._passages(event.passages),
                    self._decision(event.decision),
                    self._metadata(event.metadata),
                    event.index,
                )
            case RunEnded():
                return replace(
                    event,
                    answer=self._maybe(event.answer),
                    question=self._text(event.question),
                    references=self.texts(event.references),
                    sub_questions=self.texts(event.sub_questions),
                    pool=None if event.pool is None else self._passages(event.pool),
                    metadata=self._metadata(event.metadata),
                )

    def run(self, run: Run) -> Run:
        """The run as it may be written."""
        return replace(
            run,
            question=self._text(run.question),
            references=self.texts(run.references),
            answer=self._maybe(run.answer),
            steps=[self._step(step) for step in run.steps],
            metadata=self._metadata(run.metadata),
            sub_questions=self.texts(run.sub_questions),
            pool=None if run.pool is None else self._passages(run.pool),
        )

    def texts(self, texts: Sequence[str] | None) -> list[str] | None:
        """Texts as they may be written; those of which nothing is left go."""
        return None if texts is None else [kept for kept in map(self._text, texts) if kept]

    def _step(self, step: RetrievalStep) -> RetrievalStep:
        passages = self._passages(step.passages)
        return replace(
            step,
            query=self._text(step.query),
            passages=passages,
            candidates=passages if step.candidates is step.passages else self._passages(step.candidates),
            sub_steps=[
                replace(sub, query=self._text(sub.query), passages=self._passages(sub.passages))
                for sub in step.sub_steps
            ],
            error=self._text(step.error),
            decision=self._decision(step.decision),
            metadata=self._metadata(step.metadata),
        )

    def _decision(self, decision: Decision | None) -> Decision | None:
        if decision is None:
            return None
        return replace(
            decision,
            kept=self._passages(decision.kept),
            dropped=[replace(one, passage=self._passage(one.passage)) for one in decision.dropped],
        )

    def _passages(self, passages: Sequence[Passage]) -> list[Passage]:
        return [self._passage(passage) for passage in passages]

    def _passage(self, passage: Passage) -> Passage:
        return replace(passage, text=self._text(passage.text), metadata=self._metadata(passage.metadata))

    def _metadata(self, metadata: Mapping[str, Any]) -> Mapping[str, Any]:
        return {key: self._value(value) for key, value in metadata.items()}

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, Mapping):
            return self._metadata(value)
        if isinstance(value, (list, tuple)):
            return [self._value(item) for item in value]
        return value

    def _maybe(self, text: str | None) -> str | None:
        return None if text is None else self._text(text)

    def _text(self, text: str) -> str:
        if not text:
            return text
        try:
            kept = self._redact(text)
        except BaseException as error:  # noqa: BLE001 - the user's function; what it fails on is not written
            self._faults.note("redact", error)
            return ""
        return kept if isinstance(kept, str) else ""
