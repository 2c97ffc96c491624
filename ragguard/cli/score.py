"""`ragguard score RUNS`: scores run files, tables and traces of any size into a store; resumes where it was stopped."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ragguard.cli.run_source import (
    ColumnMap,
    RetrievingTools,
    RunFiles,
    RunSource,
    Separator,
    about_references,
    about_scored,
    read_options,
    read_references,
)
from ragguard.cli.score_parts import executor_of, read_engine_args, score_in_parts
from ragguard.cli.scoring_options import ScoringOptions, takes_scoring_options
from ragguard.cli.terminal import reason_lines, refuse_together, say
from ragguard.client import RagGuard
from ragguard.engines.base import Engine
from ragguard.engines.connect import connect_judge
from ragguard.engines.prompts import load_prompts
from ragguard.errors import EngineError, EngineRejected, EngineTimeout, InvalidInput, LowLabelMass, StoreError
from ragguard.records import ScoredRun, Usage
from ragguard.runtime.arguments import check_output
from ragguard.runtime.faults import without_times
from ragguard.scale.job import PartJob
from ragguard.scale.part import find_runs
from ragguard.scorers.pipeline import engine_answered
from ragguard.scorers.plan import Plan, check_models
from ragguard.scorers.settings import ScoringSettings
from ragguard.storage.files.runfile import write_scores
from ragguard.storage.sqlite.store import Store
from ragguard.telemetry.back_ends import LangfuseScores, PhoenixAnnotations
from ragguard.telemetry.otel import OtelSink
from ragguard.text.plain import counted
from ragguard.traces.pulled import SCHEMES, server_of

_COLLECTOR = "OTEL_EXPORTER_OTLP_ENDPOINT"
_STORE = "ragguard.db"
GIVE_UP_AFTER = 24
"""The number of runs in a row without an answer from the engine after which the command stops."""
_LABEL_MASS = re.compile(r"\bonly \d\.\d+ on\b")
"""The probability on labels in a reason, which differs from passage to passage."""
_UNKNOWN_WORDS = re.compile(r"\b[\d.]+% of the words of a prompt\b")
_NAMES = re.compile(r"^[a-z_]+( of passage \d+)?(, [a-z_]+( of passage \d+)?)*: ")
"""The scores that a reason kept from being given, at its beginning."""
CLOSE_SECONDS = 5.0


@takes_scoring_options
def run(
    files: RunFiles,
    scoring: ScoringOptions,
    store: Annotated[
        str | None,
        typer.Option(
            "--store", "-s", show_default=_STORE, help="The file for runs and scores; made if missing."
        ),
    ] = None,
    references: Annotated[
        Path | None,
        typer.Option(
            help='Right answers, as lines of {"question" or "id": "...", "references": ["..."]}; capitals and '
            "spaces of a question do not matter, and references of the run itself override them."
        ),
    ] = None,
    columns: ColumnMap = None,
    separator: Separator = "",
    tools: RetrievingTools = None,
    since: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="With phoenix:// or langfuse://: traces that began in the last 30m, 24h or 7d, or since a date.",
        ),
    ] = "",
    write_back: Annotated[
        bool,
        typer.Option(
            "--write-back",
            help="Send the scores back to the traces: to phoenix://, langfuse://, or for files of traces to the "
            "collector in "
            f"{_COLLECTOR}.",
        ),
    ] = False,
    concurrency: Annotated[int, typer.Option("--concurrency", "-c", min=1, help="Runs scored at once.")] = 8,
    max_tokens: Annotated[
        int | None, typer.Option(min=0, help="The most tokens that each engine may spend.")
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Print what it would ask and what that would cost; send only the few "
            "requests that show what the server can.",
        ),
    ] = False,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            help="Also write all scores of the store, to a file of JSON lines. With --on: the folder of scores.",
        ),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            metavar="WHERE",
            help="Score in parts, into the folder of --out: processes:4 for four processes of this machine, "
            "ray:8 for eight actors of the Ray cluster at RAY_ADDRESS, or of this machine. Inputs may be folders.",
        ),
    ] = None,
    gpus: Annotated[
        float | None,
        typer.Option(
            help="With --on ray: GPUs of each actor, also a part of one. [default: 1 for vllm:MODEL, else 0]"
        ),
    ] = None,
    engine_args: Annotated[
        str | None,
        typer.Option(
            metavar="JSON", help='With --on: vLLM\'s arguments for vllm:MODEL, as {"max_model_len": 8192}.'
        ),
    ] = None,
) -> None:
    """Score captured runs.

    Scores of the same settings are not computed again, so after a stop the same command continues. Exit code 0: all is
    scored. 1: some lines or scores are missing, and the command said which and why. 2: nothing
    could be done: a wrong option, no such file, no engine, no store.
    """
    right_answers = {} if references is None else read_references(references)
    if on is None:
        hidden = None if engine_args is None else counted(len(engine_args), "character")  # it may hold a key
        for name, given in (("--engine-args", hidden), ("--gpus", gpus)):
            if given is not None:
                raise InvalidInput(name, given, "nothing without --on")
    else:
        of_a_store = {"--since": since or None, "--store": store, "--max-tokens": max_tokens, "--map": columns,
                      "--separator": separator or None, "--tool": tools}  # fmt: skip
        for option in (*of_a_store.items(), ("--write-back", write_back)):
            refuse_together(option, ("--on", on))
        if not out:
            raise InvalidInput("--out", out, "a folder for the scores, with --on")
        executor = executor_of(on, gpus)
        arguments = read_engine_args(engine_args)
        settings = ScoringSettings(**scoring, engine_args=arguments)
        settings = replace(settings, engine=_needed_engine(scoring))
        job = PartJob(scoring=settings, out=out, references=right_answers, concurrency=concurrency)
        if not dry_run:
            score_in_parts(files, job, executor)
            return
        files, out = [str(path) for path in find_runs(files)], None
    store = store or _STORE
    options: dict[str, Any] = {
        **scoring, "budget": None if max_tokens is None else {"tokens": max_tokens}, "concurrency": concurrency,
        "exit_timeout": 0.0,
    }  # fmt: skip
    source = RunSource(files, right_answers, read_options(columns, separator, since, tools))
    options["engine"] = _needed_engine(scoring)
    options["sinks"] = _written_back(files) if write_back else ()
    check_output("--out", out)
    try:
        with source.progress():
            if dry_run:
                sentence = _plan_sentence(asyncio.run(_plan(source, options)))
            else:
                tally = asyncio.run(_score(source, store, options, out, stops=scoring["scorers"] is None))
                sentence = tally.sentence(store)
    except KeyboardInterrupt:
        say(f"stopped; what is in {store} stays, and the same command continues from there", error=True)
        raise typer.Exit(130) from None
    if references is not None and source.referenced < source.seen:
        sentence += f"\n{about_references(source.referenced, source.seen)}"
    if not source.seen and not source.rejected and "-" not in files:
        raise InvalidInput("files", " ".join(files), "at least one run; there is none in them")
    if source.rejected:
        lines = counted(source.rejected, "line", ("was", "were"))
        it = "it" if source.rejected == 1 else "them"
        sentence += f"\n{lines} rejected, see above; mend {it} and run the same command again"
    say(sentence, error=True)
    if source.rejected or (not dry_run and tally.reasons):
        raise typer.Exit(1)


def _needed_engine(scoring: ScoringOptions) -> str | Engine | None:
    """Returns the engine of the options; None if none is found and only words score."""
    settings = ScoringSettings(engine=scoring["engine"], scorers=scoring["scorers"])
    try:
        return settings.with_needed_engine().engine
    except EngineRejected as error:
        raise EngineRejected(f"{error}; --scorers words asks no engine") from error


def _written_back(files: list[str]) -> list[Any]:
    """Returns the sink that writes scores back to the server of the traces; refuses several servers."""
    kinds: dict[str, Callable[[str], Any]] = {}
    for file in files:
        if file.startswith(SCHEMES):
            kind, url, _ = server_of(file)
            kinds[url] = PhoenixAnnotations if kind == "phoenix" else LangfuseScores
        else:
            kinds[os.environ.get(_COLLECTOR, "")] = lambda url: OtelSink(otlp=url, spans_only=True)
    if len(kinds) > 1 or "" in kinds:
        raise InvalidInput(
            "--write-back", " ".join(files), "projects of one server, as phoenix://HOST/PROJECT or langfuse://HOST, or "
            f"files where {_COLLECTOR} names an OpenTelemetry collector",
        )  # fmt: skip
    return [make(url) for url, make in kinds.items()]


@dataclass
class _Tally:
    """Counts the runs of the command by their results."""

    done: int = 0
    known: int = 0
    """The number of runs that already had all their scores."""
    repeated: int = 0
    """The number of lines with a run that an earlier line of this command has."""
    usage: Usage = field(default_factory=Usage)
    reasons: Counter[str] = field(default_factory=Counter)
    unanswered: int = 0
    """The number of runs in a row for which the engine gave no answer."""
    _seen: set[int] = field(default_factory=set)
    """The hashes of the ids of counted runs."""

    def count(self, scored: ScoredRun) -> None:
        """Counts one scored run."""
        refused = any(failure.scorer == "run" for failure in scored.failures)
        repeated = not refused and hash(scored.run.id) in self._seen
        self.repeated += repeated
        if not refused and not repeated:
            self._seen.add(hash(scored.run.id))
            self.done += 1
            self.known += not scored.started_ns
        if scored.started_ns:
            self.usage = sum((score.usage for score in scored.scores), self.usage)
        self.reasons.update(f"{failure.error}: {_cause(failure.message)}" for failure in scored.failures)
        self.unanswered = 0 if engine_answered(scored) else self.unanswered + 1

    def sentence(self, store: str) -> str:
        """Returns the counts as a text for the user."""
        lines = [about_scored(self.done, self.known, self.usage, store)]
        if self.repeated:
            lines.append(
                f"{counted(self.repeated, 'line', ('has', 'have'))} a run that an earlier line has (the same id, or "
                "no id and the same content): it is kept once, as it came last. For two runs, give them ids of their "
                "own, or each file its own --store"
            )
        if self.unanswered >= GIVE_UP_AFTER:
            lines.append(
                f"the engine gave no answer for {GIVE_UP_AFTER} runs in a row, so this stopped; run the same command "
                "again when it is back"
            )
        return "\n".join([*lines, *reason_lines(self.reasons, f"`ragguard report {shlex.quote(store)}`")])


def _cause(message: str) -> str:
    """Returns the reason of a failure without what differs from score to score: names, times, shares."""
    for pattern, instead in (
        (_NAMES, ""), (_LABEL_MASS, "too little on"),
        (_UNKNOWN_WORDS, "too many of the words of a prompt"),
    ):  # fmt: skip
        message = pattern.sub(instead, message)
    return without_times(message)


async def _score(
    source: RunSource, store: str, options: Mapping[str, Any], out: str | None, *, stops: bool
) -> _Tally:
    tally = _Tally()
    rg = RagGuard(store=store, **options)
    try:
        if options["engine"] is not None:
            # One error for an engine that cannot be reached, in place of one for each run.
            await rg.engine.info()
        await asyncio.to_thread(rg.store.housekeep)
        _must_be_written(rg.store)
        chosen = {name: options[name] for name in ("engine", "scorers", "effort")}
        asked = {*ScoringSettings(**chosen).chosen_scorers} - {"words"}
        if asked and asked != {"likelihood"}:
            await _check_models(rg, options, stops=stops)
        async with aclosing(rg.score_runs(source.runs(), concurrency=options["concurrency"])) as stream:
            async for scored in stream:
                tally.count(scored)
                _must_be_written(rg.store)
                if tally.unanswered >= GIVE_UP_AFTER:
                    break
        if out is not None:
            await asyncio.to_thread(write_scores, rg.store.scored_runs(texts=False), out)
    finally:
        await rg.aclose(CLOSE_SECONDS)
    return tally


async def _check_models(rg: RagGuard, options: Mapping[str, Any], *, stops: bool) -> None:
    """Asks the models one question of each kind before the first run. What they cannot answer ends the command where
    the scorers were not chosen by hand, since most scores would be failures; else it is said."""
    judge = connect_judge(options["judge"]) if options["judge"] else rg.engine
    try:
        await check_models(rg.engine, judge, load_prompts(options["prompts"]) if options["prompts"] else None)
    except (LowLabelMass, EngineError) as error:
        if isinstance(error, EngineError) and (error.retryable or isinstance(error, EngineTimeout)):
            return  # it may pass; the runs say what did not
        if stops:
            raise
        say(f"before the first run: {error}", error=True)
    finally:
        if judge is not rg.engine:
            await judge.aclose()


def _must_be_written(store: Store) -> None:
    """Raises where the store could not be written: the file is the result of this command."""
    if store.outage:
        raise StoreError(
            f"{store.outage}; what was scored before is in it: free the disk or name "
            "another --store, and run the same command again"
        )


async def _plan(source: RunSource, options: Mapping[str, Any]) -> Plan:
    rg = RagGuard(store=None, **options)
    total = Plan()
    for run in source.runs():
        total += replace(await rg.score(run, dry_run=True), failures=())
    await rg.aclose(CLOSE_SECONDS)
    return total


def _plan_sentence(plan: Plan) -> str:
    guess, total = "a guess, since the model could not be asked: " if plan.unreachable else "", plan.total
    lines = [
        f"{guess}scoring {counted(plan.runs, 'run')} would take up to {counted(total.requests, 'request')} with "
        f"{counted(total.prompts, 'prompt')}, "
        f"about {total.prompt_tokens:,} tokens read and at most {total.output_tokens:,} written; "
        "what words decide, or was asked before, is not asked"
    ]
    lines += [
        f"  {who}.{verb}: {cost.requests:,} requests, {cost.prompts:,} prompts, "
        f"{cost.prompt_tokens:,} + {cost.output_tokens:,} tokens"
        for (who, verb), cost in plan.calls.items()
    ]
    for problem in plan.unreachable:
        lines.append(
            "the requests are counted for a server that answers many prompts and samples at once, such as vLLM; "
            "others need several times as many, and thinking models write more. Try again when it can be reached: "
            f"{problem}"
        )
    if ("entailer", "entail") in plan.calls:
        lines.append(
            "how many answers have to be compared depends on the answers: this assumes three different ones in a "
            "context, and more need several times as many comparisons. Score a sample to find out"
        )
    return "\n".join(lines)
