"""Records as rows and back. Knows the shape of the columns, and no SQL.

The texts of passages do not stand in the rows: a row holds each distinct passage once, under
the digest of its text, and lists of passages are lists of positions among those.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeAlias

from ragguard.events import RunEnded, StepAmended
from ragguard.plain import plain, plain_metadata
from ragguard.records import (
    Decision,
    Dropped,
    Failure,
    Passage,
    RetrievalStep,
    Run,
    Score,
    SubStep,
    TraceContext,
    Usage,
)

if TYPE_CHECKING:
    from sqlite3 import Row

DIGEST_BYTES = 16

Data: TypeAlias = dict[str, Any]
Texts: TypeAlias = Mapping[str, str]
"""Digest, in hexadecimal digits → text."""


class Digests:
    """The digests of texts, with those of texts that came lately: a corpus in memory gives the same objects again.

    Texts are known by their addresses. To look for equal ones would cost new texts half as much as their digests do.
    """

    def __init__(self, characters: int) -> None:
        """Keeps texts of so many characters at most, in all."""
        self._limit, self._left = characters, characters
        self.known: dict[int, tuple[bytes, str]] = {}
        """Address of a text → its digest; and the text, so that nothing else comes to its address."""

    def of(self, text: str) -> tuple[bytes, str]:
        """The digest of a text, and the text as a file can hold it."""
        try:
            written = text.encode()
        except UnicodeEncodeError:
            text = storable(text)
            return sha256(text.encode()).digest()[:DIGEST_BYTES], text
        digest = sha256(written).digest()[:DIGEST_BYTES]
        self._left -= len(written)
        if self._left < 0:
            self.known, self._left = {}, self._limit - len(written)
        if self._left >= 0:
            self.known[id(text)] = digest, text
        return digest, text


_DIGESTS = Digests(4 * 2**20)


class PassageTable:
    """The passages of one row: each distinct one once, its text apart."""

    def __init__(self, items: Iterable[list[Any]] = ()) -> None:
        """`items` are those that the row has already; their texts are in the store."""
        self.items: list[list[Any]] = list(items)
        self.digests: list[bytes] = []
        """Of the texts of new items, one an item."""
        self.texts: dict[bytes, str] = {}
        """Digest → text; of new items."""
        self._places: dict[int, int] = {}
        """Address of a passage → its place."""
        self._first: dict[tuple[bytes, str], int] = {}
        """Digest and id → the first place that has both."""
        self._held: list[Passage] = []
        """Keeps alive what `_places` knows by its address."""
        for place, (digest, id, *_) in enumerate(self.items):
            self._first.setdefault((bytes.fromhex(digest), id), place)

    def put(self, passage: Passage) -> int:
        """The place of the passage among the items."""
        return self.put_all((passage,))[0]

    def put_alike(self, passage: Passage) -> list[int]:
        """The places of the passage and of others with its text and id."""
        same = self.items[self.put(passage)][:2]
        return [place for place, item in enumerate(self.items) if item[:2] == same]

    def put_all(self, passages: Iterable[Passage]) -> list[int]:
        """The place of each of them."""
        known, held = self._places, self._held
        places = []
        for passage in passages:
            address = id(passage)
            place = known.get(address)
            if place is None:
                place = known[address] = self._find(passage)
                held.append(passage)
            places.append(place)
        return places

    def _find(self, passage: Passage) -> int:
        # Hundreds of thousands of passages come this way in a minute: as few steps as will do.
        text, metadata = passage.text, passage.metadata
        known = _DIGESTS.known.get(id(text))
        if known is None:
            known = _DIGESTS.of(text)
        digest, text = known
        item = [
            digest.hex(), passage.id, passage.score, (plain_metadata(metadata) or None) if metadata else None,
            passage.grade,
        ]  # fmt: skip
        items = self.items
        place = len(items)
        first = self._first.setdefault((digest, passage.id), place)
        if first != place:
            with suppress(ValueError):
                return items.index(item, first)
        items.append(item)
        self.digests.append(digest)
        self.texts[digest] = text
        return place


def storable(value: object) -> str:
    """A text without halves of surrogate pairs, which no file can hold as UTF-8; of a number (an id) its digits."""
    text = value if isinstance(value, str) else str(value)
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode("utf-8")


def maybe(text: str | None) -> str | None:
    """A text as a file can hold it, if there is one."""
    return None if text is None else storable(text)


def dump(value: object) -> str:
    """JSON of anything: what JSON does not know is written as its text, a NaN as null."""
    try:
        return _ENCODE(value)
    except (TypeError, ValueError, RecursionError):
        return _ENCODE(plain(value))


_ENCODE = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode


# Runs and steps


def run_body(run: Run, table: PassageTable) -> str:
    """What of a run has no column of its own, as JSON."""
    return dump(run_data(run, table))


def run_data(run: Run, table: PassageTable) -> Data:
    """What of a run has no column of its own."""
    body: Data = {}
    if run.references is not None:
        body["references"] = list(run.references)
    if run.sub_questions is not None:
        body["sub_questions"] = list(run.sub_questions)
    if run.pool is not None:
        body["pool"] = table.put_all(run.pool)
    if run.metadata:
        body["metadata"] = plain_metadata(run.metadata)
    if run.trace is not None:
        body["trace"] = trace_body(run.trace)
    if table.items:
        body["items"] = table.items
    return body


def add_end(body: Data, end: RunEnded, part: int = 0) -> PassageTable | None:
    """Adds what a run's end says to what has no column of its own; returns the passages of its pool, if it names one.

    `part` is how many times the run was continued."""
    if end.references is not None:
        body["references"] = end.references
    if end.sub_questions is not None:
        body["sub_questions"] = end.sub_questions
    if end.metadata:
        known = body.get("metadata", {})
        body["metadata"] = {**known, **plain_metadata(end.metadata)}
        if part and "question_source" not in known:  # the question is that of the first part
            body["metadata"].pop("question_source", None)
    if end.trace is not None:
        body["trace"] = trace_body(end.trace)
    if end.pool is None:
        return None
    table = PassageTable(body.get("items", ()))
    body["pool"] = table.put_all(end.pool)
    body["items"] = table.items
    return table


def run_of(row: Row, body: Data, texts: Texts) -> Run:
    """The run of a row, without its steps."""
    items = _items(body, texts)
    pool = body.get("pool")
    return Run(
        row["id"],
        row["question"],
        body.get("references"),
        row["answer"],
        [],
        row["status"],
        body.get("metadata", {}),
        body.get("sub_questions"),
        None if pool is None else [items[place] for place in pool],
        row["name"],
        row["started_ns"],
        row["ended_ns"],
        _trace_of(body.get("trace")),
    )


def step_columns(step: RetrievalStep, table: PassageTable) -> tuple[Any, ...]:
    """A step's row, without its run."""
    return (
        storable(step.id), step.index, step.turn, storable(step.query), step.status,
        storable(step.tool), step.started_ns, step.ended_ns, step_body(step, table), step.k,
    )  # fmt: skip


