"""Measures advice under load: how many calls are judged, and how late the others come, as more agents ask at once.

    python benchmarks/advice_load.py

The engine of a fixed latency runs in this process, so its own work counts against the advice; each agent asks again as
soon as it has its advice.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.machine import record
from benchmarks.options import parse, parser
from ragguard import Passage, RagGuard, RetrievalStep, Run
from ragguard.engines.base import EngineInfo, LabelProbs, Sample, Samples
from ragguard.records import Usage

AGENTS = (1, 10, 40, 200)
LATENCY_S = 0.01
BUDGET_MS = 300.0
PASSAGES = 3


LABELS = {"NO-RESPONSE": 0.05, "A": 0.9, "B": 0.1, "5": 0.9}
"""The probabilities with which each passage is relevant, answers, and lets the reader answer."""


class SlowEngine:
    """Answers after a fixed latency, any number of calls side by side, and does as little as can be for it."""

    async def sample(self, prompts: Sequence[Any], n: int = 1, *args: Any, **named: Any) -> Samples:
        await asyncio.sleep(LATENCY_S)
        return Samples([[Sample("Ada Berg", (-0.1, -0.1))] * n for _ in prompts], self._usage(prompts))

    async def label_probs(self, prompts: Sequence[Any], labels: Sequence[str], *args: Any) -> LabelProbs:
        await asyncio.sleep(LATENCY_S)
        row = [LABELS.get(label, 0.0) for label in labels]
        return LabelProbs(np.array([row] * len(prompts)), usage=self._usage(prompts))

    async def info(self) -> EngineInfo:
        return EngineInfo("slow", "slow", "slow", capabilities=frozenset({"exact_labels", "batch"}))

    async def aclose(self) -> None:
        pass

    def _usage(self, prompts: Sequence[Any]) -> Usage:
        return Usage(1, len(prompts), 100 * len(prompts), len(prompts), LATENCY_S)


def run_of(agent: int, turn: int) -> Run:
    """Returns a run that no other call has asked about, so that no answer is cached."""
    question = f"Who founded the mill {agent}-{turn}?"
    passages = [
        Passage(f"Ada Berg founded the mill {agent}-{turn}, says page {at}.") for at in range(PASSAGES)
    ]
    return Run(question=question, steps=[RetrievalStep(query=question, passages=passages)])


async def measured(agents: int, seconds: float) -> dict[str, Any]:
    """Returns the figures for so many agents that ask at once."""
    waits: list[float] = []
    statuses: dict[str, int] = {}
    async with RagGuard(SlowEngine(), store=None, scorers=()) as rg:
        first = await rg.advice.aadvise(run_of(-1, 0), 10_000)
        if first.status != "judged" or not first.usage.requests:
            raise SystemExit(f"the engine was not asked: {first}")
        end = time.monotonic() + seconds

        async def agent(number: int) -> None:
            turn = 0
            while time.monotonic() < end:
                turn += 1
                run, began = run_of(number, turn), time.monotonic()
                advice = await rg.advice.aadvise(run, BUDGET_MS)
                waits.append((time.monotonic() - began) * 1e3)
                statuses[advice.status] = statuses.get(advice.status, 0) + 1

        await asyncio.gather(*map(agent, range(agents)))
    late = np.maximum(0.0, np.array(waits) - BUDGET_MS)
    return {
        "agents": agents,
        "calls": len(waits),
        "judged": round(statuses.get("judged", 0) / len(waits), 3),
        "statuses": statuses,
        "late_ms_p50": round(float(np.percentile(late, 50)), 1),
        "late_ms_p99": round(float(np.percentile(late, 99)), 1),
        "late_ms_most": round(float(late.max()), 1),
    }


def main() -> None:
    """Measures each number of agents and prints its row."""
    options = parser(__doc__)
    options.add_argument("--seconds", type=float, default=5.0, help="how long each number of agents asks")
    seconds = parse(options, seconds=0.3).seconds
    rows = []
    for agents in AGENTS:
        rows.append(asyncio.run(measured(agents, seconds)))
        print(rows[-1], flush=True)
    print(record("advice_load", {"budget_ms": BUDGET_MS, "rows": rows}))


if __name__ == "__main__":
    main()
