"""`ragguard demo`: agents that hop, in a corpus full of near misses; captured, guarded, scored, compared, reported.

The part of a framework is in its integration's module `demo`, imported by name: this module knows no framework.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from ragguard.cli.demo_stage import Agent, Stage
from ragguard.errors import InvalidInput, StoreError

if TYPE_CHECKING:
    from rich.console import Console

    from ragguard import Run, Score
    from ragguard.analysis.comparison import Comparison
    from ragguard.scorers.explanation import Explanation

FRAMEWORKS = {"LangGraph": "ragguard_langchain", "LlamaIndex": "ragguard_llamaindex"}
THRESHOLD = -0.05
"""The guard's threshold here. Passages that mislead nano have utilities nearer to zero than the default threshold."""
COMPARED, GUARDED = 8, 5
"""How many questions are answered with a worse search and a better one, and how many without and with the guard."""


def run(
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the results go.")] = Path("demo-out"),
    seed: Annotated[
        int, typer.Option(help="The seed that draws the questions; 5 was chosen for showing.")
    ] = 5,
) -> None:
    """Show ragguard at work, offline, on the small model and the made-up world that are part of the package."""
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False)
    began = time.perf_counter()
    attached = {title: module for title, package in FRAMEWORKS.items() if (module := _module(package))}
    for title in FRAMEWORKS.keys() - attached.keys():
        console.print(f"{title} is not installed here; pip install 'ragguard\\[demo]' shows it too.")
    if not attached:
        raise typer.Exit(2)
    _make_room(out)
    done = _demonstrate(attached, out, seed, console)
    command, folder = escape(_typed()), escape(shlex.quote(str(out)))
    console.print(
        f"in all    {time.perf_counter() - began:.1f} s\n\n"
        f"[bold]Written to {escape(str(out))}[/bold]: report.html, ragguard.db (the store), runs.jsonl\n"
        "(the run file), spans.jsonl (what an OpenTelemetry collector gets, a span a line), and\n"
        "worse-search.db, to compare with\n"
        f"[bold]Next[/bold]      open {escape(str(out))}/report.html in a browser\n"
        f"          {command} report {folder}/ragguard.db\n"
        f"          {command} compare {folder}/worse-search.db {folder}/ragguard.db\n"
        f"          {command} score {folder}/runs.jsonl --engine URL --dry-run\n"
        "          your own agent: `instrument(rg)`, as README.md and examples/ show",
        soft_wrap=True,
    )
    if not done:
        raise typer.Exit(1)


def _make_room(out: Path) -> None:
    """Makes the folder for the results, and removes what an earlier demonstration wrote there, and nothing else."""
    spans = out / "spans.jsonl"
    try:
        if (out / "ragguard.db").exists() and not spans.exists():
            allowed = "a folder without a store of your own: it would be overwritten"
            raise InvalidInput("--out", str(out), allowed)
        out.mkdir(parents=True, exist_ok=True)
        for name in ("ragguard.db", "worse-search.db"):
            for file in out.glob(f"{name}*"):
                file.unlink()
        spans.write_text("")
    except OSError as error:
        reason = error.strerror or error
        raise StoreError(f"{out} cannot hold the results ({reason}); name a folder with --out") from error


def _typed() -> str:
    """Returns the command as the user has to type it; after `make demo` it is in no directory of the PATH."""
    called = Path(sys.argv[0])
    if called.name != "ragguard" or shutil.which("ragguard") is not None:
        return "ragguard"
    return os.path.relpath(called)


def _module(package: str) -> ModuleType | None:
    try:
        return import_module(f"{package}.demo")
    except ImportError:
        return None


class ShownRun(NamedTuple):
    """A run with its scores and its explanation."""

    run: Run
    scores: Sequence[Score]
    explanation: Explanation

    @property
    def is_right(self) -> bool:
        return self.explanation.cause == "right"

    @property
    def is_guarded(self) -> bool:
        return any(step.decision for step in self.run.steps)

    @property
    def dropped(self) -> int:
        """The number of passages that the guard dropped."""
        return sum(len(step.decision.dropped) for step in self.run.steps if step.decision)