def step_body(step: RetrievalStep, table: PassageTable) -> str:
    """What of a step has no column of its own."""
    passages = table.put_all(step.passages)
    candidates = passages if step.candidates is step.passages else table.put_all(step.candidates)
    body: Data = {"passages": passages}
    if candidates != passages:
        body["candidates"] = candidates
    if step.sub_steps:
        body["sub_steps"] = [_sub_step(sub, table.put_all) for sub in step.sub_steps]
    if step.decision is not None:
        body["decision"] = _decision(step.decision, table.put)
    if step.error:
        body["error"] = step.error
    if step.trace is not None:
        body["trace"] = trace_body(step.trace)
    if step.metadata:
        body["metadata"] = plain_metadata(step.metadata)
    if table.items:
        body["items"] = table.items
    return dump(body)


def amended_body(body: Data, event: StepAmended, k: int | None) -> tuple[str, PassageTable, int | None]:
    """Returns a step's body, its new passages and its K after it became known what the model really got. Of what was
    retrieved only texts change, to what the model reads of them."""
    table = PassageTable(body.get("items", ()))
    k = event.k(k, len(body["passages"]), len(body.get("decision", {}).get("dropped", ())))
    if event.passages is not None:
        body.setdefault("candidates", body["passages"])
        body["passages"] = table.put_all(event.passages)
    if event.read_as:
        read = {
            place: table.put(after) for before, after in event.read_as for place in table.put_alike(before)
        }
        retrieved = body["candidates"] if "candidates" in body else body["passages"]
        body["candidates"] = [read.get(place, place) for place in retrieved]
    if event.decision is not None:
        body["decision"] = _decision(event.decision, table.put)
    if event.metadata:
        body["metadata"] = {**body.get("metadata", {}), **event.metadata}
    if event.error is not None:
        body["error"] = event.error
    if table.items:
        body["items"] = table.items
    return dump(body), table, k


