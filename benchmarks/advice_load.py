"""Measures advice under load: how many calls are judged, and how late the others come, as more agents ask at once.

    python benchmarks/advice_load.py

The engine of a fixed latency runs in this process, so its own work counts against the advice; each agent asks again as
soon as it has its advice.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.scripted_engine import ScriptedEngine

from benchmarks.machine import machine, record
from ragguard import Passage, RagGuard, RetrievalStep, Run
from ragguard.engines.base import LabelProbs, Samples

AGENTS = (1, 10, 40, 200)
LATENCY_S = 0.01
BUDGET_MS = 300.0
SECONDS = 5.0
PASSAGES = 3


def probability(text: str, label: str) -> float:
    """Finds each passage relevant, and lets the reader answer."""
    return {"NO-RESPONSE": 0.05, "A": 0.9, "B": 0.1, "5": 0.9}.get(label, 0.0)


class SlowEngine(ScriptedEngine):
    """Answers after a fixed latency, any number of calls side by side."""

    async def sample(self, *args: Any, **named: Any) -> Samples:
        await asyncio.sleep(LATENCY_S)
        return await super().sample(*args, **named)

    async def label_probs(self, *args: Any, **named: Any) -> LabelProbs:
        await asyncio.sleep(LATENCY_S)
        return await super().label_probs(*args, **named)


def run_of(agent: int, turn: int) -> Run:
    """Returns a run that no other call has asked about, so that no answer is cached."""
    question = f"Who founded the mill {agent}-{turn}?"
    passages = [
        Passage(f"Ada Berg founded the mill {agent}-{turn}, says page {at}.") for at in range(PASSAGES)
    ]
    return Run(question=question, steps=[RetrievalStep(query=question, passages=passages)])


async def measured(agents: int) -> dict[str, Any]:
    """Returns the figures for so many agents that ask at once."""
    engine = SlowEngine(label=probability, answer=lambda text, index: "Ada Berg")
    waits: list[float] = []
    statuses: dict[str, int] = {}
    async with RagGuard(engine, store=None, scorers=()) as rg:
        first = await rg.advice.aadvise(run_of(-1, 0), 10_000)
        if first.status != "judged" or not engine.calls:
            raise SystemExit(f"the engine was not asked: {first}")
        end = time.monotonic() + SECONDS

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
    rows = []
    for agents in AGENTS:
        rows.append(asyncio.run(measured(agents)))
        print(rows[-1], flush=True)
    print(record("advice_load", {"machine": machine(), "budget_ms": BUDGET_MS, "rows": rows}))


if __name__ == "__main__":
    main()
