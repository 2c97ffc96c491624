"""`ragguard report DATA`: shows runs and their scores, in the terminal or as one HTML page."""

from __future__ import annotations

import gc
import json
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from ragguard.analysis.cause_tables import count_tables
from ragguard.analysis.figures import write_figures
from ragguard.analysis.frames import Frame
from ragguard.analysis.hops import hop_table
from ragguard.analysis.page import selection_numbers, summary, write_html
from ragguard.analysis.wording import (
    ShadowStep,
    about_selections,
    about_shadow,
    as_markup,
    question_line,
    shadow_steps,
    short_id,
)
from ragguard.cli.follow import follow
from ragguard.cli.terminal import Column, LabelFile, refuse_together, say, screen, show_results, show_table
from ragguard.errors import InvalidInput
from ragguard.facts.causes import CAUSES, URGENCY, short_words
from ragguard.facts.explanation import BLAMING
from ragguard.facts.run_view import RunView
from ragguard.facts.verdicts import BeliefGain
from ragguard.lab.labels.corrected import corrected
from ragguard.lab.labels.label_file import read_label_file
from ragguard.runtime.arguments import check_output, one_of
from ragguard.scorers.exam.record import remarks_on, unjudged_because
from ragguard.storage.source import ScoredSource, open_source
from ragguard.storage.sqlite.overview import Overview
from ragguard.text.numbers import as_shown
from ragguard.text.plain import counted


def run(
    data: Annotated[str, typer.Argument(help="A store, or a folder of scored parts.")] = "ragguard.db",
    html: Annotated[
        Path | None, typer.Option(help="Write one self-contained page to this file instead.")
    ] = None,
    csv: Annotated[
        Path | None, typer.Option("--csv", help="Write a table to this file instead, as CSV.")
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(
            help="Write pictures into this folder instead, as SVG and PNG: belief by hop, causes, cost."
        ),
    ] = None,
    rows: Annotated[
        str, typer.Option(help="With --csv: a row for each of the questions, hops or passages.")
    ] = "questions",
    run_id: Annotated[str | None, typer.Option("--run", help="Show one run with all its hops.")] = None,
    most: Annotated[
        int | None,
        typer.Option(
            "--most", "-n", min=1, help="How many runs to list.", show_default="20; with --json all"
        ),
    ] = None,
    following: Annotated[
        bool, typer.Option("--follow", help="Show the latest runs live, until Ctrl-C.")
    ] = False,
    cause: Annotated[
        str | None,
        typer.Option(help="Only the runs of one cause, such as misled; the table of causes names them."),
    ] = None,
    labels: LabelFile = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON: the causes and all runs, or one run with its scores.")
    ] = False,
) -> None:
    """Show scored runs: what decided their answers, then the runs; those that need a person come first.

    Exit code 0: shown. 2: there is nothing to show; a sentence says why.
    """
    if run_id == "":
        raise InvalidInput("--run", run_id, "an id, or a part of one")
    files, labelled = (("--html", html), ("--csv", csv), ("--figures", figures)), ("--labels", labels)
    if following:
        refuse_together(("--follow", True), ("--run", run_id), *files, ("--json", as_json), labelled)
    refuse_together(*files)
    for option in (("--run", run_id), ("--json", as_json), ("--most", most), labelled):
        refuse_together(option, *files)
    for option in (("--most", most), ("--cause", cause), labelled):
        refuse_together(option, ("--run", run_id))
    refuse_together(("--cause", cause), ("--csv", csv))
    if cause is not None:
        one_of("--cause", cause, [*CAUSES])
    check_output("--html", html)
    check_output("--csv", csv)
    if following:
        follow(Path(data), most or _MOST)
        return
    gc.disable()  # a million small records without reference cycles, in a process that ends with the command
    source = open_source(data)
    of_cause = None
    if cause is not None:
        of_cause = {noted.id for noted in source.noted_runs() if noted.note.cause == cause}
        if not of_cause:
            known = ", ".join(name for name, _ in source.cause_counts().rows) or "none"
            raise InvalidInput("--cause", cause, f"a cause of one of the runs, which are {known}")
    if csv is not None:
        count = Frame.of(rows, source.each).write_csv(csv)
        say(f"{counted(count, 'row')} written to {csv}")
    elif html is not None:
        title = f"ragguard: {Path(data).name}{f', {short_words(cause)}' if cause else ''}"
        count = write_html(_only(source.overviews(), of_cause), html, title, lambda: source.remarks)
        say(f"{counted(count, 'run')} written to {html}; open it in a browser")
    elif figures is not None:
        names = write_figures(_only(source.overviews(), of_cause), figures)
        say(f"written to {figures}: {', '.join(names)}, each as .svg and .png")
    elif run_id:
        _show_run(source, run_id, as_json=as_json)
    else:
        found = None
        if labels is not None:
            found = corrected(source.scored_runs(), read_label_file(labels, models=True, skipped=True), data)
        if as_json:
            lines = list(map(_as_data, _only(source.overviews(), of_cause)))[:most]
            shown = {"causes": source.cause_counts().as_dict(), "runs": lines}
            if found:
                shown["corrected"] = asdict(found)
            typer.echo(json.dumps(shown, indent=2, default=str))
        else:
            if cause is None and (counts := source.cause_counts()).runs:
                show_results(count_tables(counts))
            causes = {one.id: one.note.cause for one in source.noted_runs()}
            _show_runs(_only(source.overviews(texts=False), of_cause), most or _MOST, causes)
            if found is not None:
                show_results([found.table()])
    for remark in source.remarks:
        say(f"{remark}.", error=as_json)


