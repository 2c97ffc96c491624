"""Counts what scoring asks, beside a plan that shares nothing; and how many steps a second it scores.

    python benchmarks/scoring.py              counts on 200 two-hop runs, live scoring, and nano's pace
    python benchmarks/scoring.py --live       live scoring alone, into scoring_live.json
    python benchmarks/scoring.py --vllm       the pace on a real vLLM server too (started here, serving nano)
    python benchmarks/scoring.py --url URL    the pace on a server that is there

The naive plan asks every sample, every passage, every rating and every pair alone: contexts are those of the
run (none, after each step, each step alone), answers are clustered as the paper's code does it (with the first
answer of each cluster, both ways, equal or not), and each answer is compared with each reference both ways.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from benchmarks import scoring_live
from benchmarks.machine import record
from benchmarks.options import parse, parser
from ragguard import world
from ragguard.engines.base import (
    Engine,
    EngineInfo,
    LabelMode,
    LabelProbs,
    Prompt,
    PromptLike,
    Samples,
    as_prompt,
)
from ragguard.engines.connect import connect, open_engine
from ragguard.engines.entailer import EngineEntailer
from ragguard.engines.entailment import Entailments, Pair
from ragguard.metrics import normalise
from ragguard.records import Run, Score
from ragguard.scorers.pipeline import ScoringPipeline
from ragguard.scorers.question import prompt_tokens

SAMPLES = 10
KINDS: tuple[dict[str, Any], ...] = (
    {}, {"useless_steps": 1}, {"parallel": True}, {"mislead": (2,)}, {"miss": (1,)},
)  # fmt: skip


def make_runs(n: int) -> list[Run]:
    """Makes two-hop runs: straight, with a useless step, with parallel hops, misled, and with a hop that found
    nothing."""
    cases = world.cases(n, seed=1, hops=2)
    return [world.make_run(case, seed=i, **KINDS[i % len(KINDS)]) for i, case in enumerate(cases)]


@dataclass
class Meter:
    """An engine that counts what passes through."""

    engine: Engine
    requests: Counter[str] = field(default_factory=Counter)
    prompts: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    answers: dict[Prompt, list[str]] = field(default_factory=dict)

    async def sample(
        self, prompts: Sequence[PromptLike], n: int = 10, max_tokens: int = 64, temperature: float = 1.0,
        seed: int | None = None, *, deadline: float | None = None, priority: int = 0,
    ) -> Samples:  # fmt: skip
        self._count("sample", prompts)
        drawn = await self.engine.sample(
            prompts, n, max_tokens, temperature, seed, deadline=deadline, priority=priority
        )
        for prompt, row in zip(prompts, drawn, strict=True):
            self.answers[as_prompt(prompt)] = [sample.text for sample in row]
        return drawn

    async def label_probs(
        self, prompts: Sequence[PromptLike], labels: Sequence[str], mode: LabelMode | None = None,
        deadline: float | None = None, priority: int = 0,
    ) -> LabelProbs:  # fmt: skip
        self._count("label_probs", prompts)
        return await self.engine.label_probs(prompts, labels, mode, deadline, priority)

    async def info(self) -> EngineInfo:
        return await self.engine.info()

    async def aclose(self) -> None:
        await self.engine.aclose()

    @property
    def sent(self) -> tuple[int, int, int]:
        """Requests, prompts and prompt tokens."""
        return sum(self.requests.values()), sum(self.prompts.values()), self.tokens

    def _count(self, verb: str, prompts: Sequence[PromptLike]) -> None:
        self.requests[verb] += 1
        self.prompts[verb] += len(prompts)
        self.tokens += sum(prompt_tokens(as_prompt(prompt)) for prompt in prompts)


@dataclass
class PairMeter:
    """An entailer that remembers what was compared."""

    entailer: EngineEntailer
    known: dict[tuple[str, str], bool] = field(default_factory=dict)
    pairs: int = 0

    async def entail(
        self, pairs: Sequence[Pair], *, deadline: float | None = None, priority: int = 0
    ) -> Entailments:
        self.pairs += len(pairs)
        found = await self.entailer.entail(pairs, deadline=deadline, priority=priority)
        for pair, p in zip(pairs, found.p, strict=True):
            self.known[normalise(pair.premise), normalise(pair.hypothesis)] = bool(p[0] >= 0.5)
        return found

    async def info(self) -> EngineInfo:
        return await self.entailer.info()

    async def aclose(self) -> None:
        await self.entailer.aclose()


@dataclass
class Cost:
    """How many requests, prompts, pairs and tokens a plan needs."""

    requests: int = 0
    prompts: int = 0
    pairs: int = 0
    prompt_tokens: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))


def naive(run: Run, meter: Meter, compared: PairMeter) -> Cost:
    """The plan that shares nothing, with the answers that were really drawn."""
    contexts = [row for prompt, row in meter.answers.items() if len(row) == SAMPLES]
    sizes = [prompt_tokens(prompt) for prompt, row in meter.answers.items() if len(row) == SAMPLES]
    steps = sum(1 for step in run.steps if step.passages)
    # Equal contexts were drawn once here and count as often as a run has them.
    repeated = max(0, 1 + 2 * steps - len(contexts))
    order = [*range(len(contexts)), *([1] * repeated)]
    pairs = sum(_pairs(contexts[at], len(run.references or ()), compared) for at in order)
    passages = sum(len(step.candidates) for step in run.steps)
    sub_questions = len(run.sub_questions or ())
    judged = 2 * passages + sub_questions * (passages + 1) + 1
    prompts = SAMPLES * len(order) + judged + pairs
    one = meter.tokens / max(1, sum(meter.prompts.values()))
    tokens = SAMPLES * sum(sizes[at] for at in order) + round(one * (judged + pairs))
    return Cost(prompts, prompts, pairs, tokens)


def _pairs(answers: Sequence[str], references: int, compared: PairMeter) -> int:
    """Comparisons of one context, both ways: with the first of each cluster until one is met, and with references."""
    first: list[str] = []
    count = 0
    for answer in map(normalise, answers):
        for other in first:
            count += 2
            if answer == other or (
                compared.known.get((answer, other)) and compared.known.get((other, answer))
            ):
                break
        else:
            first.append(answer)
    return count + 2 * len(answers) * references


async def count(runs: Sequence[Run]) -> dict[str, Any]:
    """Ours beside the naive plan, and the plan that was foretold."""
    ours, alone, foretold = Cost(), Cost(), Cost()
    for run in runs:
        meter = Meter(open_engine("nano"))
        compared = PairMeter(EngineEntailer(meter))
        pipeline = ScoringPipeline(meter, entailer=compared)
        await pipeline.results(run)
        ours += Cost(sum(meter.requests.values()), sum(meter.prompts.values()), compared.pairs, meter.tokens)
        alone += naive(run, meter, compared)
        plan = await pipeline.plan(run)
        pairs, total = plan.calls["entailer", "entail"].prompts, plan.total
        foretold += Cost(total.requests, total.prompts, pairs, total.prompt_tokens)
    n = len(runs)
    return {
        "runs": n,
        "steps": sum(len(run.steps) for run in runs),
        "per_run": {
            name: {key: round(value / n, 2) for key, value in vars(cost).items()}
            for name, cost in (("ours", ours), ("naive", alone), ("planned", foretold))
        },
        "requests_share": round(ours.requests / alone.requests, 5),
        "pairs_share": round(ours.pairs / alone.pairs, 5),
        "prompt_tokens_share": round(ours.prompt_tokens / alone.prompt_tokens, 5),
        "targets": {"requests_share": 1 / 8, "pairs_share": 1 / 2},
    }


async def pace(engine: Engine, runs: Sequence[Run], together: int) -> dict[str, Any]:
    """Steps scored in a second, several runs at a time as the service does it."""
    pipeline = ScoringPipeline(engine)
    await pipeline.results(runs[0])
    left, started = list(runs[1:]), time.perf_counter()

    async def work() -> int:
        bad = 0
        while left:
            bad += sum(not isinstance(result, Score) for result in await pipeline.results(left.pop()))
        return bad

    failures = sum(await asyncio.gather(*(work() for _ in range(together))))
    seconds = time.perf_counter() - started
    steps = sum(len(run.steps) for run in runs[1:])
    return {
        "engine": (await engine.info()).kind,
        "steps": steps,
        "runs_at_once": together,
        "seconds": round(seconds, 2),
        "steps_per_second": round(steps / seconds, 2),
        "failures": failures,
    }


def main() -> None:
    """Measures, prints and records."""
    options = parser(__doc__)
    options.add_argument("--runs", type=int, default=200)
    options.add_argument("--paced", type=int, default=50, help="runs for the pace")
    options.add_argument("--together", type=int, default=8, help="runs scored at once")
    options.add_argument("--live", action="store_true", help="live scoring alone")
    options.add_argument("--vllm", action="store_true", help="start a vLLM server that serves nano")
    options.add_argument("--url", help="an OpenAI-compatible server, such as http://localhost:8000/v1")
    chosen = parse(options, runs=2, paced=2)
    runs = make_runs(max(chosen.runs, chosen.paced + 1))
    nano = open_engine("nano")
    live = scoring_live.figures(runs[: chosen.runs], lambda: Meter(nano))
    print(record("scoring_live", live).read_text())
    if chosen.live:
        return
    figures: dict[str, Any] = {"counts": asyncio.run(count(runs[: chosen.runs])), "pace": []}
    paced = runs[: chosen.paced + 1]
    figures["pace"].append(asyncio.run(pace(connect("nano"), paced, chosen.together)))
    if chosen.url:
        figures["pace"].append(asyncio.run(pace(connect(chosen.url), paced, chosen.together)))
    if chosen.vllm:
        from support.vllm_server import serve

        from ragguard.engines.nano.nano_engine import write_checkpoint

        with tempfile.TemporaryDirectory() as folder:
            write_checkpoint(Path(folder))
            with serve(Path(folder), "nano") as server:
                figures["pace"].append(asyncio.run(pace(connect(server.url), paced, chosen.together)))
    print(record("scoring", figures).read_text())


if __name__ == "__main__":
    main()
