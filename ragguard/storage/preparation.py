"""The preparation of events for the disk, on the writer's thread.

Frameworks and users put any objects into fields: NumPy integers, None, objects of their own. What can be converted
without a loss is converted to the type that a store takes; a field that cannot is emptied, and the record's metadata
name it (`schema.fitted`).

Redaction is a user's function, applied to every text of a captured record before the record is written. It runs on the
writer's thread or where a run is scored on demand, never in a hook. Only redacted records are written, scored, sent to
sinks and reported. Which fields are texts is said by their annotations in `records.py`: a new field is redacted without
a change here.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias, TypeVar

from ragguard.capture.events import (
    CALLER_ID,
    EarlierStepsRead,
    Event,
    RunEnded,
    RunStarted,
    StepAmended,
    StepEnded,
)
from ragguard.capture.retrievals import WholeRun
from ragguard.records import Decision, Dropped, Failure, RetrievalStep, Run
from ragguard.runtime import scalars
from ragguard.runtime.faults import Faults
from ragguard.schema import FieldType, ListType, RecordType, fitted, record_type
from ragguard.text.plain import plain_metadata
from ragguard.text.secret_filter import without

LOST: Final = "ragguard.events_lost"
"""Metadata key of a run that says how many of its events were lost."""
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
    """Applies a function to every text of a record, ids, names, reasons and keys of metadata included; without a
    function, returns everything as it is.

    An id that the function changes becomes `redacted-` and a digest of the id: the same id always becomes the
    same one, and it does not show the text. Where the function fails, the text is dropped.
    """

    def __init__(self, redact: Redact | None, faults: Faults) -> None:
        self.redacts = redact is not None
        """True where texts are redacted."""
        self._redact: Callable[[str], object] = redact or (lambda text: text)
        self._faults = faults
        self._queries: OrderedDict[str, str] = OrderedDict()
        """The queries of the latest steps, by step id: a guard's reason may quote one and come after the step."""

    def prepared(
        self,
        items: Iterable[Event | WholeRun],
        lost: MutableMapping[str, int],
        count: Callable[[str], object],
    ) -> Iterator[Event]:
        """Yields events as they may be written; one that cannot be read or redacted is left out and counted. The end
        of a run takes out, and says, how many of the run's events were `lost`."""
        for item in items:
            try:
                if isinstance(item, RunEnded) and (number := lost.pop(item.run_id, 0)):
                    item = replace(item, metadata={**item.metadata, LOST: number})
                events = item.as_events() if isinstance(item, WholeRun) else (item,)
                ready = [self.event(event) for event in events]
            except BaseException as error:  # noqa: BLE001 - code of the user's may raise anything
                note = self._faults.note_without_text if self.redacts else self._faults.note
                note("an event", error)
                count("events_refused")
            else:
                yield from ready

    def event(self, event: Event) -> Event:
        """Returns the event as it may be written, with fields of their types; where nothing changes, the event
        itself."""
        match event:
            case StepEnded():
                step = self._record(fitted(event.step), [])
                return event if step is event.step else StepEnded(step)
            case RunStarted():
                if (run := self.run(fitted(event.run))) is event.run:
                    return event
                return RunStarted(run, event.names._replace(caller_id=self.id(event.names.caller_id)))
            case RunEnded():
                event = fitted(event)
                if not self.redacts:
                    return event
                return replace(event, run_id=self.id(event.run_id), **self._changed(Run, event, []))
            case EarlierStepsRead():
                if not self.redacts:
                    return event
                # Redacted texts cannot be found in what the models were given.
                return EarlierStepsRead(self.id(event.run_id), lambda steps: {})
            case StepAmended():
                event.decision = event.decision and fitted(event.decision)
                if not self.redacts:
                    return event
                query = self._queries.get(event.step_id, "")
                changed = self._changed(RetrievalStep, event, [query])
                return StepAmended(**changed, step_id=self.id(event.step_id), moved=event.moved)

    def run(self, run: Run) -> Run:
        """Returns the run as it may be written."""
        return self._record(run, [])

    def texts(self, texts: Sequence[str] | None) -> list[str] | None:
        """Returns the redacted texts, without the empty ones."""
        return None if texts is None else [kept for kept in map(self._text, texts) if kept]

    def failures(self, failures: Iterable[Failure]) -> list[Failure]:
        """Returns failures with redacted messages, since these may quote questions."""
        nothing = "redact= left nothing of this message, or failed on it"
        return [
            replace(one, message=self._text(one.message) or (one.message and nothing)) for one in failures
        ]

    def id(self, id: str) -> str:
        """Returns the id under which a record with the given id is kept."""
        if not isinstance(id, str) or not id or _GENERATED.fullmatch(id) or self._text(id) == id:
            return id
        return f"redacted-{hashlib.sha256(id.encode('utf-8', 'replace')).hexdigest()[:16]}"

    def _record(self, record: T, quotable: list[str]) -> T:
        """Returns a copy of a record with every text changed that `schema` finds in its class; `quotable` are the texts
        around the record that its reasons and errors may quote. Without a function, returns the record itself."""
        if not self.redacts:
            return record
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
        for name, described in record_type(kind).texts.items():
            if not hasattr(source, name):
                continue
            value = getattr(source, name)
            if described is scalars.QUOTING:
                changed[name] = value and self._quoting(value, *quotable, *_passages_of(source))
            elif id(value) in values:
                changed[name] = values[id(value)]
            else:
                changed[name] = values[id(value)] = self._value(described, value, quotable)
        return changed

    def _value(self, described: FieldType, value: Any, quotable: list[str]) -> Any:
        """Returns the value of a field as it may be written."""
        if value is None:
            return None
        if isinstance(described, RecordType):
            return self._record(value, quotable)
        if isinstance(described, ListType):
            if isinstance(described.item, RecordType):
                return [self._value(described.item, item, quotable) for item in value]
            return self.texts(value)
        if described is scalars.MAPPING:
            kept = plain_metadata(value, self._text, _OWN_KEYS) if value else {}
            return kept | {CALLER_ID: self.id(value[CALLER_ID])} if CALLER_ID in kept else kept
        return self.id(value) if described is scalars.ID else self._text(value)

    def _quoting(self, text: str, *quoted: str) -> str:
        """Returns a reason or an error without the texts that it may quote, whole, escaped or cut off."""
        secrets = [one for one in quoted if len(one) >= _SHORTEST_QUOTE and self._text(one) != one]
        return without(self._text(text), secrets)

    def _text(self, text: str) -> str:
        """Returns what is kept of a text: nothing where the function fails or returns something else."""
        if not text:
            return text
        try:
            kept = self._redact(text)
            if kept is not None and not isinstance(kept, str):
                raise TypeError(f"redact= returned {type(kept).__name__} instead of a text or None")
        except BaseException as error:  # noqa: BLE001 - the user's function; what it fails on is not written
            self._faults.note_without_text("redact", error)
            return ""
        return kept or ""


def _passages_of(record: object) -> list[str]:
    """Returns the texts of the passages that a guard's reason may quote."""
    if isinstance(record, Decision):
        return [passage.text for passage in record.kept[:_QUOTED]]
    return [record.passage.text] if isinstance(record, Dropped) else []
