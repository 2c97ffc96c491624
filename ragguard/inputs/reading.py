"""The one reader of runs: of a file, a folder, an address, or data in memory."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from ragguard.errors import InvalidInput, RunFormatError, StoreError
from ragguard.inputs.formats import FORMATS, TRACES, WANTED, Format, OpenInput, ReadOptions
from ragguard.records import Run
from ragguard.storage.files.jsonl import check_readable, opened, to_utf8
from ragguard.storage.files.runfile import Line
from ragguard.storage.sqlite.database import is_store
from ragguard.traces.pulled import SCHEMES, server_of
from ragguard.traces.reader import read

_TRIED = 100
"""The most lines without a run at the beginning of a file after which it is refused as a whole."""
_CONTENT = 2**31 - 1
_SHOWN = 3
"""The most names of files in an error."""


class RunReading:
    """The runs of one input, in whatever format it is; they can be read once."""

    def __init__(
        self,
        path: str | Path,
        options: ReadOptions | None = None,
        on_position: Callable[[int], object] = lambda _: None,
    ) -> None:
        """Takes an input, and a function that is called with the bytes that are read."""
        self.path, self._options, self._on_position = str(path), options or ReadOptions(), on_position
        if self._options.since and not self.path.startswith(SCHEMES):
            allowed = "nothing beside files: it is for phoenix:// and langfuse://"
            raise InvalidInput("--since", self._options.since, allowed)
        self.remarks: Counter[str] = Counter()
        """The remarks on what was not understood, in sentences, once the runs are read."""
        self.rejected = 0
        """How many lines remarks call rejected, beside those that `lines` yields with a problem."""

    def lines(self) -> Iterator[Line]:
        """Yields the runs, with a problem in the place of each that cannot be read. Raises InvalidInput if nothing at
        the beginning can be: such a file is of another kind."""
        with self._opened() as source:
            if source.is_empty:
                return
            try:
                yield from _unrepeated(_begun(self.path, recognised(source).read(source)))
            finally:
                self.remarks, self.rejected = source.remarks, source.rejected

    def runs(self) -> Iterator[Run]:
        """Yields the runs; raises the error of the first that cannot be read."""
        for line in self.lines():
            if line.run is None:
                assert line.problem is not None
                raise line.problem
            yield line.run

    def check(self) -> None:
        """Raises what `lines` would raise at its beginning; reads no more than that of a file."""
        if self.path.startswith(SCHEMES):
            server_of(self.path)
            read(self.path, since=self._options.since)
            return
        if Path(self.path).is_dir():
            self.format()
            return
        check_readable(self.path)
        if Path(self.path).is_file() and self.format() != TRACES:  # these are read as a whole
            next(self.lines(), None)

    def format(self) -> str:
        """Returns the name of the input's format; "" for an empty file."""
        with self._opened() as source:
            return "" if source.is_empty else recognised(source).name

    @contextmanager
    def _opened(self) -> Iterator[OpenInput]:
        if self.path.startswith(SCHEMES) or is_store(self.path) or Path(self.path).is_dir():
            yield OpenInput(self.path, self._options, on_position=self._on_position)
            return
        with opened(self.path) as (file, position):
            yield OpenInput.of(self.path, self._options, file, position, self._on_position)


def recognised(source: OpenInput) -> Format:
    """Returns the format of an input; raises InvalidInput for one of another kind."""
    for known in FORMATS:
        if known.recognises(source):
            return known
    folder = Path(source.path)
    if folder.is_dir():
        names = [file.name for file in islice(sorted(folder.iterdir()), _SHOWN + 1)]
        held = f"a folder with {', '.join(names[:_SHOWN])}" if names else "an empty folder"
        held += " and more" if len(names) > _SHOWN else ""
        raise StoreError(
            f"{source.path} could not be read: it is {held}; name files, each of which is {WANTED}"
        )
    if way := to_utf8(source.first):
        raise InvalidInput(source.path, "UTF-16", way)
    raise InvalidInput(source.path, source.first[:40], WANTED)


def _begun(path: str, lines: Iterable[Line]) -> Iterator[Line]:
    """Yields lines once one of them is a run; raises InvalidInput for a file that begins without any."""
    waiting: list[Line] = []
    coming = iter(lines)
    for line in coming:
        waiting.append(line)
        if line.run is not None:
            break
        if len(waiting) == _TRIED:
            break
    if waiting and waiting[-1].run is None:
        problem = waiting[0].problem
        assert problem is not None
        count = (
            "its only line could not be read as a run"
            if len(waiting) == 1
            else f"none of its first {len(waiting)} lines could be read as a run"
        )
        raise InvalidInput(f"{path}: {count}; {_place(problem)}", problem.value, problem.allowed)
    yield from waiting
    yield from coming


