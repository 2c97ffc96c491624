"""The inputs of a command, and the options that describe them; their runs are read one at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from ragguard.cli.terminal import progress_bar, say
from ragguard.errors import InvalidInput
from ragguard.inputs.formats import ReadOptions
from ragguard.inputs.reading import RunReading
from ragguard.records import Run, Usage
from ragguard.scorers.references import ReferenceTable, spelled
from ragguard.storage.files.jsonl import json_lines
from ragguard.text.plain import counted

RunFiles: TypeAlias = Annotated[
    list[str],
    typer.Argument(
        metavar="RUNS",
        help="Run files, CSV, JSON or Parquet with columns such as question, contexts, answer, reference; traces; "
        "stores; phoenix://HOST/PROJECT or langfuse://HOST. - reads the standard input, .gz is unpacked.",
    ),
]
ColumnMap: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="WHAT=COLUMN",
        help="For tables: the column that holds the question, contexts, answer, reference or id; may be repeated.",
    ),
]
Separator: TypeAlias = Annotated[
    str, typer.Option(help="For tables: what separates the contexts in one cell, such as '|'.")
]
RetrievingTools: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--tool",
        metavar="NAME",
        help="For traces and trajectories: a tool whose results are passages, such as read_file; may be repeated.",
    ),
]


def read_options(
    columns: Sequence[str] | None, separator: str, since: str, tools: Sequence[str] | None
) -> ReadOptions:
    """Returns what the options of a command say of its inputs."""
    named: dict[str, str] = {}
    for pair in columns or ():
        what, equals, column = pair.partition("=")
        if not equals or not column:
            raise InvalidInput("--map", pair, "WHAT=COLUMN, such as question=Q")
        if what in named:
            raise InvalidInput(f"--map {what}", column, f"one column; {named[what]!r} is given as well")
        named[what] = column
    return ReadOptions(columns=named, separator=separator, since=since, tools=tools or ())


class RunSource:
    """The runs of some inputs. A line that cannot be read is said and counted."""

    def __init__(
        self, files: Sequence[str], references: Mapping[str, list[str]], options: ReadOptions | None = None
    ) -> None:
        """Takes the inputs and looks into each, since the first may take hours to score."""
        self._references = ReferenceTable(references)
        self.rejected = 0
        self.seen = 0
        """How many runs were read."""
        self.referenced = 0
        """How many of them have references, of their own or from the table."""
        self._before = 0
        """The bytes of the files that were read."""
        self._update: Callable[[int], object] = lambda _: None
        self._readings = [RunReading(file, options, self._on_position) for file in files]
        for reading in self._readings:
            reading.check()

    def _on_position(self, position: int) -> None:
        self._update(self._before + position)

    @contextmanager
    def progress(self) -> Iterator[None]:
        """Shows a progress bar over the bytes of the files."""
        size = sum(map(_size, self._readings))
        with progress_bar("scoring", total=size or None) as update:
            self._update = lambda position: update(completed=position)
            yield
            update(completed=size)

    def runs(self) -> Iterator[Run]:
        """Yields the runs of all inputs in order."""
        for reading in self._readings:
            for line in reading.lines():
                if line.run is None:
                    self.rejected += 1
                    say(f"{reading.path}: {line.problem}", error=True)
                    continue
                run = self._references.given_to(line.run)
                self.seen += 1
                self.referenced += bool(run.references)
                yield run
            self.rejected += reading.rejected
            for remark, count in reading.remarks.items():
                times = "" if count == 1 else f" ({count:,} times)"
                say(f"{reading.path}: {remark}{times}", error=True)
            self._before += _size(reading)


def _size(reading: RunReading) -> int:
    return os.path.getsize(reading.path) if os.path.isfile(reading.path) else 0


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


def about_scored(runs: int, before: int, usage: Usage, place: str) -> str:
    """Returns the sentence about the runs of a command that are scored, and what they cost."""
    known = (
        f", {before:,} of them {'was' if before == 1 else 'were'} scored by an earlier command"
        if before
        else ""
    )
    return (
        f"{counted(runs, 'run', ('is', 'are'))} in {place}{known}; "
        f"asked now: {usage.requests:,} requests, {usage.prompt_tokens:,} tokens read, {usage.output_tokens:,} written"
    )


def about_references(found: int, runs: int) -> str:
    """Returns the sentence about runs that --references does not know."""
    return (
        f"{found:,} of {runs:,} runs have references: for the others, --references has neither their id nor their "
        f"question (capitals and spaces do not matter)"
    )