def step_of(row: Row, body: Data, run_id: str, texts: Texts) -> RetrievalStep:
    """The step of a row."""
    items = _items(body, texts)
    passages = [items[place] for place in body["passages"]]
    candidates = body.get("candidates")
    decision = body.get("decision")
    return RetrievalStep(
        row["id"],
        run_id,
        row["idx"],
        row["turn"],
        row["query"],
        passages,
        list(passages) if candidates is None else [items[place] for place in candidates],
        row["started_ns"],
        row["ended_ns"],
        row["status"],
        row["tool"],
        [_sub_step_of(sub, items) for sub in body.get("sub_steps", ())],
        body.get("error", ""),
        None if decision is None else _decision_of(decision, items),
        _trace_of(body.get("trace")),
        body.get("metadata", {}),
        row["k"],
    )


def digests_in(body: Data) -> list[bytes]:
    """The texts a body needs, one for each distinct passage."""
    return [bytes.fromhex(item[0]) for item in body.get("items", ())]


def _items(body: Data, texts: Texts) -> list[Passage]:
    return [
        Passage(texts.get(digest, ""), id, score, metadata or {}, grade)
        for digest, id, score, metadata, grade in body.get("items", ())
    ]


def _sub_step(sub: SubStep, put: Callable[[Iterable[Passage]], list[int]]) -> list[Any]:
    return [sub.query, put(sub.passages), sub.name, sub.started_ns, sub.ended_ns, sub.status]


def _sub_step_of(data: list[Any], items: Sequence[Passage]) -> SubStep:
    query, places, name, started_ns, ended_ns, status = data
    return SubStep(query, [items[place] for place in places], name, started_ns, ended_ns, status)


def _decision(decision: Decision, put: Callable[[Passage], int]) -> Data:
    return {
        "kept": [put(passage) for passage in decision.kept],
        "dropped": [
            [put(one.passage), one.position, one.reason, one.utility, one.p_abstain, one.p_relevant]
            for one in decision.dropped
        ],
        "status": decision.status,
        "elapsed_ms": decision.elapsed_ms,
        "reason": decision.reason,
        "engine": decision.engine,
        "started_ns": decision.started_ns,
    }


def _decision_of(data: Data, items: Sequence[Passage]) -> Decision:
    return Decision(
        [items[place] for place in data["kept"]],
        [Dropped(items[place], *rest) for place, *rest in data["dropped"]],
        data["status"],
        data["elapsed_ms"],
        data["reason"],
        data["engine"],
        data["started_ns"],
    )


def trace_body(trace: TraceContext) -> list[Any]:
    """Where a run or a step stands in a trace."""
    return [trace.trace_id, trace.span_id, trace.sampled, trace.foreign]


def _trace_of(data: list[Any] | None) -> TraceContext | None:
    return None if data is None else TraceContext(*data)


# Scores and failures


def key_of(score: Score) -> bytes:
    """The key of a score, in 16 bytes."""
    return sha256(dump(list(score.key)).encode("utf-8")).digest()[:DIGEST_BYTES]


def usage_text(usage: Usage) -> str:
    """A usage in one column; nothing for none."""
    counts = [
        usage.requests,
        usage.prompts,
        usage.prompt_tokens,
        usage.output_tokens,
        usage.seconds,
        usage.cached,
    ]
    return dump(counts) if any(counts) else ""


Origin: TypeAlias = tuple[Any, ...]
"""What many scores share: reference_source, engine, prompts, scorer, version, references_hash."""


def score_of(row: Sequence[Any], run_id: str, origin: Origin) -> Score:
    """The score of a row and its origin; see `reading` for the order of the columns."""
    (
        _, _, name, value, level, step_id, passage_id, position, stderr, label, explanation, usage,
        sub_question, expectation, metadata, stage, _,
    ) = row  # fmt: skip
    reference_source, engine, prompts, scorer, version, references_hash = origin
    return Score(
        name, value, level, run_id, step_id, passage_id, position, stderr, label, explanation, reference_source,
        engine, prompts, usage_of(usage) if usage else _NO_USAGE, scorer, version, references_hash,
        sub_question, expectation, json.loads(metadata) if metadata else {}, stage,
    )  # fmt: skip


_NO_USAGE = Usage()


@lru_cache(maxsize=1024)
def usage_of(written: str) -> Usage:
    """Usage from its column; many scores of a batch share theirs."""
    return Usage(*json.loads(written))


def failure_of(row: Row, run_id: str) -> Failure:
    """The failure of a row."""
    return Failure(
        row["scorer"],
        row["error"],
        row["message"],
        bool(row["will_retry"]),
        run_id,
        row["step_id"],
        row["attempts"],
        row["occurred_ns"],
    )
