"""Redaction: a user's function applied to every text of a captured record, before the record is written.

It runs on the writer's thread or where a run is scored on demand, never in a hook. Only redacted records are written,
scored, sent to sinks and reported.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from ragguard.capture.events import Event, OneStepRun, RunEnded, RunStarted, StepAmended, StepEnded
from ragguard.records import Advice, Decision, Dropped, Failure, Passage, RetrievalStep, Run, SubStep
from ragguard.runtime.faults import Faults
from ragguard.text.plain import METADATA, plain_metadata
from ragguard.text.secret_filter import without

Redact: TypeAlias = Callable[[str], str | None]
"""A function from a text to what may be kept of the text; None or '' keeps nothing."""

_OWN_KEYS = frozenset(
    "agent answer_content error framework interrupted langgraph_node lc_agent_name parent_run_id retriever "
    "session_id thread_id tool_call_id".split()
)
"""Keys that the package and its integrations write into metadata, which are not the user's texts."""
_GENERATED = re.compile(
    r"[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(-\d+)?|redacted-[0-9a-f]{16}", re.IGNORECASE
)
"""Ids that hold no text: UUIDs, and ids that were redacted before."""
_QUERIES = 1024
_QUOTED = 20
"""The most passages whose texts are looked for in a guard's reason."""
_SHORTEST_QUOTE = 8
"""The least characters of a query or a passage that is looked for in a reason or an error."""


