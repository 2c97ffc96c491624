"""The tables of scored parts of an input: scores, failures, runs and counts, with their columns.
`docs/reference/run-format.md` describes them for users.

The columns are versioned: `FORMAT` changes when one of them changes its meaning or goes away.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, TypeAlias

from ragguard.records import Failure, RetrievalStep, Run, ScoredRun, Usage
from ragguard.storage.files.scoretable import score_rows, score_schema
from ragguard.storage.sqlite.columns import Data
from ragguard.storage.sqlite.kept import unread_positions

FORMAT = "ragguard.parts/1"
"""The version of a folder of scored parts and of all its tables but scores, whose rows name theirs."""
Table: TypeAlias = Literal["scores", "failures", "runs", "parts"]
TABLES: tuple[Table, ...] = ("scores", "failures", "runs", "parts")
"""The tables, in the order in which they are written: a part whose row of counts stands in `parts` is complete."""
MOST_REASONS = 100
"""The different reasons of failures, and the rejected lines, that the counts of a part name."""

_COSTS = ("requests", "prompts", "prompt_tokens", "output_tokens", "cached")
"""The fields of a usage that the counts of a part have: all but its seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartCounts:
    """The counts of one part of the input: the row that makes it complete."""

    key: str
    """The digest of the input's name, size and time, of the part's range, and of all settings; see `parts.PartJob`."""
    source: str
    """The address of the file, without keys and passwords."""
    kind: str
    """`lines`, `gzip` or `parquet`."""
    start: int
    """The beginning and the end of the part in the file: bytes, or rows of Parquet."""
    end: int
    bytes: int
    """The approximate size of the part in bytes of the file."""
    runs: int = 0
    """Runs that were read, scored or not."""
    referenced: int = 0
    """Runs with references, their own or those of the job's table; 0 in folders of earlier versions."""
    failed_runs: int = 0
    """Runs with at least one failure."""
    scores: int = 0
    failures: int = 0
    rejected: int = 0
    """Lines that could not be read as runs."""
    requests: int = 0
    """The sum of the requests in the `usage` of all scores; the next four fields are such sums as well."""
    prompts: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached: int = 0
    seconds: float = 0.0
    """The duration of the attempt that gave these results."""
    attempts: int = 1
    """The number of attempts at the part."""
    identity: str = ""
    """A digest of engine, judge, prompts and scorers as they named themselves; "" where none could be reached."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """The most frequent reasons of failures, each with its number; at most 100."""
    rejected_lines: Sequence[str] = ()
    """The first 100 rejected lines: file, byte and reason."""
    format: str = FORMAT

    @property
    def usage(self) -> Usage:
        """The cost of the scores."""
        return Usage(**{name: getattr(self, name) for name in _COSTS})

    def row(self) -> Data:
        """Returns the counts as plain data: a row of the table `parts`."""
        row: Data = {one.name: getattr(self, one.name) for one in fields(self)}
        row["reasons"] = [{"reason": reason, "count": count} for reason, count in self.reasons.items()]
        row["rejected_lines"] = list(self.rejected_lines)
        return row

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> PartCounts:
        """Returns the counts of a row."""
        known = {one.name: row[one.name] for one in fields(cls) if row.get(one.name) is not None}
        known["reasons"] = {one["reason"]: one["count"] for one in row.get("reasons") or ()}
        return cls(**known)


class PartRows:
    """Collects the results of one part as rows; gives the same tables whatever the order in which runs were scored."""

    def __init__(self) -> None:
        self._rows: dict[Table, dict[int, list[Data]]] = {"scores": {}, "failures": {}, "runs": {}}
        """The rows of each table, by the place of their run."""
        self.referenced = 0
        self.usage = Usage()
        self.reasons: Counter[str] = Counter()

    def add(self, place: int, scored: ScoredRun) -> None:
        """Adds a scored run, which begins at that byte or row of its file."""
        run = scored.run
        self._rows["scores"][place] = list(score_rows(scored))
        self._rows["failures"][place] = [_failure_row(run, failure) for failure in scored.failures]
        self._rows["runs"][place] = [_run_row(place, scored)]
        self.referenced += bool(run.references)
        self.usage = sum((score.usage for score in scored.scores), self.usage)
        for failure in scored.failures:
            self.reasons[f"{failure.scorer}, {failure.error}: {failure.message}"] += 1

    @property
    def totals(self) -> dict[str, Any]:
        """The fields of `PartCounts` that this class counts, by name."""
        return {
            **{table: sum(map(len, rows.values())) for table, rows in self._rows.items()},
            "referenced": self.referenced,
            "failed_runs": sum(map(bool, self._rows["failures"].values())),
            **{name: getattr(self.usage, name) for name in _COSTS},
            "reasons": dict(self.reasons.most_common(MOST_REASONS)),
        }

    def tables(self, pa: Any) -> dict[Table, Any]:
        """Returns the tables of scores, failures and runs."""
        schemas = table_schemas(pa)
        return {
            table: pa.Table.from_pylist(
                [row for place in sorted(rows) for row in rows[place]], schema=schemas[table]
            )
            for table, rows in self._rows.items()
        }


def table_schemas(pa: Any) -> dict[Table, Any]:
    """Returns the columns of each table; `format` in their metadata is their version.

    Args:
        pa: The module pyarrow.
    """
    text, whole = pa.string(), pa.int64()
    columns: dict[Table, list[tuple[str, Any]]] = {
        "failures": [
            ("run_id", text), ("step_id", text), ("question", text), ("step_index", whole), ("scorer", text),
            ("error", text), ("message", text), ("will_retry", pa.bool_()), ("attempts", whole),
            ("occurred_ns", whole),
        ],
        "runs": [
            ("run_id", text), ("run_hash", whole), ("question", text), ("name", text), ("status", text),
            ("started_ns", whole), ("ended_ns", whole), ("place", whole), ("steps", whole), ("passages", whole),
            ("places", whole), ("dropped", whole), ("scores", whole), ("failures", whole),
            ("unread", pa.list_(pa.struct([("step_id", text), ("position", whole)]))),
        ],
        "parts": [(one.name, _kind_of(pa, one.name)) for one in fields(PartCounts)],
    }  # fmt: skip
    mark = {"format": FORMAT}
    found: dict[Table, Any] = {name: pa.schema(some, metadata=mark) for name, some in columns.items()}
    return {"scores": score_schema(pa).with_metadata(mark), **found}


LATER: Mapping[Table, tuple[str, ...]] = {"runs": ("unread",), "parts": ("referenced",)}
"""The columns that were added to a table of this format. A folder that was written before has none of them."""


def run_hash(run_id: str) -> int:
    """Returns a number of 64 bits for a run's id, by which equal ids in two parts are found."""
    return int.from_bytes(hashlib.blake2b(run_id.encode("utf-8"), digest_size=8).digest(), "big", signed=True)


