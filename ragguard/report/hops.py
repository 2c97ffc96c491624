"""The hops of a run as a table for the terminal: what was asked, what came, what it did."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from ragguard.records import Failure, RetrievalStep, Run, Score
from ragguard.report.digest import MISLEADS, best
from ragguard.report.text import as_markup, harmless

WIDTH = 6
"""Cells of one side of a utility bar."""


class Shown(Protocol):
    """What `print_hops` reads from: a RagGuard."""

    def runs(self) -> Iterable[Run]: ...
    def scores(self, run_id: str) -> Sequence[Score]: ...
    def failures(self, run_id: str) -> Sequence[Failure]: ...


def print_hops(rg: Shown, console: Console | None = None) -> None:
    """Prints every run of `rg` with its hops; call it after `flush`."""
    out = console or Console(highlight=False)
    for run in rg.runs():
        out.print(hop_table(run, rg.scores(run.id), rg.failures(run.id)))


def hop_table(run: Run, scores: Sequence[Score], failures: Sequence[Failure] = ()) -> RenderableType:
    """One run: its question and answer, one block a hop; and why a number is missing, where one is."""
    total, correct = best(scores, "delta_seper_total"), best(scores, "answer_correct")
    head = Text.assemble(("\n" + harmless(run.question), "bold"), f"\nanswer: {harmless(run.answer or '–')}")
    if correct is not None and correct.label:
        head.append(f" ({harmless(correct.label)})", _colour(correct.value - 0.5))
    if total is not None:
        head.append(f"   ΔSePer of the run: {_signed(total)}")
    steps = {step.id for step in run.steps}
    head.append(
        "".join(f"\n{why}" for why in _reasons([f for f in failures if f.step_id not in steps])), "yellow"
    )
    return Group(head, *(
        _hop(step, [s for s in scores if s.step_id == step.id], [f for f in failures if f.step_id == step.id])
        for step in run.steps
    ))  # fmt: skip


def _reasons(failures: Sequence[Failure]) -> list[str]:
    """Why there is no score, each reason once."""
    return list(dict.fromkeys(f"not scored: {harmless(' '.join(one.message.split()))}" for one in failures))


def _hop(step: RetrievalStep, scores: Sequence[Score], failures: Sequence[Failure]) -> Table:
    before = best(scores, "udcg", "candidates") if step.decision and step.decision.dropped else None
    facts = [
        ("ΔSePer", _signed(best(scores, "delta_seper"))),
        ("UDCG", _plain(best(scores, "udcg"), 3) + (f" (was {_plain(before, 3)})" if before else "")),
        ("coverage", _plain(best(scores, "coverage"), 2)),
    ]
    numbers = "   ".join(f"{name} {value}" for name, value in facts if not value.startswith("–"))
    reasons = "".join(f"\n[yellow]{as_markup(why)}[/yellow]" for why in _reasons(failures))
    table = Table(
        box=box.SIMPLE_HEAD, expand=True, pad_edge=False, title_justify="left",
        title=f"hop {step.index + 1}: [bold]{as_markup(step.query)}[/bold]\n{numbers or step.status}{reasons}",
    )  # fmt: skip
    table.add_column("#", justify="right", min_width=2)
    dropped = {drop.position: drop for drop in step.decision.dropped} if step.decision else {}
    passed = {key for passage in step.passages for key in (passage.id, passage.text)} - {""}
    table.add_column("passage", ratio=3, overflow="ellipsis", no_wrap=True)
    table.add_column("utility", no_wrap=True, min_width=2 * WIDTH + 7)
    table.add_column("verdict", min_width=11, max_width=32)
    utilities = {s.position: s.value for s in scores if s.name == "utility" and s.position is not None}
    for position, passage in enumerate(step.candidates or step.passages, 1):
        drop = dropped.get(position)
        utility = utilities.get(position, drop.utility if drop else None)
        named = (passage.id, passage.text)
        cut = any(named) and passed.isdisjoint(named) and not drop
        table.add_row(
            str(position),
            as_markup(" ".join(passage.text.split())),
            _bar(utility),
            Text("cut", "yellow") if cut else _verdict(utility, drop.reason if drop else None),
            style="dim" if drop or cut else "",
        )
    return table


def _bar(utility: float | None) -> Text:
    if utility is None:
        return Text("not judged", "dim")
    cells = min(WIDTH, round(abs(utility) * WIDTH))
    left, right = (cells, 0) if utility < 0 else (0, cells)
    bar = Text(" " * (WIDTH - left))
    bar.append("█" * left, "red").append("│").append("█" * right, "green").append(" " * (WIDTH - right))
    return bar.append(f" {utility:+z.2f}")


def _verdict(utility: float | None, dropped: str | None) -> Text:
    if dropped is not None:
        return Text(
            f"dropped: {harmless(dropped.removeprefix('utility '))}", "yellow"
        )  # the bar tells the rest
    if utility is None:
        return Text()
    misleads, helps = utility < MISLEADS, utility > -MISLEADS
    return Text("misleads" if misleads else "helps" if helps else "does little", _colour(utility))


def _colour(value: float) -> str:
    return "red" if value < MISLEADS else "green" if value > -MISLEADS else "dim"


def _plain(score: Score | None, digits: int) -> str:
    return "–" if score is None else f"{score.value:.{digits}f}{_support(score)}"


def _signed(score: Score | None) -> str:
    if score is None:
        return "–"
    error = f" ± {score.stderr:.2f}" if score.stderr is not None else ""
    return f"{score.value:+z.2f}{error}{_support(score)}"


def _support(score: Score) -> str:
    return " (support)" if score.reference_source == "answer" else ""
