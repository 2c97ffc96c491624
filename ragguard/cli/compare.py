"""`ragguard compare A B`: compares two stores, folders of parts or score files, paired by question; `ragguard baseline`
names the runs with which later ones are compared."""

from __future__ import annotations

import gc
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ragguard.analysis.comparison import TOO_FEW, UNDECIDED, Change
from ragguard.analysis.gate_check import GateCheck, check, comment_of
from ragguard.analysis.labels.corrected import CorrectedChanges
from ragguard.analysis.wording import as_markup, question_line
from ragguard.cli.terminal import Column, LabelFile, say, screen, show_table
from ragguard.runtime.arguments import output_path
from ragguard.storage.sqlite import baselines

_FELL = 5
"""The most questions that fell that are shown."""
_MOVES = 6
"""The most metrics that are shown of one question."""
_COLOURS = {"better": "green", "worse": "red", "changed": "yellow", "mixed": "yellow"}
_ARROWS = {"higher": "↑", "lower": "↓"}


def run(
    before: Annotated[str, typer.Argument(help="A store, a folder of parts or a score file: how it was.")],
    after: Annotated[
        str | None,
        typer.Argument(
            help="A store, a folder of parts or a score file: how it is now. With --baseline it may be left out: the "
            "runs of BEFORE since its last baseline."
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", help="Of BEFORE, the runs of this baseline (`ragguard baseline`) alone."),
    ] = None,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-if",
            help="Exit with 1 where it holds, such as 'udcg < -0.02', by the name in the table, such as "
            "contested.run where steps have that score, too; may be repeated.",
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Show every metric, and every question that fell.")
    ] = False,
    trust_failed: Annotated[
        bool,
        typer.Option(help="Let --fail-if decide by numbers of a model that failed its examination in them."),
    ] = False,
    labels: LabelFile = None,
    on_corrected: Annotated[
        bool,
        typer.Option("--corrected", help="--fail-if is about the differences that the --labels correct."),
    ] = False,
    markdown: Annotated[
        Path | None, typer.Option(help="Write a comment for a pull request there, as Markdown.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare two sets of scored runs over the same questions: which side is better, and by how much.

    The verdict rests on answer_correct, ΔSePer (or the likelihood of the right answer), UDCG and coverage, as far as
    both sides have them.

    Exit code 0: nothing failed. 1: a --fail-if condition holds. 2: they cannot be compared.
    """
    if markdown is not None:
        output_path("--markdown", markdown)
    gc.disable()  # a million small records without reference cycles, in a process that ends with the command
    checked = check(
        before,
        after,
        fail_if or (),
        baseline=baseline,
        labels=labels,
        corrected=on_corrected,
        trust_failed=trust_failed,
    )
    if markdown is not None:
        markdown.write_text(comment_of(checked), encoding="utf-8")
    if as_json:
        typer.echo(json.dumps(checked.as_dict(), indent=2))
    else:
        if checked.documents:
            say(checked.documents)
        _show(checked, every=every)
        if checked.changes is not None:
            _show_corrected(checked.changes, labels)
        for said in checked.thin:
            say(f"WARNING: {'--fail-if: ' if fail_if else ''}{said}")
        for gate in checked.gates:
            say(str(gate))
    if checked.broken:
        raise typer.Exit(1)


def _show(checked: GateCheck, *, every: bool) -> None:
    console, found = screen(), checked.found
    verdict = found.verdict
    console.print(f"[bold {_COLOURS.get(verdict.word, '')}]{as_markup(verdict.sentence)}[/]")
    changes = found.changes if every else [] if verdict.word == "identical" else checked.decisive
    if changes:
        _show_changes(
            console,
            sorted(changes, key=lambda change: (not change.primary, change.p_corrected)),
            found.paired,
        )
        console.print(f"{found.about_p} {found.about_k}".rstrip())
        others = [change for change in found.changes if change not in changes]
        if others:
            differ = [change.metric for change in others if change.verdict not in UNDECIDED]
            which = f", of which these differ: {', '.join(map(as_markup, differ))}" if differ else ""
            more = "1 more metric" if len(others) == 1 else f"{len(others)} more metrics"
            console.print(f"{more}{which}; --all shows {'it' if len(others) == 1 else 'them'}.")
    elif found.about_k:
        console.print(found.about_k)
    if any(change.verdict == TOO_FEW for change in changes):
        console.print(
            f"{TOO_FEW.capitalize()}: with so few questions and so many metrics, even a change of every question in "
            "one direction would not be told from chance. That is not the same as no difference."
        )
    if found.left_out:
        console.print(found.left_out)
    if found.missing:
        console.print(f"On one side only: {', '.join(map(as_markup, found.missing))}.")
    if found.failures_before or found.failures_after:
        console.print(f"Scores that failed: {found.failures_before} before, {found.failures_after} after.")
    for remark in found.remarks:
        console.print(f"[yellow]{as_markup(remark)}[/].")
    if found.judged_otherwise:
        first, origins = next(iter(found.judged_otherwise.items()))
        console.print(
            "[yellow]Not scored alike on both sides[/], so that a difference may be the judge's: "
            f"{', '.join(map(as_markup, found.judged_otherwise))}. {as_markup(first)}: {as_markup('; '.join(origins))}."
        )
    shown = found.fell if every else found.fell[:_FELL]
    if shown:
        console.print(f"\n{len(found.fell):,} of {found.paired:,} questions fell:")
    for item in shown:
        console.print(f"  {as_markup(question_line(item.question))}")
        moves = [
            f"{as_markup(move.metric)} {move.before:.3f} → {move.after:.3f}" for move in item.moves[:_MOVES]
        ]
        more = f" … and {len(item.moves) - _MOVES} more metrics" if len(item.moves) > _MOVES else ""
        console.print(f"    {', '.join(moves)}{more}")
    if len(found.fell) > len(shown):
        console.print(f"  … and {len(found.fell) - len(shown):,} more questions: --all, --markdown, --json")


def _show_corrected(changes: CorrectedChanges, labels: Path | None) -> None:
    """Prints the means of both sides as the labels of people correct them."""
    console, rows = screen(), list(changes.differences.items())
    sides = [(changes.before.means[name], changes.after.means[name]) for name, _ in rows]
    show_table(console, f"Corrected by {labels}", [
        Column("metric", [name for name, _ in rows]),
        Column("before", [f"{a.value:z.3f} (judge {a.raw:z.3f})" for a, _ in sides], right=True),
        Column("after", [f"{b.value:z.3f} (judge {b.raw:z.3f})" for _, b in sides], right=True),
        Column("difference (95 %)", [d.shown for _, d in rows], right=True),
        Column("labels", [f"{a.labels} + {b.labels}" for a, b in sides], right=True, spare=1),
        Column("verdict", [d.verdict for _, d in rows]),
    ])  # fmt: skip
    for remark in changes.remarks:
        console.print(f"{as_markup(remark)}.")


def _show_changes(console: Console, changes: Sequence[Change], paired: int) -> None:
    """Prints a table of changes; an arrow says which way is better."""
    thin = any(change.questions < paired for change in changes)
    show_table(console, f"{paired} questions in common", [
        Column("metric", [f"{as_markup(change.metric)} {_ARROWS.get(change.direction, ' ')}" for change in changes]),
        *([Column("questions", [_questions(change, paired) for change in changes], right=True)] if thin else []),
        Column("before", [f"{change.before:z.3f}" for change in changes], right=True, spare=2),
        Column("after", [f"{change.after:z.3f}" for change in changes], right=True, spare=2),
        Column("difference (95 %)", [change.shown for change in changes], right=True),
        Column("effect", [f"{change.effect:+z.2f}" for change in changes], right=True, spare=1),
        Column("p", [f"{change.p_corrected:.3f}" for change in changes], right=True),
        Column("verdict", [f"[{_COLOURS.get(change.verdict, 'dim')}]{change.verdict}[/]" for change in changes]),
    ])  # fmt: skip


def _questions(change: Change, paired: int) -> str:
    colour = "yellow" if change.questions < paired else "dim"
    return f"[{colour}]{change.questions}[/]"


def name_runs(
    store: Annotated[str, typer.Argument(help="A store.")],
    name: Annotated[
        str | None, typer.Argument(help="The name to set; without one, the baselines are listed.")
    ] = None,
) -> None:
    """Name the runs since the last baseline, or all where there is none; then: compare STORE [AFTER] --baseline NAME.

    A name that is taken moves to these runs, which is said.

    Exit code 0: done. 2: there is no such store or baseline, or no run to name.
    """
    before = baselines.baselines(store)
    shown = before.values() if name is None else [baselines.set_baseline(store, name)]
    for one in shown:
        say(f"{one.name}  {one.at}  {one.runs:,} runs  documents {one.documents}")
    if name in before:
        say(
            f"{name} was the name of {before[name].runs:,} earlier runs, of {before[name].at}; it is not any more"
        )
    if not shown:
        say(f"{store} has no baseline; `ragguard baseline {shlex.quote(store)} NAME` sets one")
