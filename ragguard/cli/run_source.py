"""Reads the runs of run files and stores that a command is given, one run at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from ragguard.analysis.validation.fields import json_lines
from ragguard.cli.terminal import progress_bar, say
from ragguard.errors import InvalidInput, RunFormatError
from ragguard.records import Run
from ragguard.scorers.references import ReferenceTable, spelled, with_references
from ragguard.storage.files.runfile import check_run_file, opened, read_lines
from ragguard.storage.sqlite.database import is_store
from ragguard.storage.sqlite.reader import StoreReader
from ragguard.traces.pulled import SCHEMES, since_time
from ragguard.traces.reader import is_trace_file, read

RunFiles: TypeAlias = Annotated[
    list[str],
    typer.Argument(
        metavar="RUNS",
        help="Run files (JSON lines, also .gz; - is the input), stores, files of traces, phoenix://HOST/PROJECT or "
        "langfuse://HOST.",
    ),
]


class RunSource:
    """The runs of some files. A line that cannot be read is reported and counted."""

    def __init__(self, files: Sequence[str], references: Mapping[str, list[str]], since: str = "") -> None:
        for file in files:  # all files are checked before the first is scored, which may take hours
            if not file.startswith(SCHEMES):
                check_run_file(file)
        if since:
            if not all(file.startswith(SCHEMES) for file in files):
                raise InvalidInput(
                    "--since", since, "nothing beside files: it is for phoenix:// and langfuse://"
                )
            since_time(since)
        self._files, self._since = files, since
        self._references = ReferenceTable(references)
        self.rejected = 0
        self.seen = 0
        """How many runs were read."""
        self.referenced = 0
        """How many of them have references, of their own or from the table."""
        self._position: Callable[[int], object] = lambda _: None
        """Called with the number of bytes that have been read."""

    @contextmanager
    def progress(self) -> Iterator[None]:
        """Shows a progress bar over the bytes of the files."""
        size = sum(os.path.getsize(file) for file in self._files if os.path.isfile(file))
        with progress_bar("scoring", total=size or None) as update:
            self._position = lambda position: update(completed=position)
            yield
            update(completed=size)

    def runs(self) -> Iterator[Run]:
        """Yields the runs of all files in order."""
        before = 0
        for name in self._files:
            found = self._of_traces(name) if is_trace_file(name) else _runs_of(name, self._reject)
            for run, position in found:
                self._position(before + position)
                run = with_references(run, self._references)
                self.seen += 1
                self.referenced += bool(run.references)
                yield run
            before += os.path.getsize(name) if os.path.isfile(name) else 0

    def _of_traces(self, name: str) -> Iterator[tuple[Run, int]]:
        """Yields the runs in a file of spans, and says afterwards what of it was not understood."""
        reading = read(name, since=self._since)
        for found in reading:
            if found.run.steps:
                yield found.run, 0
        self.rejected += reading.counts["lines rejected"]
        for remark, count in reading.remarks.items():
            times = "" if count == 1 else f" ({count:,} times)"
            say(f"{name}: {remark}{times}", error=True)

    def _reject(self, name: str, problem: RunFormatError) -> None:
        self.rejected += 1
        say(f"{name}: {problem}", error=True)


def _runs_of(name: str, reject: Callable[[str, RunFormatError], None]) -> Iterator[tuple[Run, int]]:
    """Yields the runs of one file, each with the number of bytes read so far."""
    if is_store(name):
        store = StoreReader(name)
        size, count = os.path.getsize(name), max(1, store.run_count())
        for number, run in enumerate(store.runs(), 1):
            yield run, size * number // count
        store.close()
        return
    with opened(name) as (file, position):
        for line in read_lines(file):
            if line.problem is not None:
                reject(name, line.problem)
            elif line.run is not None:
                yield line.run, position()


def read_references(path: Path) -> dict[str, list[str]]:
    """Returns the right answers by question or run id, from a file of JSON lines.

    Two lines with different answers to one question, or for one id, are an error.
    """
    found: dict[str, list[str]] = {}
    known: dict[str, list[str]] = {}
    for line in json_lines(path):
        run_id = line.text("id", default="")
        name = run_id or line.text("question")
        answers = list(line.texts("references"))
        if "references" not in line.data:
            raise line.wrong("references", None, "needed; it is missing")
        before = known.setdefault(run_id or spelled(name), answers)
        if before != answers:
            allowed = f"{before}, the references of the same question or id in an earlier line"
            raise line.wrong("references", answers, allowed)
        found[name] = answers
    return found


def about_references(found: int, runs: int) -> str:
    """Returns the sentence about runs that --references does not know."""
    return (
        f"{found:,} of {runs:,} runs found their references: --references has the others neither under their id nor "
        "under their question, whatever its capitals and spaces"
    )
