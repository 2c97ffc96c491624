"""`ragguard validate`: measures which metric predicts the quality of the answers, on the user's own data."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from pathlib import Path
from typing import Annotated, cast

import typer

from ragguard.analysis.tables import Table
from ragguard.cli.scoring_options import JudgeAddress, RelevanceForm
from ragguard.cli.terminal import LabelFile, names_of, refuse_together, say, show_results, work_status
from ragguard.engines.connect import connect
from ragguard.errors import InvalidInput
from ragguard.lab.labels.corrected import judge_tables
from ragguard.lab.labels.label_file import read_label_file
from ragguard.lab.validation.answering import answered_and_scored, compare_readers
from ragguard.lab.validation.contexts import Context, Progress, Scored, rank_values
from ragguard.lab.validation.correlations import measured
from ragguard.lab.validation.correlations import tables as correlation_tables
from ragguard.lab.validation.dataset import read_dataset
from ragguard.lab.validation.entailers import compare_entailers, entailer_of, read_pairs
from ragguard.metrics.distraction import RELEVANCES, Relevance
from ragguard.runtime.arguments import check_output, one_of
from ragguard.scorers.settings import ADDRESSES
from ragguard.storage.source import open_source


def run(
    data: Annotated[str, typer.Argument(metavar="DATA", help="Runs with outcomes, or a folder of rankings.")],
    k: Annotated[int, typer.Option("-k", min=1, help="How many passages of a ranking make a context.")] = 10,
    engine: Annotated[
        list[str] | None,
        typer.Option(
            "--engine",
            "-e",
            help=f"The model that judges, and answers if there is no outcome: {ADDRESSES}. Without it only DATA's "
            f"own numbers are used. Give it several times to compare readers, each by its own answers.",
        ),
    ] = None,
    judge: JudgeAddress = None,
    scorers: Annotated[
        str | None,
        typer.Option(help="Some of utility, belief, likelihood, coverage, grades. Default: utility."),
    ] = None,
    relevance: RelevanceForm = "probability",
    metric: Annotated[
        str | None,
        typer.Option(help="The metric that is compared with each of the others. Default: the best one."),
    ] = None,
    entailers: Annotated[
        str | None,
        typer.Option(
            help="Compare these on pairs of answers whose relation is known (DATA: JSON lines, or `exam`): engines, "
            "nli:ADDRESS, words; with commas between."
        ),
    ] = None,
    labels: LabelFile = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the tables to this file as Markdown.")] = None,
    as_json: Annotated[
        Path | None, typer.Option("--json", help="Write the tables to this file as JSON.")
    ] = None,
) -> None:
    """Find out which metric predicts how good the answers are.

    Exit code 0: done. 2: not possible: no such file, another format, no outcomes, no engine, or one that fails.
    """
    check_output("--markdown", markdown)
    check_output("--json", as_json)
    engines, named = list(dict.fromkeys(engine or ())), names_of(entailers)
    others = {"--engine": engine, "--judge": judge, "--scorers": scorers, "--metric": metric}
    for other in others.items():
        refuse_together(("--labels", labels), ("--entailers", entailers), other)
    refuse_together(("--metric", metric), ("several --engine", len(engines) > 1))
    one_of("--relevance", relevance, RELEVANCES)
    form, remarks = cast("Relevance", relevance), list[str]()
    with work_status() as tell:
        if labels is not None:
            judged = open_source(data).scored_runs()
            found = judge_tables(judged, read_label_file(labels, models=True, skipped=True), data)
        elif named is not None:
            found = asyncio.run(_entailers(data, dict.fromkeys(named)))
        else:
            contexts, chosen = read_dataset(data, k, remarks=remarks), names_of(scorers) or ()
            if len(engines) > 1:
                found = asyncio.run(_readers(contexts, engines, judge, chosen, tell, form))
            else:
                scored = [Scored(one, rank_values(one)) for one in contexts]
                if engines:
                    work = scored_by_engine(contexts, data, engines[0], judge, chosen, tell, remarks, form)
                    scored = asyncio.run(work)
                elif chosen or judge is not None:
                    raise InvalidInput("engine", None, "--engine, for --scorers and --judge")
                found = correlation_tables(measured(scored), metric)
    notes = [f"{remark}." for remark in remarks]
    tables = [replace(table, notes=(*table.notes, *notes)) for table in found]
    show_results(tables)
    if markdown is not None:
        markdown.write_text("\n".join(table.markdown() for table in tables), encoding="utf-8")
    if as_json is not None:
        as_json.write_text(json.dumps([table.as_dict() for table in tables], indent=2), encoding="utf-8")


async def _entailers(data: str, addresses: Iterable[str]) -> list[Table]:
    pairs = read_pairs(data)
    async with AsyncExitStack() as stack:
        opened = {one: await stack.enter_async_context(aclosing(entailer_of(one))) for one in addresses}
        return await compare_entailers(opened, pairs)


async def _readers(
    contexts: Sequence[Context], addresses: Sequence[str], judge: str | None, scorers: Sequence[str],
    tell: Progress, relevance: Relevance,
) -> list[Table]:  # fmt: skip
    async with AsyncExitStack() as stack:
        wanted = dict.fromkeys([*addresses, *filter(None, [judge])])
        opened = {one: await stack.enter_async_context(aclosing(connect(one))) for one in wanted}
        readers = {one: opened[one] for one in addresses}
        judged_by = opened[judge] if judge else None
        return await compare_readers(
            contexts, readers, judge=judged_by, scorers=scorers, relevance=relevance, progress=tell
        )


async def scored_by_engine(
    contexts: list[Context], path: str, engine: str, judge: str | None, scorers: Sequence[str], tell: Progress,
    remarks: list[str], relevance: Relevance = "probability",
) -> list[Scored]:  # fmt: skip
    """Returns the contexts that have texts with their scores, and with outcomes from the engine where they had none.

    `remarks` is given what was left out; scores that are missing are reported on the error stream.
    """
    readable = [one for one in contexts if one.readable]
    if all(one.found_nothing for one in readable):
        allowed = "texts of the passages, or no --engine: it has nothing to read"
        raise InvalidInput(path, "no texts", allowed)
    if left_out := len(contexts) - len(readable):
        remarks.append(
            f"{left_out:,} contexts without texts were left out: the engine has nothing to read there"
        )
    async with aclosing(connect(engine)) as reader, AsyncExitStack() as stack:
        judged_by = reader if judge is None else await stack.enter_async_context(aclosing(connect(judge)))
        scored = await answered_and_scored(
            readable, reader, judged_by, scorers, relevance=relevance, progress=tell
        )
    if failed := [failure for one in scored for failure in one.failures]:
        say(f"{len(failed)} scores are missing, of them: {failed[0].scorer}: {failed[0].message}", error=True)
    return scored
