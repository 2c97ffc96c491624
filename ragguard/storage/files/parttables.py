"""The tables of scored parts of an input: scores, failures, runs, steps and counts, with their columns.
`docs/reference/run-format.md` describes them for users.

The columns are versioned: `FORMAT` changes when one of them changes its meaning or goes away.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, TypeAlias

from ragguard.records import Dropped, Failure, Passage, RetrievalStep, Run, ScoredRun, Usage
from ragguard.storage.files.scoretable import score_rows, score_schema
from ragguard.storage.sqlite.columns import Data
from ragguard.storage.sqlite.rows import STEP_COLUMNS, step_row

FORMAT = "ragguard.parts/2"
"""The version of a folder of scored parts and of all its tables but scores, whose rows name theirs."""
Table: TypeAlias = Literal["scores", "failures", "runs", "steps"]
TABLES: tuple[Table, ...] = ("scores", "failures", "runs", "steps")
MOST_REASONS = 100
"""The different reasons of failures, and the rejected lines, that the counts of a part name."""
_COSTS = ("requests", "prompts", "prompt_tokens", "output_tokens", "cached")
"""The fields of a usage that the counts of a part have: all but its seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartCounts:
    """The counts of one part of the input: the file that makes it complete."""

    key: str
    """The digest of the part's content and of all settings; see `parts.PartJob`."""
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
    steps: int = 0
    referenced: int = 0
    """Runs with references, their own or those of the job's table."""
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
    digests: Mapping[str, str] = field(default_factory=dict)
    """The SHA-256 of the file of each table."""
    format: str = FORMAT

    @property
    def usage(self) -> Usage:
        """The cost of the scores."""
        return Usage(**{name: getattr(self, name) for name in _COSTS})


class PartRows:
    """Collects the results of one part as rows; gives the same tables whatever the order in which runs were scored."""

    def __init__(self) -> None:
        self._rows: dict[Table, dict[int, list[Data]]] = {table: {} for table in TABLES}
        """The rows of each table, by the byte or row at which their run begins."""
        self.referenced = 0
        self.usage = Usage()
        self.reasons: Counter[str] = Counter()

    def add(self, place: int, scored: ScoredRun) -> None:
        """Adds a scored run, which begins at that byte or row of its file."""
        run = scored.run
        self._rows["scores"][place] = list(score_rows(scored))
        self._rows["failures"][place] = [_failure_row(run, failure) for failure in scored.failures]
        self._rows["steps"][place] = [_step_row(run, step) for step in run.steps]
        self._rows["runs"][place] = [
            {
                "run_id": run.id, "question": run.question, "name": run.name, "status": run.status,
                "started_ns": run.started_ns, "ended_ns": run.ended_ns, "place": place, "steps": len(run.steps),
                "scores": len(scored.scores), "failures": len(scored.failures),
            }
        ]  # fmt: skip
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
        """Returns the tables; the rows of each stand in the order of their runs."""
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
    numbers = ("idx", "turn", "started_ns", "ended_ns", "k")
    columns: dict[Table, list[tuple[str, Any]]] = {
        "failures": [
            ("run_id", text), ("step_id", text), ("question", text), ("step_index", whole), ("scorer", text),
            ("error", text), ("message", text), ("will_retry", pa.bool_()), ("attempts", whole),
            ("occurred_ns", whole),
        ],
        "runs": [
            ("run_id", text), ("question", text), ("name", text), ("status", text), ("started_ns", whole),
            ("ended_ns", whole), ("place", whole), ("steps", whole), ("scores", whole), ("failures", whole),
        ],
        "steps": [
            ("run_id", text), *((name, whole if name in numbers else text) for name in STEP_COLUMNS),
        ],
    }  # fmt: skip
    mark = {"format": FORMAT}
    schemas: dict[Table, Any] = {
        name: pa.schema(fields_of, metadata=mark) for name, fields_of in columns.items()
    }
    return {"scores": score_schema(pa).with_metadata(mark), **schemas}


def counts_of(data: Mapping[str, Any]) -> PartCounts:
    """Returns counts from plain data, as `dataclasses.asdict` gives it; raises TypeError where a field is missing."""
    return PartCounts(**{column.name: data[column.name] for column in fields(PartCounts)})


def _step_row(run: Run, step: RetrievalStep) -> Data:
    row = step_row(_without_texts(step), {})
    return {"run_id": run.id, **dict(zip(STEP_COLUMNS, row.columns, strict=True))}


def _without_texts(step: RetrievalStep) -> RetrievalStep:
    """Returns a step whose passages have numbers in place of their texts and nothing else but their ids; equal passages
    have equal numbers, so that it can still be told which of them the model got."""
    numbers: dict[tuple[str, str], Passage] = {}

    def numbered(passages: Iterable[Passage]) -> list[Passage]:
        keys = [(passage.id, passage.text) for passage in passages]
        return [numbers.setdefault(key, Passage(str(len(numbers)), key[0])) for key in keys]

    def dropped(drops: Sequence[Dropped]) -> list[Dropped]:
        passages = numbered(drop.passage for drop in drops)
        return [replace(drop, passage=passage) for drop, passage in zip(drops, passages, strict=True)]

    candidates = numbered(step.candidates)
    decision = step.decision
    if decision is not None:
        decision = replace(
            decision, kept=numbered(decision.kept), dropped=dropped(decision.dropped),
            would_drop=dropped(decision.would_drop),
        )  # fmt: skip
    return replace(
        step, candidates=candidates, passages=numbered(step.passages), decision=decision, sub_steps=[], trace=None,
        advice=None,
    )  # fmt: skip


def _failure_row(run: Run, failure: Failure) -> Data:
    index = next((step.index for step in run.steps if step.id == failure.step_id), None)
    return asdict(failure) | {"run_id": run.id, "question": run.question, "step_index": index}
