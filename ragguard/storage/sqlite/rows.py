"""Converts runs and steps to rows and back. Knows the shape of the columns, and no SQL.

What has no column of its own stands in a row's body, as JSON, in the forms of one table for writing and reading. The
texts of passages do not stand in the rows: a body holds each distinct passage once, under the digest of its text, and
lists of passages are lists of positions among those.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from sqlite3 import Row
from typing import Any, Final, NamedTuple, TypeAlias

from ragguard.capture.events import StepAmended
from ragguard.records import (
    Advice,
    Decision,
    Dropped,
    Passage,
    RetrievalStep,
    Run,
    SubStep,
    TraceContext,
    Usage,
)
from ragguard.schema import data_of_fields, other_fields, read_fields
from ragguard.storage.sqlite.passages import MORE_OF_PASSAGE, PassageTable
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


def _decision(table: PassageTable, decision: Decision) -> Data:
    def rows(dropped: Iterable[Dropped]) -> list[list[Any]]:
        return [
            [
                table.position_of(one.passage),
                one.position,
                one.reason,
                one.utility,
                one.p_abstain,
                one.p_relevant,
            ]
            for one in dropped
        ]

    return {
        "kept": table.positions_of(decision.kept),
        "dropped": rows(decision.dropped),
        **({"would_drop": rows(decision.would_drop)} if decision.would_drop else {}),
        "status": decision.status,
        "elapsed_ms": decision.elapsed_ms,
        "reason": decision.reason,
        "engine": decision.engine,
        "started_ns": decision.started_ns,
    }


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
_MORE_OF_RUN: Final = other_fields(
    Run, *RUN_FORMS, "id", "name", "question", "answer", "steps", "status", "started_ns", "ended_ns"
)
_MORE_OF_STEP: Final = other_fields(RetrievalStep, *_STEP_FORMS, *STEP_COLUMNS, "run_id", "index")


def take(body: Data, record: object, forms: Mapping[str, Form], table: PassageTable) -> None:
    """Puts the values that a record has into a body; its metadata are added to those that are there."""
    for name, (write, _, keeps_empty) in forms.items():
        value = getattr(record, name, None)
        if value is None or not (value or keeps_empty):
            continue
        written = write(table, value)
        body[name] = {**body[name], **written} if name == "metadata" and name in body else written


def _read(body: Data, forms: Mapping[str, Form], items: Items) -> Data:
    return {name: form.read(body[name], items) for name, form in forms.items() if name in body}


def run_body(run: Run, table: PassageTable) -> Data:
    """Returns the values of a run that have no column of their own, without the table's passages."""
    body = data_of_fields(run, _MORE_OF_RUN)
    take(body, run, RUN_FORMS, table)
    return body


def run_of(row: Row, body: Data, texts: Texts) -> Run:
    """Returns the run of a row, without its steps."""
    values = _read(body, RUN_FORMS, _items(body, texts)) | read_fields(Run, body, _MORE_OF_RUN)
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
        body |= data_of_fields(step, _MORE_OF_STEP)
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
