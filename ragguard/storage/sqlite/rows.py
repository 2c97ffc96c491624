"""Runs, steps, scores and failures as rows: made of records, and read back, inside the caller's transaction.

What has no column of its own stands in a row's body, as JSON, in the forms of one table for writing and reading. The
texts of passages do not stand in the rows: a body holds each distinct passage once, under the digest of its text, and
lists of passages are lists of positions among those.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from operator import attrgetter
from sqlite3 import Row
from typing import Any, Final, NamedTuple, TypeAlias

from ragguard.capture.events import StepAmended
from ragguard.facts.leads import with_leads
from ragguard.records import (
    Advice,
    Decision,
    Dropped,
    Failure,
    Passage,
    RetrievalStep,
    Run,
    Score,
    ScoredRun,
    SubStep,
    TraceContext,
    Usage,
)
from ragguard.schema import data_of, other_fields, read_fields
from ragguard.storage.sqlite.passages import MORE_OF_PASSAGE, PassageTable, digests_in
from ragguard.storage.sqlite.schema import Data, dump, storable
from ragguard.text.plain import plain_metadata

Texts: TypeAlias = Mapping[str, str]
"""Texts by their digests in hexadecimal digits."""
Items: TypeAlias = Sequence[Passage]
"""The distinct passages of a row."""


class Form(NamedTuple):
    """How a field stands in a body."""

    write: Callable[[PassageTable, Any], Any]
    read: Callable[[Any, Items], Any] = lambda data, _: data
    keeps_empty: bool = False
    """True where an empty value says something else than none."""


def usage_text(usage: Usage) -> str:
    """Returns a usage as the text of one column; an empty one for no usage."""
    counts = [
        usage.requests, usage.prompts, usage.prompt_tokens, usage.output_tokens, usage.seconds, usage.cached,
    ]  # fmt: skip
    return dump(counts) if any(counts) else ""


@lru_cache(maxsize=1024)
def usage_of(written: str) -> Usage:
    """Returns the usage that `usage_text` wrote; cached, since many scores share theirs."""
    return Usage(*json.loads(written)) if written else Usage()


def _passages_at(positions: Iterable[int], items: Items) -> list[Passage]:
    return [items[position] for position in positions]


def _sub_steps(table: PassageTable, subs: Iterable[SubStep]) -> list[Any]:
    return [
        [sub.query, table.positions_of(sub.passages), sub.name, sub.started_ns, sub.ended_ns, sub.status]
        for sub in subs
    ]


def _sub_step_of(data: Sequence[Any], items: Items) -> SubStep:
    query, positions, name, started_ns, ended_ns, status = data
    passages = _passages_at(positions, items)
    return SubStep(query, passages, name, started_ns, ended_ns=ended_ns, status=status)


_dropped_values = attrgetter("position", "reason", "utility", "p_abstain", "p_relevant")
_DECISION_VALUES: Final = ("status", "elapsed_ms", "reason", "engine", "started_ns")


def _decision(table: PassageTable, decision: Decision) -> Data:
    def rows(dropped: Iterable[Dropped]) -> list[list[Any]]:
        return [[*table.positions_of([one.passage]), *_dropped_values(one)] for one in dropped]

    lists: Data = {"kept": table.positions_of(decision.kept), "dropped": rows(decision.dropped)}
    if decision.would_drop:
        lists["would_drop"] = rows(decision.would_drop)
    return lists | {name: getattr(decision, name) for name in _DECISION_VALUES}


def _decision_of(data: Data, items: Items) -> Decision:
    def dropped(name: str) -> list[Dropped]:
        return [Dropped(items[position], *rest) for position, *rest in data.get(name, ())]

    lists = {"dropped": dropped("dropped"), "would_drop": dropped("would_drop")}
    return Decision(**data | lists | {"kept": _passages_at(data["kept"], items)})


def _advice(_: PassageTable, advice: Advice) -> Data:
    numbers = {storable(name): value for name, value in advice.numbers.items()}
    return asdict(replace(advice, numbers=numbers)) | {"usage": usage_text(advice.usage)}


_LIST = Form(lambda _, value: list(value), keeps_empty=True)
_PASSAGES = Form(PassageTable.positions_of, _passages_at, keeps_empty=True)
_METADATA = Form(lambda _, value: plain_metadata(value))
_TRACE = Form(
    lambda _, trace: [trace.trace_id, trace.span_id, trace.sampled, trace.foreign],
    lambda data, _: TraceContext(*data),
)
RUN_FORMS: Final = {
    "references": _LIST, "sub_questions": _LIST, "pool": _PASSAGES, "metadata": _METADATA, "trace": _TRACE,
}  # fmt: skip
_STEP_FORMS: Final = {
    "passages": _PASSAGES,
    "candidates": _PASSAGES,
    "sub_steps": Form(_sub_steps, lambda data, items: [_sub_step_of(sub, items) for sub in data]),
    "decision": Form(_decision, _decision_of),
    "advice": Form(_advice, lambda data, _: Advice(**data | {"usage": usage_of(data.get("usage") or "")})),
    "error": Form(lambda _, value: value),
    "trace": _TRACE,
    "metadata": _METADATA,
}
_WHOLE_STEP_FORMS: Final = {name: form for name, form in _STEP_FORMS.items() if name != "candidates"}
STEP_COLUMNS: Final = (
    "id", "idx", "turn", "query", "status", "tool", "started_ns", "ended_ns", "body", "k",
)  # fmt: skip
# The fields that have neither a column nor a form: the schema writes and reads them.
MORE_OF_RUN: Final = other_fields(
    Run, *RUN_FORMS, "id", "name", "question", "answer", "steps", "status", "started_ns", "ended_ns"
)
_MORE_OF_STEP: Final = other_fields(RetrievalStep, *_STEP_FORMS, *STEP_COLUMNS, "run_id", "index")


def take(body: Data, record: object, forms: Mapping[str, Form], table: PassageTable) -> None:
    """Puts the values that a record has into a body; its metadata are added to those that are there."""
    for name, form in forms.items():
        value = getattr(record, name, None)
        if value or (value is not None and form.keeps_empty):
            written = form.write(table, value)
            body[name] = {**body[name], **written} if name == "metadata" and name in body else written


def _read(body: Data, forms: Mapping[str, Form], items: Items) -> Data:
    return {name: form.read(body[name], items) for name, form in forms.items() if name in body}


def run_of(row: Row, body: Data, texts: Texts) -> Run:
    """Returns the run of a row, without its steps."""
    values = _read(body, RUN_FORMS, _items(body, texts)) | read_fields(Run, body, MORE_OF_RUN)
    return Run(
        row["id"], row["question"], answer=row["answer"], status=row["status"], name=row["name"],
        started_ns=row["started_ns"], ended_ns=row["ended_ns"], **values,
    )  # fmt: skip


class StepRow(NamedTuple):
    """A row of the table `steps`, with the run that it is found by and the texts that it needs."""

    run_id: str
    columns: tuple[Any, ...]
    """The values of `STEP_COLUMNS`."""
    digests: tuple[bytes, ...]
    """The digests of the texts that the row needs, one for each distinct passage."""


def step_row(step: RetrievalStep, texts: dict[bytes, str]) -> StepRow:
    """Returns the row of a step; adds the texts that it needs to `texts`, under their digests."""
    table = PassageTable(texts)
    body: Data = {}
    take(body, step, _STEP_FORMS if step.candidates is not step.passages else _WHOLE_STEP_FORMS, table)
    if "candidates" in body and body["candidates"] == body["passages"]:
        del body["candidates"]
    if _MORE_OF_STEP:
        body |= data_of(step, _MORE_OF_STEP)
    columns = (
        storable(step.id), step.index, step.turn, storable(step.query), step.status, storable(step.tool),
        step.started_ns, step.ended_ns, dump(table.within(body)), step.k,
    )  # fmt: skip
    return StepRow(step.run_id, columns, tuple(table.digests))


def amend(body: Data, event: StepAmended, table: PassageTable, k: int | None) -> int | None:
    """Adds to a step's body the passages that the model really got; returns the step's K."""
    k = event.k(k, len(body["passages"]), len(body.get("decision", {}).get("dropped", ())))
    if event.passages is not None:
        body.setdefault("candidates", body["passages"])
    take(body, event, _STEP_FORMS, table)
    return k


def step_of(row: Row, body: Data, run_id: str, texts: Texts) -> RetrievalStep:
    """Returns the step of a row."""
    values = _read(body, _STEP_FORMS, _items(body, texts)) | read_fields(RetrievalStep, body, _MORE_OF_STEP)
    values.setdefault("candidates", list(values["passages"]))
    return RetrievalStep(
        row["id"], run_id, row["idx"], row["turn"], query=row["query"], started_ns=row["started_ns"],
        ended_ns=row["ended_ns"], status=row["status"], tool=row["tool"], k=row["k"], **values,
    )  # fmt: skip


def _items(body: Data, texts: Texts) -> list[Passage]:
    rows = body.get("items", ())
    items = [
        Passage(texts.get(digest, ""), id=id, score=score, metadata=metadata or {}, grade=grade)
        for digest, id, score, metadata, grade, *_ in rows
    ]
    if MORE_OF_PASSAGE:
        more = [read_fields(Passage, row[5] if len(row) > 5 else {}, MORE_OF_PASSAGE) for row in rows]
        items = [replace(item, **fields) for item, fields in zip(items, more, strict=True)]
    return items


_MOST_PARAMETERS = 500

Origin: TypeAlias = tuple[Any, ...]
"""The values that many scores share: reference_source, engine, prompts, scorer, version, references_hash."""

# `_score_of` reads the columns in this order. What many scores share, their origin, is read once and not joined.
_SCORES = (
    "SELECT scores.seq, run, name, value, level, step_id, passage_id, position, stderr, label, explanation, usage, "
    "sub_question, expectation, metadata, stage, origin FROM scores WHERE {} ORDER BY scores.seq"
)
_ORIGINS = (
    "SELECT id, reference_source, engine, prompts, scorer, version, references_hash FROM origins "
    "WHERE id IN ({})"
)


def runs_at(connection: sqlite3.Connection, seqs: Iterable[int], *, texts: bool = True) -> dict[int, Run]:
    """Returns the runs with these `seq`, with their steps, in order; raises where a row cannot be read."""
    heads, steps = rows_at(connection, seqs)
    known = texts_of(connection, [body for _, body in heads + steps]) if texts else {}
    runs = {row["seq"]: run_of(row, body, known) for row, body in heads}
    for row, body in steps:
        run = runs[row["run"]]
        run.steps.append(step_of(row, body, run.id, known))
    return {seq: with_leads(run) for seq, run in runs.items()} if texts else runs


def scores_at(
    connection: sqlite3.Connection, runs: Mapping[int, str], *, unsent: bool = False
) -> dict[int, list[Score]]:
    """Returns the scores of the runs (`seq` → id), or those that no sink has received yet, in the order in which they
    were stored."""
    scores: dict[int, list[Score]] = {seq: [] for seq in runs}
    cursor = connection.cursor()
    cursor.row_factory = None  # plain tuples, since there may be a million rows
    wanted = "scores.seq > (SELECT emit_after FROM runs WHERE seq = scores.run) AND " if unsent else ""
    rows = list(chunks(cursor, _SCORES.format(f"{wanted}run IN ({{}})"), runs))
    origins = origins_of(connection, {row[-1] for row in rows})
    for row in rows:
        scores[row[1]].append(_score_of(row, runs[row[1]], origins[row[-1]]))
    return scores


def scored_at(
    connection: sqlite3.Connection, seqs: Iterable[int], *, texts: bool = True
) -> dict[int, ScoredRun]:
    """Returns the runs with these `seq`, with their scores and failures."""
    runs = runs_at(connection, seqs, texts=texts)
    ids = {seq: run.id for seq, run in runs.items()}
    scores, failures = scores_at(connection, ids), failures_at(connection, ids)
    return {seq: ScoredRun(run, scores[seq], failures[seq]) for seq, run in runs.items()}


def _score_of(row: Sequence[Any], run_id: str, origin: Origin) -> Score:
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


def failures_at(connection: sqlite3.Connection, runs: Mapping[int, str]) -> dict[int, list[Failure]]:
    """Returns the failures of the runs (`seq` → id)."""
    failures: dict[int, list[Failure]] = {seq: [] for seq in runs}
    for row in chunks(connection, "SELECT * FROM failures WHERE run IN ({}) ORDER BY seq", runs):
        failures[row["run"]].append(
            Failure(
                row["scorer"], row["error"], row["message"], bool(row["will_retry"]), run_id=runs[row["run"]],
                step_id=row["step_id"], attempts=row["attempts"], occurred_ns=row["occurred_ns"],
            )
        )  # fmt: skip
    return failures


def origins_of(connection: sqlite3.Connection, numbers: Iterable[int]) -> dict[int, Origin]:
    """Returns the origins with these numbers."""
    found = chunks(connection, _ORIGINS, numbers)
    return {number: tuple(origin) for number, *origin in found}


def rows_at(
    connection: sqlite3.Connection, seqs: Iterable[int]
) -> tuple[list[tuple[sqlite3.Row, Data]], list[tuple[sqlite3.Row, Data]]]:
    """Returns the rows of runs and of their steps, in order, each with its body; raises where one cannot be read."""
    runs, steps = (
        [(row, json.loads(row["body"])) for row in chunks(connection, statement, seqs)]
        for statement in (
            "SELECT * FROM runs WHERE seq IN ({}) ORDER BY seq",
            "SELECT * FROM steps WHERE run IN ({}) ORDER BY run, idx, seq",
        )
    )
    return runs, steps


def texts_of(connection: sqlite3.Connection, bodies: Sequence[Data]) -> dict[str, str]:
    """Returns the texts that bodies need, by digest."""
    wanted = {digest for body in bodies for digest in digests_in(body)}
    rows = chunks(connection, "SELECT digest, text FROM passages WHERE digest IN ({})", wanted)
    return {row["digest"].hex(): row["text"] for row in rows}


def chunks(
    connection: sqlite3.Connection | sqlite3.Cursor, statement: str, values: Iterable[Any]
) -> Iterator[sqlite3.Row]:
    """Yields the rows of a statement over more values than SQLite takes at once."""
    left = list(values)
    for start in range(0, len(left), _MOST_PARAMETERS):
        chunk = left[start : start + _MOST_PARAMETERS]
        yield from connection.execute(statement.format(",".join("?" * len(chunk))), chunk).fetchall()
