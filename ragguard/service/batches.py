"""The preparation and the write of a batch of events, on the writer's thread.

Frameworks and users put any objects into fields: NumPy integers, None, objects of their own. What can be converted
without a loss is converted to the type that a store takes; a field that cannot is emptied, and the record's metadata
name it (`schema.fitted`).

Redaction is a user's function, applied to every text of a captured record before the record is written. It runs on the
writer's thread or where a run is scored on demand, never in a hook. Only redacted records are written, scored, sent to
sinks and reported. Which fields are texts is said by their annotations in `records.py`: a new field is redacted without
a change here.

A batch that the disk does not take now is tried again with pauses.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar

from ragguard.capture.events import CALLER_ID, Event, OneStepRun, RunEnded, RunStarted, StepAmended, StepEnded
from ragguard.capture.snapshot import passage_of, passages_of
from ragguard.errors import StoreUnavailable
from ragguard.records import Decision, Dropped, Failure, Passage, RetrievalStep, Run
from ragguard.runtime import scalars
from ragguard.runtime.circuit_breaker import RetrySchedule
from ragguard.runtime.faults import Faults
from ragguard.schema import FieldType, ListType, RecordType, fitted, text_fields
from ragguard.service.queue import AwaitedEvent, EventQueue
from ragguard.storage.sqlite.store import Store
from ragguard.storage.sqlite.writing import EventBatch
from ragguard.text.plain import METADATA, plain_metadata
from ragguard.text.secret_filter import logger, without


def storable_event(event: Event) -> Event:
    """Returns the event itself where every field has its type, else a copy in which every field has."""
    match event:
        case OneStepRun():
            return OneStepRun(fitted(event.run), _step(event.step))
        case StepEnded():
            step = event.step
            if (fitting := _step(step)) is not step:
                return StepEnded(fitting, turn_open=event.turn_open)
        case RunStarted():
            run = event.run
            if (whole := fitted(run)) is not run:
                return RunStarted(whole, event.names)
        case RunEnded():
            return fitted(event)
        case StepAmended():
            return _amended(event)
    return event


def _step(step: RetrievalStep) -> RetrievalStep:
    if isinstance(step.decision, Decision) and not _has_passages(step.decision):
        step = replace(step, decision=_with_passages(step.decision))
    return fitted(step)


def _amended(event: StepAmended) -> StepAmended:
    decision = event.decision if isinstance(event.decision, Decision) else None
    if decision is not None:
        decision = fitted(decision if _has_passages(decision) else _with_passages(decision))
    if type(event.run_id) is str and type(event.step_id) is str and decision is event.decision:
        return event
    return StepAmended(
        f"{event.run_id}", f"{event.step_id}", event.passages, decision, metadata=event.metadata,
        error=event.error, advice=event.advice,
    )  # fmt: skip


def _has_passages(decision: Decision) -> bool:
    """Returns True for a decision that a guard made; one that a user made may hold anything in place of passages."""
    return (
        type(decision.kept) is list
        and type(decision.dropped) is type(decision.would_drop) is list
        and all(_is_passage(passage) for passage in decision.kept)
        and all(
            type(one) is Dropped and _is_passage(one.passage)
            for one in (*decision.dropped, *decision.would_drop)
        )
    )


def _is_passage(passage: object) -> bool:
    return type(passage) is Passage and type(passage.text) is type(passage.id) is str


def _with_passages(decision: Decision) -> Decision:
    return replace(
        decision, kept=passages_of(decision.kept), dropped=_dropped(decision.dropped),
        would_drop=_dropped(decision.would_drop),
    )  # fmt: skip


def _dropped(given: object) -> list[Dropped]:
    drops = given if isinstance(given, list | tuple) else ()
    return [replace(one, passage=passage_of(one.passage)) for one in drops if isinstance(one, Dropped)]


T = TypeVar("T")
Redact: TypeAlias = Callable[[str], str | None]
"""A function from a text to what may be kept of the text; None or '' keeps nothing."""

_OWN_KEYS = frozenset(
    f"{CALLER_ID} agent answer_content error framework interrupted langgraph_node lc_agent_name parent_run_id "
    "retriever session_id thread_id tool_call_id".split()
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
                return OneStepRun(self.run(event.run), self._record(RetrievalStep, event.step, []))
            case RunStarted():
                return RunStarted(
                    self.run(event.run), event.names._replace(caller_id=self.id(event.names.caller_id))
                )
            case StepEnded():
                return StepEnded(self._record(RetrievalStep, event.step, []), turn_open=event.turn_open)
            case StepAmended():
                query = self._queries.get(event.step_id, "")
                changed = self._changed(RetrievalStep, event, [query])
                return StepAmended(**changed, step_id=self.id(event.step_id))
            case RunEnded():
                return replace(event, run_id=self.id(event.run_id), **self._changed(Run, event, []))

    def run(self, run: Run) -> Run:
        """Returns the run as it may be written."""
        return self._record(Run, run, [])

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

    def _record(self, kind: type[T], record: T, quotable: list[str]) -> T:
        """Returns a copy of a record with every text changed that `schema` finds in its class; `quotable` are the texts
        around the record that its reasons and errors may quote."""
        if not isinstance(record, kind):
            raise TypeError
        if isinstance(record, RetrievalStep):
            quotable = [record.query]
            self._queries[record.id] = record.query
            if len(self._queries) > _QUERIES:
                self._queries.popitem(last=False)
        changed: T = replace(record, **self._changed(type(record), record, quotable))  # type: ignore[type-var]
        return changed

    def _changed(self, kind: type, source: object, quotable: list[str]) -> dict[str, Any]:
        """Returns the changed texts of a record, or of an event whose fields have the names and types of a record's."""
        changed: dict[str, Any] = {}
        # By identity of the value, so that one list that stands in two fields stays one list.
        values: dict[int, Any] = {}
        for name, described in text_fields(kind).items():
            if hasattr(source, name):
                value = getattr(source, name)
                if described is scalars.QUOTING:
                    changed[name] = value and self._quoting(value, *quotable, *_passages_of(source))
                    continue
                if id(value) not in values:
                    values[id(value)] = self._value(described, value, quotable)
                changed[name] = values[id(value)]
        return changed

    def _value(self, described: FieldType, value: Any, quotable: list[str]) -> Any:
        """Returns the value of a field as it may be written."""
        if value is None:
            return None
        if isinstance(described, RecordType):
            return self._record(described.kind, value, quotable)
        if isinstance(described, ListType):
            if isinstance(described.item, RecordType):
                return [self._value(described.item, item, quotable) for item in value]
            return self.texts(value)
        if described is scalars.MAPPING:
            kept = plain_metadata(value, METADATA, self._text, _OWN_KEYS) if value else {}
            return kept | {CALLER_ID: self.id(value[CALLER_ID])} if CALLER_ID in kept else kept
        return self.id(value) if described is scalars.ID else self._text(value)

    def _quoting(self, text: str, *quoted: str) -> str:
        """Returns a reason or an error without the texts that it may quote, whole, escaped or cut off."""
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


