"""`ragguard score INPUT… --on processes:4 --out DIR`: scores an input in parts, on several processes."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from ragguard.cli.run_source import about_references
from ragguard.cli.terminal import progress_bar, reason_lines, say
from ragguard.errors import EngineError, InvalidInput, MissingDependency
from ragguard.text.control_characters import strip_control_characters

if TYPE_CHECKING:
    from rich.console import Console

    from ragguard.parts.driver import Executor, JobProgress, JobReport, PreparedJob
    from ragguard.scorers.plan import Plan
    from ragguard.scorers.settings import ScoringSettings
    from ragguard.storage.files.partfolder import PartCounts

WHERE = "processes, processes:N for N of them, or ray"
"""The values that `--on` takes."""
_LASTING = re.compile(r"^[^:]*, (?:NoText|CapExceeded): ")
"""The reasons of failures that depend on nothing but the run and the settings."""


class PlannedParts(NamedTuple):
    """The plan of all parts that are left, and remarks on their lines."""

    plan: Plan
    remarks: str
    rejected: int
    """How many lines cannot be read, those of complete parts included."""


def executor_of(
    on: str, address: str | None = None, actors: int | None = None, gpus: float | None = None
) -> Executor:
    """Returns the executor that `--on` names, with the options for Ray."""
    if on == "ray":
        try:
            ray = import_module("ragguard_ray")
        except ImportError as error:
            raise MissingDependency("ragguard_ray", "scoring on a Ray cluster", "ray") from error
        executor: Executor = ray.RayActors(address, actors=actors or 8, gpus=gpus)
        return executor
    for name, value in (("--address", address), ("--actors", actors), ("--gpus", gpus)):
        if value is not None:
            raise InvalidInput(name, value, "nothing without --on ray")
    kind, colon, number = on.partition(":")
    if kind != "processes" or (colon and not number.isdecimal()):
        raise InvalidInput("--on", on, WHERE)
    from ragguard.parts.processes import Processes

    return Processes(int(number) if colon else os.cpu_count() or 1)


def read_engine_args(text: str | None) -> dict[str, Any] | None:
    """Returns the engine arguments of the command line, a JSON object."""
    if text is None:
        return None
    try:
        arguments = json.loads(text)
    except ValueError as error:
        raise InvalidInput(
            "--engine-args", text, f'a JSON object, such as {{"max_model_len": 8192}}; {error}'
        ) from error
    if not isinstance(arguments, dict):
        raise InvalidInput("--engine-args", text, 'a JSON object, such as {"max_model_len": 8192}')
    return arguments


def score_in_parts(
    inputs: Sequence[str], console: Console, *, on: str, out: str | None, store: str | None, max_tokens: int | None,
    concurrency: int, dry_run: bool, quiet: bool, address: str | None, actors: int | None, gpus: float | None,
    retry_failures: bool, references: Mapping[str, list[str]], scoring: ScoringSettings,
) -> PlannedParts | None:  # fmt: skip
    """Scores an input in parts, with the options of the command, and prints the result; returns what a dry run found.

    Raises typer.Exit(1) where something is missing, and typer.Exit(130) after Ctrl-C.
    """
    from ragguard.parts.driver import prepare
    from ragguard.parts.part_job import PartJob

    executor = executor_of(on, address, actors, gpus)
    if max_tokens is not None:
        raise InvalidInput(
            "--max-tokens", max_tokens,
            "nothing with --on: each process would spend that much; --dry-run tells what all of it costs",
        )  # fmt: skip
    if store is not None:
        raise InvalidInput("--store", store, "nothing with --on: scores go into the folder of --out")
    if not out:
        raise InvalidInput("--out", out, "a folder for the scores, with --on")
    job = PartJob(scoring=scoring, out=out, references=references, concurrency=concurrency)
    try:
        prepared = prepare(
            inputs, job, workers=executor.workers, reach_engine=not dry_run, retry_failures=retry_failures
        )
        if dry_run:
            return asyncio.run(_plan(prepared, console))
        report = _carried_out(prepared, executor, console, quiet)
    except KeyboardInterrupt:
        sentence = f"stopped; the parts that are complete stay in {job.folder}, and the same command goes on from there"
        say(sentence, error=True)
        raise typer.Exit(130) from None
    say(_sentence(report, prepared), error=True)
    if not report.whole:
        raise typer.Exit(1)
    return None


def _carried_out(prepared: PreparedJob, executor: Executor, console: Console, quiet: bool) -> JobReport:
    from ragguard.parts.driver import carry_out

    with _progress(console, quiet, prepared.progress) as show:

        def on_part(counts: PartCounts, progress: JobProgress) -> None:
            for line in counts.rejected_lines:
                console.print(strip_control_characters(line))
            show(progress)

        try:
            return carry_out(prepared, executor, on_part)
        except EngineError as error:
            sentence = f"ragguard score: {error}; what is complete stays in {prepared.folder}: run it again"
            say(sentence, error=True)
            raise typer.Exit(1) from None


def _sentence(report: JobReport, prepared: PreparedJob) -> str:
    before, now = report.progress.before, report.totals
    lines = [
        f"{before.runs + now.runs:,} runs are in {prepared.folder}, {before.runs:,} of them were scored before; asked "
        f"now: {now.usage.requests:,} requests, {now.usage.prompt_tokens:,} tokens read, "
        f"{now.usage.output_tokens:,} written"
    ]
    if prepared.job.references and now.referenced < now.runs:
        lines.append(about_references(now.referenced, now.runs))
    reasons = Counter(before.reasons) + Counter(now.reasons)
    lines += reason_lines(reasons, "`ragguard report DIR --json --run ID`")
    parts = before.parts_with_failures + now.parts_with_failures
    if parts:
        failures = before.failures + now.failures
        lasting = sum(count for reason, count in reasons.items() if _LASTING.search(reason))
        summary = f"{failures:,} failures stand in {before.failed_runs + now.failed_runs:,} runs"
        if lasting < failures:
            summary += (
                "; the same command with --retry-failures scores their parts again, each as a whole: "
                f"{parts:,} of {len(prepared.parts):,} parts"
            )
        if lasting:
            summary += f"; {lasting:,} of the failures come from the runs' own passages and caps, and would come again"
        lines.append(summary)
    if rejected := before.rejected + now.rejected:
        lines.append(f"{rejected:,} lines were rejected; the counts in `parts` name them")
    return "\n".join(lines)


async def _plan(prepared: PreparedJob, console: Console) -> PlannedParts:
    """Plans the runs of the parts that are left, and prints the lines that cannot be read."""
    from ragguard.parts.part import read_part
    from ragguard.scorers.evaluation import ReferenceTable, with_references
    from ragguard.scorers.plan import Plan

    references = ReferenceTable(prepared.job.references)
    pipeline = prepared.job.scoring.build()
    total, rejected, referenced = Plan(), 0, 0
    for part in prepared.left:
        for line in read_part(part):
            if line.run is not None:
                run = with_references(line.run, references)
                referenced += bool(run.references)
                total += replace(await pipeline.plan(run), failures=())
            elif line.problem is not None:
                rejected += 1
                console.print(strip_control_characters(f"{part.source}: {line.problem}"))
    await pipeline.aclose()
    lines: list[str] = []
    if prepared.job.references and referenced < total.runs:
        lines.append(about_references(referenced, total.runs))
    if rejected:
        lines.append(f"{rejected:,} lines were rejected, see above; mend them and run the same command again")
    if before := prepared.progress.before.rejected:
        lines.append(f"{before:,} lines of complete parts were rejected; the counts in `parts` name them")
    return PlannedParts(total, "\n".join(lines), rejected + before)


@contextmanager
def _progress(console: Console, quiet: bool, progress: JobProgress) -> Iterator[Any]:
    """Shows the progress of the job: parts, runs, scores, failures, tokens, rate and time left."""
    with progress_bar(
        console, progress_line(progress), total=progress.all_bytes, completed=progress.bytes, quiet=quiet
    ) as update:
        yield lambda now: update(completed=now.bytes, description=progress_line(now))


def progress_line(progress: JobProgress) -> str:
    """Returns the counts of a job in one line."""
    now, left = progress.now, progress.seconds_left
    tokens = now.usage.prompt_tokens + now.usage.output_tokens
    rest = "" if left is None else f", {left / 60:,.0f} min left" if left >= 90 else f", {left:,.0f} s left"
    return (
        f"{progress.before.parts + now.parts:,} of {progress.all_parts:,} parts, {now.runs:,} runs, {now.scores:,} "
        f"scores, {now.failures:,} failures, {tokens:,} tokens, {progress.runs_a_second:,.1f} runs a second{rest}"
    )
