"""`ragguard compare A B`: compares two stores, folders of parts or score files, paired by question; `ragguard baseline`
names the runs with which later ones are compared."""

from __future__ import annotations

import gc
import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from ragguard.analysis.compare_page import compare_html
from ragguard.analysis.gate_check import GateCheck, check
from ragguard.analysis.regression_cases import (
    FAILED,
    NOT_ASKED,
    CorpusTexts,
    case_lines,
    check_cases,
    read_cases,
)
from ragguard.analysis.wording import as_markup, question_line
from ragguard.cli.terminal import LabelFile, say, screen, show_results
from ragguard.errors import InvalidInput
from ragguard.lab.labels.corrected import corrected_by
from ragguard.runtime.arguments import check_output
from ragguard.storage.source import open_source
from ragguard.storage.sqlite import baselines
from ragguard.text.plain import counted

_FELL = 5
"""The most questions that fell that are shown."""


def run(
    before: Annotated[
        str, typer.Argument(help="The side before: a store, a folder of parts or a score file.")
    ],
    after: Annotated[
        str | None,
        typer.Argument(
            help="The side after. With --baseline you may leave it out: it is then the runs of BEFORE since its "
            "last baseline."
        ),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(help="Use only the runs of this baseline in BEFORE.")
    ] = None,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            help="Exit with code 1 if this holds, such as 'udcg < -0.02', with a name of the table; may be repeated."
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Show every metric, and every question that fell.")
    ] = False,
    trust_failed: Annotated[
        bool,
        typer.Option(help="Let --fail-if use numbers for which the model failed its examination."),
    ] = False,
    allow_unscored: Annotated[
        bool,
        typer.Option(help="Let --fail-if pass even if questions have no value on the new side."),
    ] = False,
    looks: Annotated[
        int,
        typer.Option(
            help="How many checks share the 5 % of false alarms: 30 for a daily check over a month."
        ),
    ] = 1,
    labels: LabelFile = None,
    on_corrected: Annotated[
        bool,
        typer.Option("--corrected", help="Let --fail-if use the differences that the --labels correct."),
    ] = False,
    markdown: Annotated[
        Path | None, typer.Option(help="Write a comment for a pull request to this file, as Markdown.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write one self-contained page to this file.")] = None,
    cases: Annotated[
        Path | None,
        typer.Option(help="Check the new side against regression cases of `ragguard cases`."),
    ] = None,
    corpus: Annotated[
        Path | None,
        typer.Option(
            help="With --cases: the folder or file of all that can be retrieved now, to find stale cases."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare two sets of scored runs over the same questions: which side is better, and by how much.

    The verdict uses answer_correct, ΔSePer (or the likelihood of the right answer), UDCG and coverage, as far as both
    sides have them.

    Exit code 0: nothing failed. 1: a --fail-if condition holds, or a case fails. 2: they cannot be compared.
    """
    results = []
    if cases is not None:
        runs = open_source(after or before).scored_runs()
        texts = None if corpus is None else CorpusTexts(corpus)
        results = check_cases(read_cases(cases), ((one.run, one.scores) for one in runs), texts)
    elif corpus is not None:
        raise InvalidInput("--corpus", str(corpus), "--cases FILE beside it")
    check_output("--markdown", markdown)
    check_output("--html", html)
    gc.disable()  # a million small records without reference cycles, in a process that ends with the command
    checked = check(
        before,
        after,
        fail_if or (),
        baseline=baseline,
        correct=None if labels is None else corrected_by(labels),
        corrected=on_corrected,
        trust_failed=trust_failed,
        allow_unscored=allow_unscored,
        looks=looks,
    )
    if markdown is not None:
        markdown.write_text(checked.comment(), encoding="utf-8")
    if html is not None:
        names = (f"{before}: {baseline}", after or before) if baseline else (before, after or before)
        html.write_text(compare_html(checked, *names), encoding="utf-8")
        say(f"the comparison is written to {html}; open it in a browser", error=as_json)
    if as_json:
        of_cases = [{"case": one.case.id, "status": one.status, "reasons": one.reasons} for one in results]
        typer.echo(json.dumps(checked.as_dict() | ({"cases": of_cases} if results else {}), indent=2))
    else:
        _show(checked, every=every)
        for line in case_lines(results) if results else ():
            say(line)
        for said in checked.thin:
            say(f"WARNING: {'--fail-if: ' if fail_if else ''}{said}")
        for gate in checked.gates:
            say(str(gate))
    if checked.broken or any(one.status in (FAILED, NOT_ASKED) for one in results):
        raise typer.Exit(1)


def _show(checked: GateCheck, *, every: bool) -> None:
    """Prints the tables and the questions that fell."""
    console, found = screen(), checked.found
    show_results(checked.tables(every=every))
    shown = found.fell if every else found.fell[:_FELL]
    if shown:
        console.print(f"\n{found.about_fell}:")
    for item in shown:
        console.print(f"  {as_markup(question_line(item.question))}\n    {as_markup(item.shown)}")
    if len(found.fell) > len(shown):
        console.print(f"  … and {len(found.fell) - len(shown):,} more questions: --all, --markdown, --json")


def name_runs(
    store: Annotated[str, typer.Argument(help="A store.")],
    name: Annotated[
        str | None, typer.Argument(help="The name to set; without one, the baselines are listed.")
    ] = None,
) -> None:
    """Give a name to the runs since the last baseline, or to all runs. Then: compare STORE [AFTER] --baseline NAME.

    If the name is in use, it moves to the new runs, and a line says so.

    Exit code 0: done. 2: there is no such store or baseline, or no run to name.
    """
    before = baselines.baselines(store)
    shown = before.values() if name is None else [baselines.set_baseline(store, name)]
    for one in shown:
        say(f"{one.name}  {one.at}  {counted(one.runs, 'run')}  documents {one.documents}")
    if name in before:
        say(
            f"{name} was the name of {before[name].runs:,} earlier runs, of {before[name].at}; it no longer is"
        )
    if not shown:
        say(f"{store} has no baseline; `ragguard baseline {shlex.quote(store)} NAME` sets one")
