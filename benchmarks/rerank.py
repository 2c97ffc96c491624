"""A LangChain agent whose guard asks a reranker about ten passages: how long its search takes with the guard.

    python benchmarks/rerank.py          200 runs of the agent

The reranker is a stub of the `/rerank` protocol in this process, which answers at once, and the reader a scripted
engine: what is measured is what the guard, the layers and the wire cost. The guard drops in each run what the reranker
ranks low. The stub is examined first, as a reranker must be. Beside the time that passes stands the processor's time of
the whole run of the agent, the reranker's included: what is beyond it was waited for, since the machine had other work.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(1, str(Path(__file__).parents[1] / "tests"))

from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import create_retriever_tool
from support.langchain_agents import ANSWER, agent, asked
from support.langchain_parts import call
from support.misbehaving_server import serving
from support.rerank_server import RerankServer
from support.scripted_engine import ScriptedEngine

from benchmarks.machine import record
from benchmarks.options import is_quick, parse, parser
from ragguard import DistractorGuard
from ragguard.engines.connect import connect, open_engine
from ragguard.engines.prompts import load_prompts
from ragguard.lab.exam.examination import examine
from ragguard.records import Decision
from ragguard.scorers.exam.record import keep_record, record_file
from ragguard_langchain import GuardMiddleware

RUNS = 10 if is_quick() else 200
PASSAGES, BUDGET_MS = 10, 1000.0
TARGET_MS = 50.0


class Search(BaseRetriever):
    """Finds ten passages, of which one answers."""

    def _get_relevant_documents(self, query: str, *, run_manager: object) -> list[Document]:
        texts = [f"Oslo sells clocks, as number {at} of its street says." for at in range(PASSAGES - 1)]
        return [Document(page_content=text) for text in (f"Ursula, {query}, founded it.", *texts)]


async def examined(address: str) -> None:
    """Examines the reranker at an address, and keeps the record."""
    prompts, engine = load_prompts("rerank"), open_engine(address)
    keep_record(await examine(engine, prompts), record_file(await engine.info(), prompts))
    await engine.aclose()


class Noting(DistractorGuard):
    """A guard that notes its decisions."""

    def __init__(self, address: str) -> None:
        reader = ScriptedEngine(label=lambda text, label: 0.05 if label == "NO-RESPONSE" else 0.3)
        super().__init__(reader, threshold=0.0, budget_ms=BUDGET_MS, judge=connect(address))
        self.decisions: list[Decision] = []

    def prune(self, query, passages):  # type: ignore[no-untyped-def]
        self.decisions.append(super().prune(query, passages))
        return self.decisions[-1]


def main() -> None:
    parse(parser(__doc__))
    with tempfile.TemporaryDirectory() as folder, serving(RerankServer().handle) as url:
        os.environ["RAGGUARD_EXAMS"] = folder
        asyncio.run(examined(f"rerank:{url}"))
        guard = Noting(f"rerank:{url}")
        computed: list[float] = []
        tool = create_retriever_tool(Search(), "search", "Searches.")
        for number in range(RUNS + 5):
            query = call("search", query=f"who founded mill {number}")
            built: Any = agent(query, ANSWER, tools=[tool], middleware=[GuardMiddleware(guard)])  # type: ignore[no-untyped-call]
            began = time.process_time()
            built.invoke(asked())  # type: ignore[no-untyped-call]
            computed.append(1000 * (time.process_time() - began))
        asyncio.run(guard.aclose())
    decisions = guard.decisions[5:]
    times = sorted(one.elapsed_ms for one in decisions)
    computed = sorted(computed[5:])
    figures = {
        "runs": len(times),
        "passages": PASSAGES,
        "median_ms": round(statistics.median(times), 2),
        "p95_ms": round(times[int(0.95 * len(times))], 2),
        "first_ms": [round(one.elapsed_ms, 2) for one in guard.decisions[:5]],
        "processor_median_ms": round(statistics.median(computed), 2),
        "processor_p95_ms": round(computed[int(0.95 * len(computed))], 2),
        "within_50_ms": round(sum(one <= TARGET_MS for one in times) / len(times), 3),
        "statuses": {
            name: sum(one.status == name for one in decisions) for name in {one.status for one in decisions}
        },
    }
    print(figures)
    print(record("rerank", figures))


if __name__ == "__main__":
    main()
