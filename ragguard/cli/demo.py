"""`ragguard demo`: agents that hop, in a corpus full of near misses; captured, guarded, scored, reported.

The part of a framework is in its integration's module `demo`, imported by name: this module knows no framework.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer

from ragguard.errors import InvalidInput, StoreError

if TYPE_CHECKING:
    from rich.console import Console

    from ragguard import Passage, Run, Score
    from ragguard.world import Case

FRAMEWORKS = {"LangGraph": "ragguard_langchain", "LlamaIndex": "ragguard_llamaindex"}
QUESTIONS = 5
"""How many questions the agent of each framework answers."""
K = 5
THRESHOLD = -0.1
"""The guard's threshold here. Passages that mislead nano have utilities nearer to zero than the default threshold."""
TIMED, TURN = 600, 10


def run(
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the results go.")] = Path("demo-out"),
    seed: Annotated[int, typer.Option(help="The seed that chooses the questions.")] = 0,
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
    command = escape(_typed())
    console.print(
        f"in all    {time.perf_counter() - began:.1f} s\n\n"
        f"[bold]Written to {escape(str(out))}[/bold]: report.html, ragguard.db (the store), runs.jsonl\n"
        "(the run file), spans.jsonl (what an OpenTelemetry collector gets, a span a line)\n"
        f"[bold]Next[/bold]      open {escape(str(out))}/report.html in a browser\n"
        f"          {command} report {escape(str(out))}/ragguard.db\n"
        f"          {command} score {escape(str(out))}/runs.jsonl --engine URL --dry-run\n"
        "          your own agent: `instrument(rg)`, as README.md and examples/ show",
        soft_wrap=True,
    )
    if not done:
        raise typer.Exit(1)


def _make_room(out: Path) -> None:
    """Makes the folder for the results, and removes what an earlier demonstration wrote there, and nothing else."""
    left = [out / name for name in ("ragguard.db", "ragguard.db-wal", "ragguard.db-shm", "spans.jsonl")]
    try:
        if left[0].exists() and not left[-1].exists():
            raise InvalidInput(
                "--out", str(out), "a folder without a store of your own: it would be overwritten"
            )
        out.mkdir(parents=True, exist_ok=True)
        for file in left:
            file.unlink(missing_ok=True)
        left[-1].touch()
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


def _demonstrate(attached: dict[str, ModuleType], out: Path, seed: int, console: Console) -> bool:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

    from ragguard import DistractorGuard, RagGuard, connect
    from ragguard.analysis.digest import MISLEADS
    from ragguard.analysis.page import write_html
    from ragguard.storage.files.runfile import write_runs

    engine = connect("nano")
    cases, search = _hard(QUESTIONS * len(attached), seed)
    plans = {case.question: case.sub_questions for case in cases}
    references = {case.question: case.references for case in cases}
    added = {title: _added(module, search(cases[0].question)) for title, module in attached.items()}

    def read(question: str, texts: Sequence[str]) -> str:
        """Returns nano's answer from the passages that were found."""
        prompt = "\n".join([*(f"- {text}" for text in texts), f"Question: {question}", "Answer:"])
        return asyncio.run(engine.sample([prompt], n=1, max_tokens=8, temperature=0))[0][0].text

    provider = TracerProvider()
    with (out / "spans.jsonl").open("w", encoding="utf-8") as spans:
        exporter = ConsoleSpanExporter(out=spans, formatter=lambda span: f"{span.to_json(indent=None)}\n")
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        # With when="run" the spans are those of the finished runs alone.
        rg = RagGuard(engine=engine, store=out / "ragguard.db", tracer_provider=provider, when="run")
        guard = DistractorGuard(rg.engine, THRESHOLD, budget_ms=2000)
        clock = time.perf_counter()
        for number, (title, module) in enumerate(attached.items()):
            ask = module.agent(plans.__getitem__, search, read, guard)
            package = import_module(module.__name__.rpartition(".")[0])
            package.instrument(rg)
            for case in cases[number :: len(attached)]:
                with rg.run(case.question, references=references[case.question], name=title):
                    ask(case.question)
            package.uninstrument()
        asked_for = time.perf_counter() - clock
        report = rg.flush(timeout=120)
        runs = list(rg.runs())
        scores = {item.id: rg.scores(item.id) for item in runs}
        for title in attached:
            _show([item for item in runs if item.name == title], scores, title, console)
        _tell(runs, scores, added, console)
        console.print(
            f"agents    {len(runs)} runs in {asked_for:.1f} s, scored beside them; "
            f"{report.seconds:.1f} s later {'all were scored' if report else report}"
        )
        write_runs(runs, out / "runs.jsonl")
        write_html(rg.store.overviews(MISLEADS), out / "report.html", "ragguard: the demonstration")
        rg.close()
        provider.shutdown()
    return bool(report)


def _hard(count: int, seed: int) -> tuple[list[Case], Callable[[str], list[Passage]]]:
    """Returns two-hop questions that are hard for a reader, and a search over the world's passages.

    The search finds the passages that answer each hop, and many near misses: the same about another person or thing.
    """
    from ragguard import world

    cases, corpus = world.cases(12 * count, seed=seed, hops=2), world.Corpus(world.default_world())
    corpus.passages += [passage for case in cases for passage in case.pool()]
    search = world.Retriever(corpus, K, seed=seed)

    def near_misses(case: Case) -> int:
        """Returns how many near misses the reader sees; −1 where the answer of a hop is not retrieved."""
        count = 0
        for gold, query in zip(case.gold, case.sub_questions, strict=True):
            found = search(query)
            if all(one.text != gold.text for one in found):
                return -1
            fact = _fact(gold)
            count += sum(_fact(one)[0] == fact[0] and _fact(one)[1] != fact[1] for one in found)
        return count

    return sorted(cases, key=near_misses, reverse=True)[:count], search


def _fact(passage: Passage) -> tuple[object, ...]:
    return tuple(passage.metadata[name] for name in ("relation", "subject", "object"))


def _added(module: ModuleType, passages: Sequence[Passage]) -> float:
    """Returns the microseconds that capture adds to a framework's retrieval; captured and plain ones alternate."""
    from ragguard import RagGuard

    retrieve = module.retrieval(passages)
    package = import_module(module.__name__.rpartition(".")[0])
    took: dict[bool, list[float]] = {False: [], True: []}
    with RagGuard(engine="nano", scorers=(), store=None) as rg:
        for number in range(TIMED):
            watched = number // TURN % 2 == 1
            if number % TURN == 0:
                (package.instrument(rg) if watched else package.uninstrument())
            clock = time.perf_counter()
            retrieve()
            took[watched].append((time.perf_counter() - clock) * 1e6)
        package.uninstrument()
    return median(took[True]) - median(took[False])


def _show(runs: Sequence[Run], scores: Mapping[str, Sequence[Score]], title: str, console: Console) -> None:
    """Prints one line about all runs, and one run with its hops."""
    from ragguard.analysis.hops import hop_table
    from ragguard.metrics import exact_match

    def right(item: Run) -> bool:
        return exact_match(item.answer or "", item.references or []) == 1

    def dropped(item: Run) -> int:
        return sum(len(step.decision.dropped) for step in item.steps if step.decision)

    shown = max(runs, key=lambda item: (right(item), dropped(item)))
    passages = sum(len(step.candidates) for item in runs for step in item.steps)
    console.rule(f"[bold]{title}[/bold]", align="left")
    console.print(
        f"{len(runs)} two-hop questions, {sum(map(right, runs))} answered rightly. "
        f"The guard dropped {sum(map(dropped, runs))} of {passages} passages.\nOne run in full:"
    )
    console.print(hop_table(shown, scores[shown.id]))


def _tell(
    runs: Sequence[Run], scores: dict[str, list[Score]], added: dict[str, float], console: Console
) -> None:
    """Prints the cost of capture, guard and scoring."""
    usage = [score.usage for said in scores.values() for score in said]
    guarded = [step.decision.elapsed_ms for item in runs for step in item.steps if step.decision]
    tokens = sum(item.prompt_tokens + item.output_tokens for item in usage)
    hooks = ", ".join(f"{title} {micros:+.0f} µs" for title, micros in added.items())
    console.rule("[bold]What it cost[/bold]", align="left")
    console.print(
        f"capture   {hooks} a retrieval (medians of {TIMED // 2})\n"
        f"guard     {median(guarded):.0f} ms a retrieval (median; the model runs on this machine too)\n"
        f"scoring   {sum(item.requests for item in usage)} requests, {tokens:,} tokens, "
        f"{len([score for said in scores.values() for score in said])} scores"
    )
