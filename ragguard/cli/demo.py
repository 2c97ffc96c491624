"""`ragguard demo`: agents that hop, in a corpus full of near misses; captured, guarded, scored, compared, reported.

The part of a framework is in its integration's module `demo`, imported by name: this module knows no framework.
"""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ragguard import DistractorGuard, Engine, RagGuard, Run, Score, connect, world
from ragguard.analysis.comparison import Comparison
from ragguard.analysis.hops import hop_table
from ragguard.analysis.page import write_html
from ragguard.analysis.pairs import compare, read_questions
from ragguard.errors import InvalidInput, MissingDependency
from ragguard.facts.explanation import Explanation, explain
from ragguard.facts.run_view import RunView
from ragguard.records import Decision
from ragguard.scorers.answers import Answers
from ragguard.storage.files.runfile import write_runs
from ragguard.world import Case, Retriever

FRAMEWORKS = {"LangGraph": "ragguard_langchain", "LlamaIndex": "ragguard_llamaindex"}
THRESHOLD = -0.05
"""The guard's threshold here. Passages that mislead nano have utilities nearer to zero than the default threshold."""
SEED, DRAWN = 5, 160
"""The seed that draws the questions, and how many are drawn."""
COMPARED, GUARDED = (75, 83, 94, 99, 100, 104, 112, 114), (68, 115, 118, 26, 153)
"""The places of the questions that are answered with a worse search and a better one, and of those that are answered
without and with the guard. They were chosen for showing: what is found has few near misses for the first, and most for
the second."""


def run(
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the results go.")] = Path("demo-out"),
) -> None:
    """Show ragguard at work, offline, with a small model and a made-up world that ship with the package.

    Exit code 0: shown. 1: shown, but not all was scored in time. 2: a framework is missing, or the folder holds a store
    of your own.
    """
    console = Console(highlight=False)
    began = time.perf_counter()
    try:
        modules = [import_module(f"{package}.demo") for package in FRAMEWORKS.values()]
    except ImportError as error:
        raise MissingDependency(error.name or "more", "ragguard demo", "demo") from error
    _make_room(out)
    done = _demonstrate(modules, out, console)
    folder = escape(shlex.quote(str(out)))
    console.print(
        f"in all    {time.perf_counter() - began:.1f} s\n\n"
        f"[bold]Written to {folder}[/bold]: report.html, ragguard.db (the store), runs.jsonl (the run file),\n"
        "and worse-search.db\n"
        f"[bold]Next[/bold]      open {folder}/report.html in a browser\n"
        f"          ragguard report {folder}/ragguard.db\n"
        f"          ragguard compare {folder}/worse-search.db {folder}/ragguard.db\n"
        f"          ragguard score {folder}/runs.jsonl --engine URL --dry-run\n"
        "          your own agent: `instrument(rg)`, as README.md and examples/ show",
        soft_wrap=True,
    )
    if not done:
        raise typer.Exit(1)


def _make_room(out: Path) -> None:
    """Makes the folder for the results, and removes what an earlier demonstration wrote there, and nothing else."""
    if (out / "ragguard.db").exists() and not (out / "worse-search.db").exists():
        allowed = "a folder without a store of your own: it would be overwritten"
        raise InvalidInput("--out", str(out), allowed)
    out.mkdir(parents=True, exist_ok=True)
    for file in (*out.glob("ragguard.db*"), *out.glob("worse-search.db*")):
        file.unlink()


class ShownRun(NamedTuple):
    """A run with its scores and its explanation."""

    run: Run
    scores: Sequence[Score]
    explanation: Explanation

    @property
    def is_right(self) -> bool:
        return self.explanation.cause == "right"

    @property
    def decisions(self) -> list[Decision]:
        """The decisions of the guard, step by step."""
        return [step.decision for step in self.run.steps if step.decision]


def _demonstrate(modules: Sequence[ModuleType], out: Path, console: Console) -> bool:
    engine = connect("nano")
    stage = Stage(engine)
    plain, hard = stage.cases(COMPARED), stage.cases(GUARDED)
    (one, module), (other, other_module) = zip(FRAMEWORKS, modules, strict=True)
    worse, better = out / "worse-search.db", out / "ragguard.db"
    clock = time.perf_counter()
    with RagGuard(engine=engine, store=worse, when="run", scorers=SCORERS) as rg:
        stage.answer(rg, plain, module, f"{one}, worse search", stage.worse_search)
        first = rg.flush(timeout=120)
    with RagGuard(engine=engine, store=better, when="run", scorers=SCORERS) as rg:
        guard = DistractorGuard(rg.engine, THRESHOLD, budget_ms=10_000)
        stage.answer(rg, plain, module, f"{one}, better search", stage.search)
        stage.answer(rg, hard, other_module, f"{other}, guard", stage.search, guard)
        stage.answer(rg, hard, other_module, f"{other}, no guard", stage.search)
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
        write_html(rg.store.overviews(), out / "report.html", title)
    return bool(first and second)


