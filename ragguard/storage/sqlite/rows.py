"""Runs, steps, scores and failures as rows: made of records, and read back, inside the caller's transaction.

What has no column of its own stands in a row's body, as JSON that `schema.py` writes and reads. The texts of passages
do not stand in the rows: a body holds each distinct passage once, under the digest of its text, and lists of passages
are lists of positions among those.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from sqlite3 import Row
from typing import Any, Final, NamedTuple, TypeAlias

from ragguard.capture.events import EarlierStepsRead, RunEnded, RunStarted, StepAmended
from ragguard.capture.model_calls import DELIVERED, UNKNOWN
from ragguard.facts.causes import CAUSES
from ragguard.facts.leads import with_leads
from ragguard.records import Failure, Passage, RetrievalStep, Run, Score, ScoredRun, Usage
from ragguard.schema import other_fields, record_type
from ragguard.storage.sqlite.layout import Data, dump, storable
from ragguard.storage.sqlite.passages import PassageTable, digests_in
from ragguard.text.plain import counted

Texts: TypeAlias = Mapping[str, str]
"""Texts by their digests in hexadecimal digits."""
STEP_COLUMNS: Final = (
    "id", "idx", "turn", "query", "status", "tool", "started_ns", "ended_ns", "body", "k",
)  # fmt: skip
RUN, _STEP, _USAGE = map(record_type, (Run, RetrievalStep, Usage))
RUN_BODY: Final = other_fields(
    Run, "id", "name", "question", "answer", "steps", "status", "started_ns", "ended_ns", "cause"
)
"""The fields of a run that stand in the body of its row."""
_STEP_BODY: Final = other_fields(RetrievalStep, *STEP_COLUMNS, "run_id", "index")


def usage_text(usage: Usage) -> str:
    """Returns a usage as the text of one column; an empty one for no usage."""
    counts = _USAGE.values(usage)
    return dump(counts) if any(counts) else ""


@lru_cache(maxsize=1024)
def usage_of(written: str) -> Usage:
    """Returns the usage that `usage_text` wrote; cached, since many scores share theirs."""
    return Usage(*json.loads(written)) if written else Usage()


def merged(body: Data, change: Data) -> Data:
    """Returns a body with changed values; metadata are added to those that are there."""
    if "metadata" in change and "metadata" in body:
        change = change | {"metadata": body["metadata"] | change["metadata"]}
    return body | change


def run_of(row: Row, body: Data, texts: Texts) -> Run:
    """Returns the run of a row, without its steps."""
    return Run(
        row["id"], row["question"], answer=row["answer"], status=row["status"], name=row["name"],
        started_ns=row["started_ns"], ended_ns=row["ended_ns"], **run_values(body, texts),
    )  # fmt: skip


def run_values(body: Data, texts: Texts) -> Data:
    """Returns the values of a run that stand in its body."""
    return RUN.restored(body, RUN_BODY, passages_in(body, texts))


class StepRow(NamedTuple):
    """A row of the table `steps`, with the run that it is found by and the texts that it needs."""

    run_id: str
    columns: tuple[Any, ...]
    """The values of `STEP_COLUMNS`."""
    digests: tuple[bytes, ...]
    """The digests of the texts that the row needs, one for each distinct passage."""


EventRow: TypeAlias = RunStarted | StepRow | StepAmended | EarlierStepsRead | RunEnded
"""An event on its way into the tables. Steps are rows already, without their passages as records."""


@dataclass(slots=True)
class EventBatch:
    """Captured events as rows, with the texts that they need under their digests."""

    rows: list[EventRow] = field(default_factory=list)
    texts: dict[bytes, str] = field(default_factory=dict)


def step_row(step: RetrievalStep, table: PassageTable) -> StepRow:
    """Returns the row of a step; the texts that it needs are added to those of the table."""
    body: Data = {"passages": table.positions_of(step.passages)}
    if step.candidates is not step.passages:
        candidates = table.positions_of(step.candidates)
        if candidates != body["passages"]:
            body["candidates"] = candidates
    body |= _STEP.write(step, _WRITTEN_LAST, table)
    columns = (
        storable(step.id), step.index, step.turn, storable(step.query), step.status, storable(step.tool),
        step.started_ns, step.ended_ns, dump(table.within(body)), step.k,
    )  # fmt: skip
    return StepRow(step.run_id, columns, tuple(table.digests))


_WRITTEN_LAST: Final = tuple(name for name in _STEP_BODY if name not in ("passages", "candidates"))


def step_of(row: Row | Data, body: Data, run_id: str, passages: Sequence[Passage]) -> RetrievalStep:
    """Returns the step of a row; `passages` are the distinct ones of the row."""
    if isinstance((advice := body.get("advice", {})).get("usage"), str):  # schema 4 wrote it as in a column
        body = body | {"advice": advice | {"usage": _USAGE.values(usage_of(advice["usage"]))}}
    values = _STEP.restored(body, _STEP_BODY, passages)
    values.setdefault("candidates", list(values["passages"]))
    return RetrievalStep(
        row["id"], run_id, row["idx"], row["turn"], query=row["query"], started_ns=row["started_ns"],
        ended_ns=row["ended_ns"], status=row["status"], tool=row["tool"], k=row["k"], **values,
    )  # fmt: skip


def unread_steps(connection: sqlite3.Connection, seq: int, before: int) -> list[RetrievalStep]:
    """Returns those of a run's first `before` steps of which it is unknown what was read."""
    statement = f"SELECT {', '.join(STEP_COLUMNS)} FROM steps WHERE run = ? AND idx < ? AND instr(body, ?)"
    rows = connection.execute(statement, (seq, before, DELIVERED)).fetchall()
    bodies = [json.loads(row["body"]) for row in rows]
    texts = texts_of(connection, bodies)
    steps = [step_of(row, body, "", passages_in(body, texts)) for row, body in zip(rows, bodies, strict=True)]
    return [step for step in steps if step.metadata.get(DELIVERED) == UNKNOWN]