def _demonstrate(attached: dict[str, ModuleType], out: Path, seed: int, console: Console) -> bool:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

    from ragguard import DistractorGuard, RagGuard, connect
    from ragguard.analysis.comparison import compare
    from ragguard.analysis.digest import MISLEADS
    from ragguard.analysis.page import write_html
    from ragguard.analysis.pairs import read_questions
    from ragguard.scorers.explanation import explain
    from ragguard.storage.files.runfile import write_runs

    engine = connect("nano")
    stage = Stage(engine, seed)
    plain, hard = stage.plain(COMPARED), stage.hard(GUARDED)
    (one, module), (other, other_module) = next(iter(attached.items())), list(attached.items())[-1]
    worse, better = out / "worse-search.db", out / "ragguard.db"
    clock = time.perf_counter()
    with RagGuard(engine=engine, store=worse, when="run") as rg:
        stage.answer(rg, Agent(module, f"{one}, worse search", stage.worse_search), plain)
        first = rg.flush(timeout=120)
    provider = TracerProvider()
    with (out / "spans.jsonl").open("w", encoding="utf-8") as spans:
        exporter = ConsoleSpanExporter(out=spans, formatter=lambda span: f"{span.to_json(indent=None)}\n")
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        # With when="run" the spans are those of the finished runs alone.
        rg = RagGuard(engine=engine, store=better, tracer_provider=provider, when="run")
        guard = DistractorGuard(rg.engine, THRESHOLD, budget_ms=10_000)
        stage.answer(rg, Agent(module, f"{one}, better search", stage.search), plain)
        stage.answer(rg, Agent(other_module, f"{other}, guard", stage.search, guard), hard)
        stage.answer(rg, Agent(other_module, f"{other}, no guard", stage.search), hard)
        second = rg.flush(timeout=120)
        took = time.perf_counter() - clock
        runs = list(rg.runs())
        scores = {run.id: rg.scores(run.id) for run in runs}
        shown = [ShownRun(run, scores[run.id], explain(run, scores[run.id])) for run in runs]
        _print_findings(shown, compare(read_questions(worse), read_questions(better)), console)
        _print_cost(shown, console)
        late = "" if first and second else f"; {first if not first else second}"
        console.print(f"agents    {len(runs) + len(plain)} runs, answered and scored in {took:.1f} s{late}")
        write_runs(runs, out / "runs.jsonl")
        title = "ragguard: the demonstration, on questions chosen for showing"
        write_html(rg.store.overviews(MISLEADS), out / "report.html", title)
        rg.close()
        provider.shutdown()
    return bool(first and second)


def _print_findings(shown: Sequence[ShownRun], compared: Comparison, console: Console) -> None:
    """Prints five lines of findings, then one answer that the guard saved: how it went wrong without, and right with
    it."""
    from ragguard.analysis.hops import hop_table

    saved = _changed_by_guard(shown, saved=True)
    wrong, right = saved[0] if saved else (None, None)
    paid = max(shown, key=_largest_gain)
    console.rule("[bold]What it saw[/bold]", align="left")
    _line(console, "paid", f"“{paid.run.question}” {paid.explanation.sentences[-1]}")
    if wrong and right:
        _line(console, "misled", f"“{wrong.run.question}” {wrong.explanation.sentences[0]}")
        passages = sum(len(step.candidates) for step in right.run.steps)
        of_all = f"{len(saved)} of {sum(one.run.name == right.run.name for one in shown)} answers were saved"
        lost = f", {count} lost" if (count := len(_changed_by_guard(shown, saved=False))) else ""
        _line(
            console, "saved", f"With the guard, which dropped {right.dropped} of {passages} passages, the same agent "
            f"answered “{right.run.answer}”: right. {of_all}{lost}.",
        )  # fmt: skip
    else:
        _line(
            console,
            "saved",
            "No answer that was wrong without the guard was right with it; try another --seed.",
        )
    _line(console, "compared", f"A worse search with a better one. {compared.verdict.sentence}")
    _line(
        console,
        "chosen",
        "These questions, by a seed that shows all of this; figures that bind are in benchmarks/.",
    )
    for one in (wrong, right):
        if one:
            console.rule(f"[bold]{one.run.name}[/bold]", align="left")
            console.print(hop_table(one.run, one.scores))


def _line(console: Console, word: str, sentence: str) -> None:
    """Prints a word, and a sentence beside it."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(min_width=8)
    grid.add_row(Text(word, "bold"), Text(sentence))
    console.print(grid)


def _largest_gain(shown: ShownRun) -> float:
    """Returns how much the best hop of a run that was answered rightly paid, where that is measurable."""
    gains = [score for score in shown.scores if score.name == "delta_seper" and shown.is_right]
    return max((gain.value for gain in gains if gain.value > 2 * (gain.stderr or 0)), default=-1.0)


def _changed_by_guard(shown: Sequence[ShownRun], *, saved: bool) -> list[tuple[ShownRun, ShownRun]]:
    """Returns the pairs of runs about one question, without the guard and with it, of which the guard saved the answer,
    or lost it; first the pair whose wrong answer's source is known."""
    pairs = [
        (plain, guarded)
        for plain in shown
        for guarded in shown
        if plain.run.question == guarded.run.question
        and guarded.is_guarded
        and not plain.is_guarded
        and (plain.is_right, guarded.is_right) == (not saved, saved)
    ]
    return sorted(pairs, key=lambda pair: not pair[0].explanation.sources)


def _print_cost(shown: Sequence[ShownRun], console: Console) -> None:
    """Prints the cost of guard and scoring."""
    usage = [score.usage for one in shown for score in one.scores]
    guarded = [step.decision.elapsed_ms for one in shown for step in one.run.steps if step.decision]
    tokens = sum(item.prompt_tokens + item.output_tokens for item in usage)
    console.rule("[bold]What it cost[/bold]", align="left")
    console.print(
        f"guard     {median(guarded):.0f} ms a retrieval (median; the model runs on this machine too)\n"
        f"scoring   {sum(item.requests for item in usage)} requests, {tokens:,} tokens, {len(usage)} scores"
    )