class Redactor:
    """Applies a function to every text of a record, ids, names, reasons and keys of metadata included.

    An id that the function changes becomes `redacted-` and a digest of the id: the same id always becomes the
    same one, and it does not show the text. Where the function fails, the text is dropped.
    """

    def __init__(self, redact: Redact, faults: Faults) -> None:
        self._redact: Callable[[str], object] = redact
        self._faults = faults
        self._queries: OrderedDict[str, str] = OrderedDict()
        """The queries of the latest steps, by step id: a guard's reason may quote one and come after the step."""

    def event(self, event: Event) -> Event:
        """Returns the event as it may be written."""
        match event:
            case OneStepRun():
                return OneStepRun(self.run(event.run), self._step(event.step))
            case RunStarted():
                return RunStarted(self.run(event.run), event.identity)
            case StepEnded():
                return StepEnded(self._step(event.step), turn_open=event.turn_open)
            case StepAmended():
                return StepAmended(
                    self.id(event.run_id),
                    self.id(event.step_id),
                    None if event.passages is None else self._passages(event.passages),
                    self._decision(event.decision, self._queries.get(event.step_id, "")),
                    metadata=self._metadata(event.metadata),
                    index=event.index,
                    error=None
                    if event.error is None
                    else self._quoting(event.error, self._queries.get(event.step_id, "")),
                    advice=self._advice(event.advice),
                )
            case RunEnded():
                return replace(
                    event,
                    run_id=self.id(event.run_id),
                    answer=self._maybe(event.answer),
                    question=self._text(event.question),
                    references=self.texts(event.references),
                    sub_questions=self.texts(event.sub_questions),
                    pool=None if event.pool is None else self._passages(event.pool),
                    metadata=self._metadata(event.metadata),
                )

    def run(self, run: Run) -> Run:
        """Returns the run as it may be written."""
        return replace(
            run,
            id=self.id(run.id),
            name=self._text(run.name),
            question=self._text(run.question),
            references=self.texts(run.references),
            answer=self._maybe(run.answer),
            steps=[self._step(step) for step in run.steps],
            metadata=self._metadata(run.metadata),
            sub_questions=self.texts(run.sub_questions),
            pool=None if run.pool is None else self._passages(run.pool),
        )

    def texts(self, texts: Sequence[str] | None) -> list[str] | None:
        """Returns the redacted texts, without the empty ones."""
        return None if texts is None else [kept for kept in map(self._text, texts) if kept]

    def failures(self, failures: Iterable[Failure]) -> list[Failure]:
        """Returns failures with redacted messages, since these may quote questions."""
        return [replace(one, message=self._message(one.message)) for one in failures]

    def id(self, id: str) -> str:
        """Returns the id under which a record with the given id is kept."""
        if not isinstance(id, str) or not id or _GENERATED.fullmatch(id) or self._text(id) == id:
            return id
        return f"redacted-{hashlib.sha256(id.encode('utf-8', 'replace')).hexdigest()[:16]}"

    def _step(self, step: RetrievalStep) -> RetrievalStep:
        self._queries[step.id] = step.query
        if len(self._queries) > _QUERIES:
            self._queries.popitem(last=False)
        passages = self._passages(step.passages)
        return replace(
            step,
            id=self.id(step.id),
            run_id=self.id(step.run_id),
            query=self._text(step.query),
            tool=self._text(step.tool),
            passages=passages,
            candidates=passages if step.candidates is step.passages else self._passages(step.candidates),
            sub_steps=[self._sub_step(sub) for sub in step.sub_steps],
            error=self._quoting(step.error, step.query),
            decision=self._decision(step.decision, step.query),
            advice=self._advice(step.advice),
            metadata=self._metadata(step.metadata),
        )

    def _sub_step(self, sub: SubStep) -> SubStep:
        return replace(
            sub, query=self._text(sub.query), name=self._text(sub.name), passages=self._passages(sub.passages)
        )

    def _decision(self, decision: Decision | None, query: str) -> Decision | None:
        if decision is None:
            return None
        return replace(
            decision,
            kept=self._passages(decision.kept),
            dropped=[self._dropped(one, query) for one in decision.dropped],
            reason=self._quoting(
                decision.reason, query, *(passage.text for passage in decision.kept[:_QUOTED])
            ),
            engine=self._text(decision.engine),
        )

    def _advice(self, advice: Advice | None) -> Advice | None:
        if advice is None:
            return None
        return replace(
            advice,
            open_sub_questions=self.texts(advice.open_sub_questions) or [],
            reasons=self.texts(advice.reasons) or [],
            step_id=self.id(advice.step_id),
        )

    def _dropped(self, dropped: Dropped, query: str) -> Dropped:
        return replace(
            dropped,
            passage=self._passage(dropped.passage),
            reason=self._quoting(dropped.reason, query, dropped.passage.text),
        )

    def _passages(self, passages: Sequence[Passage]) -> list[Passage]:
        return [self._passage(passage) for passage in passages]

    def _passage(self, passage: Passage) -> Passage:
        return replace(
            passage,
            text=self._text(passage.text),
            id=self.id(passage.id),
            metadata=self._metadata(passage.metadata),
        )

    def _metadata(self, metadata: Mapping[str, Any]) -> Mapping[str, Any]:
        return plain_metadata(metadata, METADATA, self._text, _OWN_KEYS) if metadata else {}

    def _maybe(self, text: str | None) -> str | None:
        return None if text is None else self._text(text)

    def _quoting(self, text: str, *quoted: str) -> str:
        """Returns a reason or an error without the texts that it may quote, whole, escaped or cut off."""
        if not text:
            return text
        secrets = [one for one in quoted if len(one) >= _SHORTEST_QUOTE and self._text(one) != one]
        return without(self._text(text), secrets)

    def _message(self, message: str) -> str:
        """Returns the message of a failure as it may be written, or, where nothing is left of it, why."""
        kept, fault = self._kept(message)
        if fault:
            return f"redact {fault}, so texts were dropped, and with them this message"
        return kept if kept or not message else "redact left nothing of this message"

    def _text(self, text: str) -> str:
        return self._kept(text)[0]

    def _kept(self, text: str) -> tuple[str, str]:
        """Returns what is kept of a text, nothing where the function fails, and what the function did wrong."""
        if not text:
            return text, ""
        try:
            kept = self._redact(text)
            if kept is None or isinstance(kept, str):
                return kept or "", ""
        except BaseException as error:  # noqa: BLE001 - the user's function; what it fails on is not written
            self._faults.note_without_text("redact", error)
            return "", f"raised {type(error).__name__}"
        self._faults.note_no_text("redact", kept)
        return "", f"returned {type(kept).__name__} in place of a text"