def _passages_of(record: object) -> list[str]:
    """Returns the texts of the passages that a guard's reason may quote."""
    if isinstance(record, Decision):
        return [passage.text for passage in record.kept[:_QUOTED]]
    return [record.passage.text] if isinstance(record, Dropped) else []


_log = logger("ragguard")

_PAUSES = RetrySchedule(first=0.1, longest=5.0)
"""The pauses between two attempts."""
_OUTAGE = (
    "%s. What is captured waits in memory, at most %s bytes, and is tried again every few seconds; beyond that the "
    "oldest is dropped, and what waits is lost if this process ends. Free the disk"
)


class PatientWriter:
    """Tries a batch again with pauses until the disk takes it; meanwhile the queue fills."""

    def __init__(self, store: Store, queue: EventQueue, most_bytes: int) -> None:
        self._store, self._queue, self._most_bytes = store, queue, most_bytes
        self.try_now = False
        """True where the disk is to be tried without a pause; whoever sets it wakes the queue."""
        self.ending = False
        """True once nothing is waited for any more."""

    def write(self, batch: EventBatch, waiting: Sequence[AwaitedEvent] = ()) -> dict[str, bool] | None:
        """Writes a batch; returns what `Store.write` does, or None where the disk takes nothing until the end.

        The callers that wait for their events return at the first failure: nothing can be confirmed to them.
        """
        failures = 0
        while True:
            self.try_now = False
            try:
                changed = self._store.write(batch)
            except StoreUnavailable as error:
                failures += 1
                if failures == 1:
                    self._store.count("outages")
                    _log.error(_OUTAGE, error, f"{self._most_bytes:,}")
                for awaited in waiting:
                    awaited.written.set()
                if self.ending and not self.try_now:
                    return None
                until = time.monotonic() + _PAUSES.wait(failures)
                while not self.try_now and (left := until - time.monotonic()) > 0:
                    self._queue.rest(left)
            else:
                if failures:
                    _log.warning("the disk takes what is captured again: what waited is written")
                return changed
