"""Measures what it costs the writer to find out what an agent's model read: the processor time of the writer's thread a
run, store included, beside the wall time of the run.

    python benchmarks/model_reading.py [--runs 30] [--quick]

The agent is LangChain's, with a scripted model: 4 calls, 5 retrievals of 10 passages of 1.9 KB, all new in each run.
"""

from __future__ import annotations

import random
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from langchain.agents import create_agent
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.messages import HumanMessage
from langchain_core.retrievers import BaseRetriever
from support.langchain_agents import search_tool
from support.langchain_parts import call, says

from benchmarks.machine import record
from benchmarks.options import parse, parser
from ragguard import RagGuard
from ragguard_langchain import RagGuardCallback

TARGET_MS = 4.0
"""The processor time of the writer for a run."""
PASSAGES, LETTERS = 10, 1900
_RANDOM = random.Random(7)
_WORDS = ["".join(_RANDOM.choices("abcdefghijklmnoprstuvw", k=_RANDOM.randint(2, 11))) for _ in range(4000)]


class NewTexts(BaseRetriever):
    """Gives passages of random words that it has never given before."""

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        return [
            Document(page_content=" ".join(_RANDOM.choices(_WORDS, k=260))[:LETTERS]) for _ in range(PASSAGES)
        ]


def processor_ms(thread: str) -> float:
    """Returns the processor time that a thread of this process has taken."""
    for one in threading.enumerate():
        if one.name == thread:
            return int(Path(f"/proc/self/task/{one.native_id}/schedstat").read_text().split()[0]) / 1e6
    return 0.0


def measure(runs: int) -> dict[str, Any]:
    """Runs the agent and returns the medians."""
    turns = (
        (call("search", query="a"), call("search", query="b")), (call("search", query="c"), call("search", query="d")),
        call("search", query="e"), "Ada Berg founded the firm.",
    )  # fmt: skip
    search: Any = search_tool(NewTexts())  # type: ignore[no-untyped-call]
    agent = create_agent(says(*turns), [search])
    writer, wall = [], []
    with tempfile.TemporaryDirectory() as folder:
        rg = RagGuard(engine=None, store=Path(folder) / "reading.db")
        config: Any = {"callbacks": [RagGuardCallback(rg)]}
        for number in range(runs + 1):
            before, began = processor_ms("ragguard-writer"), time.perf_counter()
            agent.invoke({"messages": [HumanMessage("Who founded the firm?")]}, config)
            took = (time.perf_counter() - began) * 1000
            assert rg.flush(60)
            if number:  # the first one warms up
                writer.append(processor_ms("ragguard-writer") - before)
                wall.append(took)
        (run, *_) = rg.runs()
        assert sum(len(step.passages) for step in run.steps) == 5 * PASSAGES, (
            "not all that was read was found"
        )
        rg.close()
    return {
        "runs": runs,
        "writer_ms": round(median(writer), 2),
        "run_ms": round(median(wall), 2),
        "target_ms": TARGET_MS,
    }


def main() -> None:
    """Measures, prints, keeps."""
    options = parser(__doc__)
    options.add_argument("--runs", type=int, default=30, help="how many runs")
    figures = measure(parse(options, runs=2).runs)
    print(
        f"writer {figures['writer_ms']} ms of processor time a run (target {TARGET_MS}); the run {figures['run_ms']} ms"
    )
    record("model_reading", figures)


if __name__ == "__main__":
    main()