def _print_findings(shown: Sequence[ShownRun], compared: Comparison, console: Console) -> None:
    """Prints four lines of findings, and one answer that the guard saved: how it went wrong without it, and right with
    it."""
    pairs = [
        (plain, guarded)
        for plain in shown
        for guarded in shown
        if plain.run.question == guarded.run.question and guarded.decisions and not plain.decisions
    ]
    saved = [pair for pair in pairs if pair[1].is_right and not pair[0].is_right]
    saved.sort(key=lambda pair: not pair[0].explanation.sources)
    paid = max(shown, key=_least_loss)
    console.rule("[bold]What it saw, on questions chosen for showing[/bold]", align="left")
    _line(console, "paid", f"“{paid.run.question}” {paid.explanation.sentences[-1]}")
    if saved:
        wrong, right = saved[0]
        _line(console, "misled", f"“{wrong.run.question}” {wrong.explanation.sentences[0]}")
        dropped = sum(len(decision.dropped) for decision in right.decisions)
        passages = sum(len(step.candidates) for step in right.run.steps)
        lost = sum(plain.is_right and not guarded.is_right for plain, guarded in pairs)
        sentence = (
            f"With the guard, which dropped {dropped} of {passages} passages, the same agent answered "
            f"“{right.run.answer}”: right. {len(saved)} of {len(pairs)} answers were saved, {lost} lost."
        )
        _line(console, "saved", sentence)
    _line(console, "compared", f"A worse search with a better one. {compared.verdict.sentence}")
    for one in saved[0] if saved else ():
        console.rule(f"[bold]{one.run.name}[/bold]", align="left")
        console.print(hop_table(RunView(one.run, one.scores)))


def _line(console: Console, word: str, sentence: str) -> None:
    """Prints a word, and a sentence beside it."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(min_width=8)
    grid.add_row(Text(word, "bold"), Text(sentence))
    console.print(grid)


def _least_loss(shown: ShownRun) -> float:
    """Returns the least that a run which was answered rightly loses without one of its hops."""
    losses = [score.value for score in shown.scores if score.name == "loss_without" and shown.is_right]
    return min(losses, default=-1.0)


def _print_cost(shown: Sequence[ShownRun], console: Console) -> None:
    """Prints the cost of guard and scoring."""
    usage = [score.usage for one in shown for score in one.scores]
    guarded = [decision.elapsed_ms for one in shown for decision in one.decisions]
    tokens = sum(item.prompt_tokens + item.output_tokens for item in usage)
    console.rule("[bold]What it cost[/bold]", align="left")
    console.print(
        f"guard     {median(guarded):.0f} ms a retrieval (median; the model runs on this machine too)\n"
        f"scoring   {sum(item.requests for item in usage)} requests, {tokens:,} tokens, {len(usage)} scores"
    )


SCORERS = ("belief", "utility", Answers())
"""The scorers of the demonstration. nano rates answers to sub-questions too badly to show coverage."""
K = 5
NOISE = 0.8
"""The share of random passages among the finds of the worse search."""


class Stage:
    """Two-hop questions, and passages among which are many near misses: the same about another person or thing."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._drawn = engine, world.cases(DRAWN, seed=SEED, hops=2)
        corpus = world.Corpus(world.default_world())
        corpus.passages += [passage for case in self._drawn for passage in case.pool()]
        self.search = world.Retriever(corpus, K, seed=SEED)
        self.worse_search = world.Retriever(corpus, K, noise=NOISE, seed=SEED)

    def cases(self, places: Sequence[int]) -> list[Case]:
        """Returns the questions at some places of those that were drawn."""
        return [self._drawn[place] for place in places]

    def answer(
        self,
        rg: RagGuard,
        cases: Sequence[Case],
        module: ModuleType,
        name: str,
        search: Retriever,
        guard: DistractorGuard | None = None,
    ) -> None:
        """Lets the agent in a framework's module `demo` answer the questions, captured by `rg` as runs of that name."""
        plans = {case.question: case.sub_questions for case in cases}
        ask = module.agent(plans.__getitem__, search, self._read, guard)
        integration = import_module(module.__name__.rpartition(".")[0])
        integration.instrument(rg)
        for case in cases:
            with rg.run(case.question, references=case.references, name=name):
                ask(case.question)
        integration.uninstrument()

    def _read(self, question: str, texts: Sequence[str]) -> str:
        """Returns the model's answer from the passages that were found."""
        prompt = "\n".join([*(f"- {text}" for text in texts), f"Question: {question}", "Answer:"])
        return asyncio.run(self._engine.sample([prompt], n=1, max_tokens=8, temperature=0))[0][0].text