def step_to_amend(
    columns: Sequence[Any], run_id: str, texts: dict[bytes, str]
) -> tuple[RetrievalStep, PassageTable]:
    """Returns a stored step, with passages that stand for those of the row, and the table that knows which they are."""
    row, body = _by_name(columns)
    passages = passages_in(body, {})
    table = PassageTable(texts, body.get("items", ()), passages)
    return step_of(row, body, run_id, passages), table


def comparable_step(columns: Sequence[Any]) -> RetrievalStep:
    """Returns a step by which rows that an older version wrote are compared with new ones: with digests in place of
    texts."""
    row, body = _by_name(columns)
    return step_of(row, body, "", passages_in(body, own_digests(body)))


def own_digests(body: Data) -> dict[str, str]:
    """Returns the digests of a body as texts, so that its passages differ as their texts do."""
    return {digest: digest for digest, *_ in body.get("items", ())}


def _by_name(columns: Sequence[Any]) -> tuple[Data, Data]:
    """Returns the values of `STEP_COLUMNS` by their names, and the body among them."""
    row = dict(zip(STEP_COLUMNS, columns, strict=True))
    return row, json.loads(row["body"])


def passages_in(body: Data, texts: Texts) -> list[Passage]:
    """Returns the distinct passages of a row; without a text where `texts` have none for its digest."""
    passages = [Passage(texts.get(digest, ""), *values) for digest, *values in body.get("items", ())]
    for passage in passages:
        passage.metadata = passage.metadata or {}  # schema 4 wrote None
    return passages


