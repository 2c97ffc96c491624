"""Converts records to rows and back. Knows the shape of the columns, and no SQL.

The texts of passages do not stand in the rows: a row holds each distinct passage once, under
the digest of its text (`passage_table`), and lists of passages are lists of positions among those.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from hashlib import sha256
from sqlite3 import Row
from typing import Any, Final, NamedTuple, TypeAlias

from ragguard.capture.events import RunEnded, StepAmended
from ragguard.records import (
    Advice,
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
from ragguard.schema import data_of_fields, other_fields, read_fields
from ragguard.storage.sqlite.passages import MORE_OF_PASSAGE, PassageTable
from ragguard.storage.sqlite.schema import DIGEST_BYTES, Data, dump, storable
from ragguard.text.plain import plain_metadata

Texts: TypeAlias = Mapping[str, str]
"""Texts by their digests in hexadecimal digits."""


_RUN_FIELDS = (
    "id question references answer steps status metadata sub_questions pool name started_ns ended_ns trace"
)
_STEP_FIELDS = (
    "id run_id index turn query passages candidates started_ns ended_ns status tool sub_steps error decision trace "
    "metadata k advice"
)
_MORE_OF_RUN: Final = other_fields(Run, *_RUN_FIELDS.split())
_MORE_OF_STEP: Final = other_fields(RetrievalStep, *_STEP_FIELDS.split())
"""The fields that have neither a column nor a form of their own in the body: the schema writes and reads them."""


def run_data(run: Run, table: PassageTable) -> Data:
    """Returns the values of a run that have no column of their own."""
    body = data_of_fields(run, _MORE_OF_RUN)
    if run.references is not None:
        body["references"] = list(run.references)
    if run.sub_questions is not None:
        body["sub_questions"] = list(run.sub_questions)
    if run.pool is not None:
        body["pool"] = table.positions_of(run.pool)
    if run.metadata:
        body["metadata"] = plain_metadata(run.metadata)
    if run.trace is not None:
        body["trace"] = trace_body(run.trace)
    return body


def add_end(body: Data, end: RunEnded, table: PassageTable, part: int = 0) -> None:
    """Adds the values of the end of a run, or of a later part of it, to the body."""
    if end.references is not None:
        body["references"] = end.references
    if end.sub_questions is not None:
        body["sub_questions"] = end.sub_questions
    if end.pool is not None:
        body["pool"] = table.positions_of(end.pool)
    if end.metadata:
        known = body.get("metadata", {})
        body["metadata"] = {**known, **plain_metadata(end.metadata)}
        if part and "question_source" not in known:  # that of its beginning stays
            body["metadata"].pop("question_source", None)
    if end.trace is not None:
        body["trace"] = trace_body(end.trace)


def run_of(row: Row, body: Data, texts: Texts) -> Run:
    """Returns the run of a row, without its steps."""
    items = _items(body, texts)
    pool = body.get("pool")
    run = Run(
        row["id"], row["question"], body.get("references"), row["answer"], steps=[], status=row["status"],
        metadata=body.get("metadata", {}), sub_questions=body.get("sub_questions"),
        pool=None if pool is None else [items[position] for position in pool], name=row["name"],
        started_ns=row["started_ns"], ended_ns=row["ended_ns"], trace=_trace_of(body.get("trace")),
    )  # fmt: skip
    return replace(run, **read_fields(Run, body, _MORE_OF_RUN)) if _MORE_OF_RUN else run


STEP_COLUMNS: Final = (
    "id", "idx", "turn", "query", "status", "tool", "started_ns", "ended_ns", "body", "k",
)  # fmt: skip


class StepRow(NamedTuple):
    """A row of the table `steps`, with the ids that it is found by and the texts that it needs."""

    run_id: str
    id: str
    columns: tuple[Any, ...]
    """The values of `STEP_COLUMNS`."""
    digests: tuple[bytes, ...]
    """The digests of the texts that the row needs, one for each distinct passage."""
    turn_open: bool = False
    """True while other steps of its turn are still open."""


def step_row(step: RetrievalStep, texts: dict[bytes, str]) -> StepRow:
    """Returns the row of a step; adds the texts that it needs to `texts`, under their digests."""
    table = PassageTable(texts)
    body = table.body(_step_data(step, table))
    columns = (
        storable(step.id), step.index, step.turn, storable(step.query), step.status, storable(step.tool),
        step.started_ns, step.ended_ns, body, step.k,
    )  # fmt: skip
    return StepRow(step.run_id, step.id, columns, tuple(table.digests))


def _step_data(step: RetrievalStep, table: PassageTable) -> Data:
    """Returns the values of a step that have no column of their own."""
    passages = table.positions_of(step.passages)
    candidates = passages if step.candidates is step.passages else table.positions_of(step.candidates)
    body: Data = {"passages": passages, **data_of_fields(step, _MORE_OF_STEP)}
    if candidates != passages:
        body["candidates"] = candidates
    if step.sub_steps:
        body["sub_steps"] = [_sub_step(sub, table.positions_of) for sub in step.sub_steps]
    if step.decision is not None:
        body["decision"] = _decision(step.decision, table.position_of)
    if step.advice is not None:
        body["advice"] = _advice(step.advice)
    if step.error:
        body["error"] = step.error
    if step.trace is not None:
        body["trace"] = trace_body(step.trace)
    if step.metadata:
        body["metadata"] = plain_metadata(step.metadata)
    return body


def amend(body: Data, event: StepAmended, table: PassageTable, k: int | None) -> int | None:
    """Adds to a step's body the passages that the model really got; returns the step's K."""
    k = event.k(k, len(body["passages"]), len(body.get("decision", {}).get("dropped", ())))
    if event.passages is not None:
        body.setdefault("candidates", body["passages"])
        body["passages"] = table.positions_of(event.passages)
    if event.decision is not None:
        body["decision"] = _decision(event.decision, table.position_of)
    if event.advice is not None:
        body["advice"] = _advice(event.advice)
    if event.metadata:
        body["metadata"] = {**body.get("metadata", {}), **event.metadata}
    if event.error is not None:
        body["error"] = event.error
    return k


def step_of(row: Row, body: Data, run_id: str, texts: Texts) -> RetrievalStep:
    """Returns the step of a row."""
    items = _items(body, texts)
    passages = [items[position] for position in body["passages"]]
    candidates = body.get("candidates")
    decision = body.get("decision")
    step = RetrievalStep(
        row["id"], run_id, row["idx"], row["turn"], query=row["query"], passages=passages,
        candidates=list(passages) if candidates is None else [items[position] for position in candidates],
        started_ns=row["started_ns"], ended_ns=row["ended_ns"], status=row["status"], tool=row["tool"],
        sub_steps=[_sub_step_of(sub, items) for sub in body.get("sub_steps", ())],
        error=body.get("error", ""), decision=None if decision is None else _decision_of(decision, items),
        trace=_trace_of(body.get("trace")), metadata=body.get("metadata", {}), k=row["k"],
        advice=None if "advice" not in body else _advice_of(body["advice"]),
    )  # fmt: skip
    return replace(step, **read_fields(RetrievalStep, body, _MORE_OF_STEP)) if _MORE_OF_STEP else step


def _items(body: Data, texts: Texts) -> list[Passage]:
    items = [
        Passage(texts.get(row[0], ""), row[1], row[2], row[3] or {}, grade=row[4])
        for row in body.get("items", ())
    ]
    if MORE_OF_PASSAGE:
        for position, row in enumerate(body.get("items", ())):
            more = read_fields(Passage, row[5] if len(row) > 5 else {}, MORE_OF_PASSAGE)
            items[position] = replace(items[position], **more)
    return items


def _sub_step(sub: SubStep, positions_of: Callable[[Iterable[Passage]], list[int]]) -> list[Any]:
    return [sub.query, positions_of(sub.passages), sub.name, sub.started_ns, sub.ended_ns, sub.status]


def _sub_step_of(data: list[Any], items: Sequence[Passage]) -> SubStep:
    query, positions, name, started_ns, ended_ns, status = data
    return SubStep(
        query, [items[position] for position in positions], name, started_ns, ended_ns=ended_ns, status=status
    )


def _decision(decision: Decision, position_of: Callable[[Passage], int]) -> Data:
    def rows(dropped: Iterable[Dropped]) -> list[list[Any]]:
        return [
            [position_of(one.passage), one.position, one.reason, one.utility, one.p_abstain, one.p_relevant]
            for one in dropped
        ]

    return {
        "kept": [position_of(passage) for passage in decision.kept],
        "dropped": rows(decision.dropped),
        **({"would_drop": rows(decision.would_drop)} if decision.would_drop else {}),
        "status": decision.status,
        "elapsed_ms": decision.elapsed_ms,
        "reason": decision.reason,
        "engine": decision.engine,
        "started_ns": decision.started_ns,
    }


def _decision_of(data: Data, items: Sequence[Passage]) -> Decision:
    return Decision(
        [items[position] for position in data["kept"]],
        [Dropped(items[position], *rest) for position, *rest in data["dropped"]],
        data["status"], data["elapsed_ms"], reason=data["reason"], engine=data["engine"], started_ns=data["started_ns"],
        would_drop=[Dropped(items[position], *rest) for position, *rest in data.get("would_drop", ())],
    )  # fmt: skip


def _advice(advice: Advice) -> Data:
    numbers = {storable(name): value for name, value in advice.numbers.items()}
    return asdict(replace(advice, numbers=numbers)) | {"usage": usage_text(advice.usage)}


def _advice_of(data: Data) -> Advice:
    return Advice(**data | {"usage": usage_of(data.get("usage") or "")})


def trace_body(trace: TraceContext) -> list[Any]:
    """Returns a trace context as JSON data."""
    return [trace.trace_id, trace.span_id, trace.sampled, trace.foreign]


def _trace_of(data: list[Any] | None) -> TraceContext | None:
    return None if data is None else TraceContext(*data)


def key_of(score: Score) -> bytes:
    """Returns the key of a score, in 16 bytes."""
    return sha256(dump(list(score.key)).encode("utf-8")).digest()[:DIGEST_BYTES]


def usage_text(usage: Usage) -> str:
    """Returns a usage as the text of one column; an empty one for no usage."""
    counts = [
        usage.requests, usage.prompts, usage.prompt_tokens, usage.output_tokens, usage.seconds, usage.cached,
    ]  # fmt: skip
    return dump(counts) if any(counts) else ""


Origin: TypeAlias = tuple[Any, ...]
"""The values that many scores share: reference_source, engine, prompts, scorer, version, references_hash."""


def score_of(row: Sequence[Any], run_id: str, origin: Origin) -> Score:
    """Returns the score of a row and its origin; `reading` has the order of the columns."""
    (
        _, _, name, value, level, step_id, passage_id, position, stderr, label, explanation, usage,
        sub_question, expectation, metadata, stage, _,
    ) = row  # fmt: skip
    reference_source, engine, prompts, scorer, version, references_hash = origin
    return Score(
        name, value, level, run_id, step_id=step_id, passage_id=passage_id, position=position,
        stderr=stderr, label=label, explanation=explanation, reference_source=reference_source,
        engine=engine, prompts=prompts, usage=usage_of(usage), scorer=scorer,
        version=version, references_hash=references_hash, sub_question=sub_question,
        expectation=expectation, metadata=json.loads(metadata) if metadata else {}, stage=stage,
    )  # fmt: skip


@lru_cache(maxsize=1024)
def usage_of(written: str) -> Usage:
    """Returns the usage that `usage_text` wrote; cached, since many scores share theirs."""
    return Usage(*json.loads(written)) if written else Usage()


def failure_of(row: Row, run_id: str) -> Failure:
    """Returns the failure of a row."""
    return Failure(
        row["scorer"], row["error"], row["message"], bool(row["will_retry"]), run_id=run_id, step_id=row["step_id"],
        attempts=row["attempts"], occurred_ns=row["occurred_ns"],
    )  # fmt: skip
