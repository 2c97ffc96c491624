"""Reads the runs of run files and stores that a command is given, one run at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from ragguard.cli.terminal import progress_bar, say
from ragguard.errors import InvalidInput
from ragguard.records import Run
from ragguard.scorers.references import ReferenceTable, spelled
from ragguard.storage.files.jsonl import check_run_file, json_lines, opened
from ragguard.storage.files.runfile import read_lines
from ragguard.storage.sqlite.database import is_store
from ragguard.storage.sqlite.reader import StoreReader
from ragguard.traces.pulled import SCHEMES
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
            if file.startswith(SCHEMES):
                read(file, since=since)
            elif since:
                raise InvalidInput(
                    "--since", since, "nothing beside files: it is for phoenix:// and langfuse://"
                )
            else:
                check_run_file(file)
        self._files, self._since = files, since
        self._references = ReferenceTable(references)
        self.rejected = 0
        self.seen = 0
        """How many runs were read."""
        self.referenced = 0
        """How many of them have references, of their own or from the table."""
        self._before = 0
        """The bytes of the files that were read."""
        self._update: Callable[[int], object] = lambda _: None
        """Called with the number of bytes that have been read."""

    @contextmanager
    def progress(self) -> Iterator[None]:
        """Shows a progress bar over the bytes of the files."""
        size = sum(os.path.getsize(file) for file in self._files if os.path.isfile(file))
        with progress_bar("scoring", total=size or None) as update:
            self._update = lambda position: update(completed=position)
            yield
            update(completed=size)

    def runs(self) -> Iterator[Run]:
        """Yields the runs of all files in order."""
        for name in self._files:
            for run in self._of_traces(name) if is_trace_file(name) else self._of_runs(name):
                run = self._references.given_to(run)
                self.seen += 1
                self.referenced += bool(run.references)
                yield run
            self._before += os.path.getsize(name) if os.path.isfile(name) else 0

    def _of_traces(self, name: str) -> Iterator[Run]:
        """Yields the runs in a file of spans, and says afterwards what of it was not understood."""
        reading = read(name, since=self._since)
        for found in reading:
            if found.run.steps:
                yield found.run
        self.rejected += reading.counts["lines rejected"]
        for remark, count in reading.remarks.items():
            times = "" if count == 1 else f" ({count:,} times)"
            say(f"{name}: {remark}{times}", error=True)

    def _of_runs(self, name: str) -> Iterator[Run]:
        """Yields the runs of a run file or a store, and says which lines cannot be read."""
        if is_store(name):
            with closing(StoreReader(name)) as store:
                size, count = os.path.getsize(name), max(1, store.run_count())
                for number, run in enumerate(store.runs(), 1):
                    self._update(self._before + size * number // count)
                    yield run
            return
        with opened(name) as (file, position):
            for line in read_lines(file):
                if line.problem is not None:
                    self.rejected += 1
                    say(f"{name}: {line.problem}", error=True)
                elif line.run is not None:
                    self._update(self._before + position())
                    yield line.run


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