def _only(runs: Iterable[Overview], ids: Container[str] | None) -> Iterator[Overview]:
    """Yields the runs with these ids; None: all."""
    return (run for run in runs if ids is None or run.scored.run.id in ids)


def _show_run(source: ScoredSource, wanted: str, *, as_json: bool) -> None:
    """Prints the run that is meant by a part of its id, or by the id that the application gave it."""
    scored = source.run_of(wanted)
    if not as_json:
        screen().print(hop_table(RunView(scored.run, scored.scores, scored.failures)))
        return
    (line,) = (_as_data(one) for one in source.overviews() if one.scored.run.id == scored.run.id)
    results = {name: [asdict(one) for one in getattr(scored, name)] for name in ("scores", "failures")}
    typer.echo(json.dumps(line | results, indent=2, default=str))


def _show_runs(runs: Iterable[Overview], most: int, causes: Mapping[str, str]) -> None:
    """Prints a table of runs: what a person should look at first."""
    lines: list[dict[str, Any]] = []
    selections: list[tuple[float, float]] = []
    shadow: list[ShadowStep] = []
    engines: set[str] = set()
    for overview in runs:
        selections += selection_numbers(overview.view)
        shadow += shadow_steps(overview.view)
        engines.update(overview.engines)
        lines.append(summary(overview))
    if not lines:
        raise InvalidInput(
            "the store", "no runs", "at least one; capture some, or `ragguard score RUNS.jsonl`"
        )
    urgency = {cause: place for place, cause in enumerate(URGENCY)}
    shown = sorted(lines, key=lambda line: (urgency[causes[line["id"]]], *_harm(line)))[:most]
    # A small model tells the likelihood of the right answer in place of ΔSePer.
    known = {name for line in shown for name in ("gain", "likelier") if line[name] is not None}
    gained, title = ("likelier", "Δ likelihood") if known == {"likelier"} else ("gain", "ΔSePer")
    gains = [
        _number(line[gained], "+z.2f") + (" (support)" if line["source"] == "answer" else "")
        for line in shown
    ]
    beliefs = [_belief(line["before"], line["gain"], line["error"]) for line in shown]
    misleading = [_misleading(line, causes[line["id"]]) for line in shown]
    console = screen()
    going_on = sum(line["status"] == "open" for line in lines)
    still = f" ({going_on} still running)" if going_on else ""
    judged = any(line["worst"] is not None or line["coverage"] is not None for line in lines)
    if not judged and "gold" not in {line["source"] for line in lines} and (why := unjudged_because(engines)):
        console.print(f"[yellow]{as_markup(why)}.[/]")
    columns = [
        Column("question", [as_markup(question_line(line["question"])) for line in shown], least=20),
        Column("answer", [as_markup(line["answer"] or line["state"]) for line in shown], spare=1),
        Column("in context", [_yes_or_no(line["in_context"]) for line in shown], spare=6),
        Column("ungrounded", [_number(line["ungrounded"], ".2f") for line in shown], right=True, spare=7),
        Column("hops", [str(line["hops"]) for line in shown], right=True, spare=2),
        *([Column("belief", beliefs)] if any(beliefs) else []),
        Column(title, gains, right=True),
        Column("may mislead", misleading, right=True),
        Column("UDCG", [_number(line["udcg"], ".3f") for line in shown], right=True, spare=3),
        Column("coverage", [_number(line["coverage"], ".2f") for line in shown], right=True, spare=4),
        Column("failed", [str(line["failures"]) for line in shown], right=True, spare=5),
        Column("run", [as_markup(short_id(line["id"])) for line in shown]),
    ]
    told = [column for column in columns if not set(column.cells) <= {"–", ""}]
    show_table(console, f"{counted(len(lines), 'run')}{still}, what needs a person first", told)
    if len(lines) > len(shown):
        console.print(f"… and {len(lines) - len(shown):,} more; all of them: --most {len(lines)}")
    if engines:
        console.print(f"The numbers are those of {', '.join(map(as_markup, sorted(engines)))}.")
    for remark in remarks_on(engines):
        console.print(f"[yellow]{as_markup(remark)}.[/]")
    if selections:
        console.print(about_selections(selections))
    if shadow:
        console.print(about_shadow(shadow))
    console.print("One run with its hops: --run ID (any unique part of its id). A page: --html report.html")


