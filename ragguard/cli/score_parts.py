"""`ragguard score INPUT… --on processes:4 --out DIR`: scores an input in parts, on several processes."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import typer

from ragguard.cli.run_source import about_references, about_scored
from ragguard.cli.terminal import progress_bar, reason_lines, say
from ragguard.errors import EngineError, InvalidInput
from ragguard.scale.job import Executor, PartJob, PreparedJob, carry_out, prepare
from ragguard.scale.part_scorer import Processes
from ragguard.storage.files.partfolder import PartCounts
from ragguard.text.plain import counted


def executor_of(on: str, gpus: float | None = None) -> Executor:
    """Returns the executor that `--on` names; `gpus` are those of each actor of Ray."""
    kind, colon, number = on.partition(":")
    if kind not in ("processes", "ray") or (colon and not number.isdecimal()):
        raise InvalidInput("--on", on, "processes or ray, or, for N of them, processes:N or ray:N")
    if kind == "ray":
        executor: Executor = import_module("ragguard_ray").RayActors(actors=int(number or 8), gpus=gpus)
        return executor
    if gpus is not None:
        raise InvalidInput("--gpus", gpus, "nothing without --on ray")
    return Processes(int(number) if number else os.cpu_count() or 1)


def read_engine_args(text: str | None) -> dict[str, Any] | None:
    """Returns the engine arguments of the command line, a JSON object."""
    try:
        arguments = None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        arguments = text
    if arguments is not None and not isinstance(arguments, dict):
        # The text itself may hold a key, and nothing says where.
        allowed = 'a JSON object, such as {"max_model_len": 8192}'
        raise InvalidInput("--engine-args", counted(len(text or ""), "character"), allowed)
    return arguments


def score_in_parts(inputs: Sequence[str], job: PartJob, executor: Executor) -> None:
    """Scores an input in parts and prints the result.

    Raises typer.Exit(1) where something is missing.
    """
    prepared = prepare(inputs, job, workers=executor.workers)
    size, done = sum(part.end - part.start for part in prepared.parts.values()), prepared.before.bytes
    try:
        with progress_bar(progress_line(prepared), total=size, completed=done) as update:

            def on_part(counts: PartCounts) -> None:
                for line in counts.rejected_lines:
                    say(line, error=True)
                update(completed=done + prepared.now.bytes, description=progress_line(prepared))

            carry_out(prepared, executor, on_part)
    except KeyboardInterrupt:
        stays = f"the parts that are complete stay in {job.folder}"
        say(f"stopped; {stays}, and the same command continues from there", error=True)
        raise typer.Exit(130) from None
    except EngineError as error:
        say(f"ragguard score: {error}; what is complete stays in {job.folder}: run it again", error=True)
        raise typer.Exit(1) from None
    say(_sentence(prepared), error=True)
    if not prepared.whole:
        raise typer.Exit(1)


def _sentence(prepared: PreparedJob) -> str:
    job, before, now = prepared.job, prepared.before, prepared.now
    lines = [about_scored(before.runs + now.runs, before.runs, now.usage, str(job.folder))]
    if job.references and now.referenced < now.runs:
        lines.append(about_references(now.referenced, now.runs))
    reasons = Counter(before.reasons) + Counter(now.reasons)
    lines += reason_lines(reasons, "`ragguard report DIR --json --run ID`")
    if parts := before.parts_with_failures + now.parts_with_failures:
        lines.append(
            f"{counted(before.failures + now.failures, 'failure', ('stands', 'stand'))} in "
            f"{counted(before.failed_runs + now.failed_runs, 'run')} of "
            f"{counted(parts, 'part')}; to score a part again, remove its counts in `parts` and run the same command"
        )
    if rejected := before.rejected + now.rejected:
        lines.append(
            f"{counted(rejected, 'line', ('was', 'were'))} rejected; the counts in `parts` name them"
        )
    lines += [f"not scored: {lost}; the same command tries it again" for lost in prepared.lost]
    return "\n".join(lines)


def progress_line(prepared: PreparedJob) -> str:
    """Returns the counts of a job in one line."""
    now = prepared.now
    tokens = now.usage.prompt_tokens + now.usage.output_tokens
    return (
        f"{prepared.before.parts + now.parts:,} of {len(prepared.parts):,} parts, {counted(now.runs, 'run')}, "
        f"{counted(now.scores, 'score')}, {counted(now.failures, 'failure')}, {counted(tokens, 'token')}"
    )