def _kind_of(pa: Any, name: str) -> Any:
    if name == "reasons":
        return pa.list_(pa.struct([("reason", pa.string()), ("count", pa.int64())]))
    if name == "rejected_lines":
        return pa.list_(pa.string())
    if name == "seconds":
        return pa.float64()
    return pa.string() if name in ("key", "source", "kind", "identity", "format") else pa.int64()


def _run_row(place: int, scored: ScoredRun) -> Data:
    run = scored.run
    return {
        "run_id": run.id, "run_hash": run_hash(run.id), "question": run.question, "name": run.name,
        "status": run.status, "started_ns": run.started_ns, "ended_ns": run.ended_ns, "place": place,
        "steps": len(run.steps), "passages": sum(len(step.passages) for step in run.steps),
        "places": sum(step.places for step in run.steps), "dropped": sum(map(_dropped, run.steps)),
        "scores": len(scored.scores), "failures": len(scored.failures),
        "unread": [
            {"step_id": step.id, "position": position} for step in run.steps for position in unread_positions(step)
        ],
    }  # fmt: skip


def _dropped(step: RetrievalStep) -> int:
    """Returns how many of a step's passages a guard dropped."""
    return 0 if step.decision is None else len({one.position for one in step.decision.dropped})


def _failure_row(run: Run, failure: Failure) -> Data:
    index = next((step.index for step in run.steps if step.id == failure.step_id), None)
    return asdict(failure) | {"run_id": run.id, "question": run.question, "step_index": index}