def _misleading(line: Mapping[str, Any], cause: str) -> str:
    """Returns how many passages may mislead by utility, or that the words of one decided against the run."""
    if cause in BLAMING and not line["misleading"]:
        return "by words"
    return "–" if line["worst"] is None and not line["misleading"] else str(line["misleading"])


def _harm(line: dict[str, Any]) -> tuple[int, float, int]:
    """Returns the key that sorts runs by how many passages may mislead in them, how much the worst one does, and the
    newest first."""
    return -line["misleading"], 1 if line["worst"] is None else line["worst"], -line["started"]


def _as_data(overview: Overview) -> dict[str, Any]:
    """Returns a run of the list as plain data, with its explanation and the worth of its hops."""
    view = overview.view
    numbers = {hop.step.id: hop.number for hop in view.hops}
    worth = [
        {
            "hop": hop.number, "worth": one.value, "by": one.name, "paid": one.paid,
            "through_hop": numbers.get(one.through), "states_reference": one.stated,
        }
        for hop in view.hops
        if (one := hop.worth)
    ]  # fmt: skip
    return {**summary(overview), **view.explanation.as_dict(), "worth": worth, "remarks": view.remarks}


def _yes_or_no(value: float | None) -> str:
    return "–" if value is None else "yes" if value else "no"


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(as_shown(value, int(form[-2])), form)


def _belief(before: float | None, gain: float | None, error: float | None) -> str:
    """Returns a bar of the belief in the right answer, from 0 to 1: before any retrieval, and what the run gained (▓)
    or lost (░); a change within two standard errors is grey. Empty where the belief is not known."""
    if before is None or gain is None:
        return ""
    first, last = (min(_BAR, max(0, round(value * _BAR))) for value in (before, before + gain))
    colour = ("green" if gain > 0 else "red") if BeliefGain(gain, error).significant else "bright_black"
    stood, moved = min(first, last), abs(last - first)
    shade = "▓" if last > first else "░"
    return f"{'█' * stood}[{colour}]{shade * moved}[/][dim]{'·' * (_BAR - stood - moved)}[/]"


_MOST = 20
"""How many runs the table lists where nothing else is said."""
_BAR = 8
"""The cells of a bar of belief."""