def _place(problem: RunFormatError) -> str:
    return str(problem).partition(": got ")[0]


def _unrepeated(lines: Iterable[Line]) -> Iterator[Line]:
    """Yields lines; a run with the id of another run before it is a problem that names both lines."""
    seen: dict[int, int] = {}
    for line in lines:
        run = line.run
        if run is not None:
            steps = tuple((step.query, *(one.text for one in step.passages)) for step in run.steps)
            content = hash((run.question, run.answer, steps)) & _CONTENT
            # One number for each run, since a file may have millions: its line, and a digest of its content.
            number, before = divmod(
                seen.setdefault(hash(run.id), line.number * (_CONTENT + 1) + content), _CONTENT + 1
            )
            if number != line.number and before != content:
                allowed = f"an id of its own: line {number} has it, with another question, answer or steps"
                line = Line(line.number, None, RunFormatError(line.number, "id", run.id, allowed))
        yield line


def runs_from(
    data: object, *, map: Mapping[str, str] | None = None, separator: str = "", since: str = ""
) -> Iterator[Run]:
    """Yields the runs in a file or in data, to score them: `rg.score_runs(runs_from("ragas.csv"))`.

    Raises InvalidInput for the first row that cannot be read.

    Args:
        data: A file (run lines, CSV, JSON, Parquet, traces, a trajectory, a store), an address of traces, or the folder
            of a data set that Hugging Face's `save_to_disk` wrote; or in memory a data frame of pandas or Polars, a
            table of Arrow, a Dataset of Hugging Face, an EvaluationDataset of ragas or DeepEval, or rows as mappings.
        map: Columns by their meaning, if their names do not say it: `{"question": "Q", "contexts": "found"}`; also
            `answer`, `reference`, `id` and `context_ids`.
        separator: The text between the contexts in a cell.
        since: With an address: `30m`, `24h`, `7d`, or a time of ISO 8601.
    """
    options = ReadOptions(columns=map or {}, separator=separator, since=since)
    if isinstance(data, str | Path):
        yield from RunReading(data, options).runs()
        return
    source = OpenInput("the data", options)
    coming = iter(_rows_of(data))
    first = list(islice(coming, 1))
    if first and isinstance(first[0], Run):
        yield from first
        yield from coming
        return
    header = [*first[0]] if first and isinstance(first[0], Mapping) else []
    for line in _unrepeated(source.rows(enumerate((*first, *coming), 1), header, "row")):
        if line.run is None:
            assert line.problem is not None
            raise line.problem
        yield line.run


def _rows_of(data: Any) -> Any:
    """Returns the rows of data in memory as mappings, by what the object can do: no library is imported."""
    if isinstance(data, Mapping):
        allowed = f"one of its parts: {', '.join(str(name) for name in islice(data, 5))}"
        raise InvalidInput("data", type(data).__name__, allowed)
    if hasattr(data, "samples") and hasattr(data, "to_list"):  # ragas
        return data.to_list()
    if hasattr(data, "iter_rows"):  # Polars
        return data.iter_rows(named=True)
    if hasattr(data, "to_batches"):  # Arrow
        return (row for batch in data.to_batches() for row in batch.to_pylist())
    if hasattr(data, "to_dict") and hasattr(data, "itertuples"):  # pandas
        return (dict(zip(data.columns, row, strict=True)) for row in data.itertuples(index=False, name=None))
    items = getattr(data, "test_cases", data)  # DeepEval
    if not isinstance(items, Iterable):
        raise InvalidInput("data", data, "a file, a data frame, a data set, or rows that can be iterated")
    return (_row_of(item) for item in items)


def _row_of(item: Any) -> Any:
    """Returns a row as a mapping; the fields of an object that is none."""
    if isinstance(item, Mapping | Run):
        return item
    if hasattr(item, "model_dump"):
        return item.model_dump()
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        return {one.name: getattr(item, one.name) for one in dataclasses.fields(item)}
    if hasattr(item, "__dict__"):
        return vars(item)
    raise InvalidInput("row", item, "a mapping, such as {'question': '…', 'contexts': ['…']}")