_MOST_PARAMETERS = 500
UNREADABLE = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""The errors that reading a row raises which another program has changed."""

Origin: TypeAlias = tuple[Any, ...]
"""The values that many scores share: reference_source, engine, prompts, scorer, version, references_hash."""

# `_score_of` reads the columns in this order. What many scores share, their origin, is read once and not joined.
_SCORES = (
    "SELECT scores.seq, run, name, value, level, step_id, passage_id, position, stderr, label, explanation, usage, "
    "sub_question, expectation, metadata, stage, origin FROM scores WHERE {} ORDER BY scores.seq"
)
_ORIGIN_COLUMNS = "reference_source", "engine", "prompts", "scorer", "version", "references_hash"
_ORIGINS = f"SELECT id, {', '.join(_ORIGIN_COLUMNS)} FROM origins WHERE id IN ({{}})"


_TEXT, _MAY_BE_TEXT, _WHOLE = "{} IS 'text'", "{} IN ('text', 'null')", "{} IS 'integer'"
_NUMBER, _MAY_BE_NUMBER = "{} IN ('real', 'integer')", "{} IN ('real', 'integer', 'null')"
_TYPES: Final[Mapping[str, Mapping[str, str]]] = {
    "runs": {"id name question status body": _TEXT, "answer": _MAY_BE_TEXT, "started_ns ended_ns": _WHOLE},
    "steps": {"id query status tool body": _TEXT, "idx turn started_ns ended_ns": _WHOLE, "k": _MAY_BE_NUMBER},
    "scores": {
        "name level step_id passage_id stage label explanation usage metadata": _TEXT, "value": _NUMBER,
        "stderr expectation position sub_question": _MAY_BE_NUMBER, "origin": _WHOLE,
    },
    "failures": {"step_id scorer error message": _TEXT, "attempts occurred_ns": _WHOLE},
}  # fmt: skip
"""The types of columns by table, as SQL conditions; SQLite itself takes any value in any column."""
_WRONG_TYPES: Final = {
    table: f"SELECT count(*) FROM {table} WHERE {'seq' if table == 'runs' else 'run'} IN ({{}}) AND NOT ("
    + " AND ".join(
        condition.format(f"typeof({column})")
        for names, condition in columns.items()
        for column in names.split()
    )
    + ")"
    for table, columns in _TYPES.items()
}
_ALL_TEXTS = " AND ".join(_TEXT.format(f"typeof({column})") for column in _ORIGIN_COLUMNS)
_WRONG_ORIGINS: Final = f"SELECT count(*) FROM origins WHERE NOT ({_ALL_TEXTS})"


def check_types(connection: sqlite3.Connection | sqlite3.Cursor, seqs: Collection[int], table: str) -> None:
    """Raises a TypeError if another program has put a value of another type into a row of a table, of the runs with
    these `seq`."""
    wrong = sum(number for (number,) in chunks(connection, _WRONG_TYPES[table], seqs))
    if table == "scores":
        wrong += connection.execute(_WRONG_ORIGINS).fetchone()[0]
    if wrong:
        raise TypeError(
            f"a value in {counted(wrong, 'row')} of the table {table} has another type than its column"
        )


def runs_at(connection: sqlite3.Connection, seqs: Iterable[int], *, texts: bool = True) -> dict[int, Run]:
    """Returns the runs with these `seq`, with their steps, in order; raises where a row cannot be read."""
    seqs = list(seqs)
    check_types(connection, seqs, "runs")
    check_types(connection, seqs, "steps")
    heads, steps = rows_at(connection, seqs)
    known = texts_of(connection, [body for _, body in heads + steps]) if texts else {}
    runs = {row["seq"]: run_of(row, body, known) for row, body in heads}
    for row, body in steps:
        run = runs[row["run"]]
        run.steps.append(step_of(row, body, run.id, passages_in(body, known)))
    if has_causes(connection):
        for seq, cause in chunks(connection, "SELECT run, cause FROM causes WHERE run IN ({})", runs):
            runs[seq].cause = cause if cause in CAUSES else ""
    return {seq: with_leads(run) for seq, run in runs.items()} if texts else runs


def has_causes(connection: sqlite3.Connection) -> bool:
    """Returns whether a store has a table of causes, which those of older versions lack."""
    return connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'causes'").fetchone() is not None


def scores_at(
    connection: sqlite3.Connection, runs: Mapping[int, str], *, unsent: bool = False
) -> dict[int, list[Score]]:
    """Returns the scores of the runs (`seq` → id), or those that no sink has received yet, in the order in which they
    were stored."""
    check_types(connection, runs, "scores")
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
    check_types(connection, runs, "failures")
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
    texts = {row["digest"].hex(): row["text"] for row in rows}
    if not all(isinstance(text, str) for text in texts.values()):
        raise TypeError("the text of a passage is none")
    return texts


def chunks(
    connection: sqlite3.Connection | sqlite3.Cursor, statement: str, values: Iterable[Any]
) -> Iterator[sqlite3.Row]:
    """Yields the rows of a statement over more values than SQLite takes at once."""
    left = list(values)
    for start in range(0, len(left), _MOST_PARAMETERS):
        chunk = left[start : start + _MOST_PARAMETERS]
        yield from connection.execute(statement.format(",".join("?" * len(chunk))), chunk).fetchall()
