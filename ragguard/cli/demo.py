"""`ragguard demo`: two-hop questions over a corpus with near misses; captured, guarded, scored, reported."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ragguard import DistractorGuard, RagGuard
    from ragguard.engines.base import Engine
    from ragguard.world import Case, Retriever

QUESTIONS = 4


@dataclass
class _Agent:
    """Asks hop by hop, lets the guard look at what it found, and answers from what is left."""

    rg: RagGuard
    engine: Engine
    guard: DistractorGuard
    search: Retriever
    capture_us: list[float] = field(default_factory=list)
    guard_ms: list[float] = field(default_factory=list)

    async def answer(self, case: Case) -> None:
        """One run: a search for each sub-question, then the answer."""
        from ragguard.engines.prompts import load_prompts

        read = []
        async with self.rg.run(case.question, references=case.references) as run:
            for query in case.sub_questions:
                found = self.search(query)
                decision = await self.guard.aprune(query, found)
                self.guard_ms.append(decision.elapsed_ms)
                clock = time.perf_counter()
                run.retrieved(query, decision.kept, candidates=found, decision=decision)
                self.capture_us.append((time.perf_counter() - clock) * 1e6)
                read += [passage.text for passage in decision.kept]
            prompt = load_prompts("nano").render("answer", read, question=case.question)
            drawn = await self.engine.sample([prompt], n=1, max_tokens=8, temperature=0.0)
            run.answered(drawn[0][0].text)


def run(
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the results go.")] = Path("demo-out"),
    seed: Annotated[int, typer.Option(help="Of the questions.")] = 0,
) -> None:
    """Show it at work, offline, on the small model and the made-up world that ship with it."""
    from rich.console import Console

    from ragguard import DistractorGuard, RagGuard, connect, world
    from ragguard.report.hops import print_hops
    from ragguard.report.html import write_html
    from ragguard.store.runfile import write_runs

    console, began = Console(highlight=False), time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    database, run_file, page = out / "ragguard.db", out / "runs.jsonl", out / "report.html"
    for suffix in ("", "-wal", "-shm"):
        database.with_name(database.name + suffix).unlink(missing_ok=True)
    console.print("[bold]Two-hop questions, searched hop by hop in a corpus full of near misses.[/bold]")
    engine = connect("nano")
    rg = RagGuard(engine=engine, store=database)
    agent = _Agent(
        rg, engine, DistractorGuard(engine, budget_ms=2000), world.retriever(k=4, noise=0.2, seed=seed)
    )
    asyncio.run(_ask(agent, world.cases(QUESTIONS, seed=seed, hops=2)))
    report = rg.flush(timeout=120)
    print_hops(rg, console)
    usage = [score.usage for item in rg.runs() for score in rg.scores(item.id)]
    write_runs(rg.runs(), run_file)
    write_html(rg.store.scored_runs(), page, "ragguard: the demonstration")
    rg.close()
    tokens = sum(item.prompt_tokens + item.output_tokens for item in usage)
    console.print(
        f"\nscoring   {report}; {sum(item.requests for item in usage)} requests, {tokens:,} tokens\n"
        f"capture   {median(agent.capture_us):.0f} µs a retrieval (median, on the agent's own path)\n"
        f"guard     {median(agent.guard_ms):.0f} ms a retrieval (median; nano shares this machine)\n"
        f"in all    {time.perf_counter() - began:.1f} s\n\n"
        f"written   {database}, {run_file}, {page}\n"
        f"next      open {page} in a browser\n"
        f"          ragguard report {database}\n"
        f"          ragguard score {run_file} --engine http://localhost:8000/v1 --store real.db --dry-run"
    )
    if not report:
        raise typer.Exit(1)


async def _ask(agent: _Agent, cases: list[Case]) -> None:
    for case in cases:
        await agent.answer(case)
