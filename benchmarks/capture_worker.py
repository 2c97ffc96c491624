"""One framework's side of `benchmarks/capture.py`: retrievals with nothing attached, with ragguard, with its peers.

    python benchmarks/capture_worker.py langchain | llama_index

Prints JSON. The contenders take turns in one process, so that a busy moment strikes all; each has until the
turn's end to do in the background what it likes, and is then asked to finish before the next one's turn.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).parents[1] / "integrations"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from ragguard import RagGuard

PASSAGES, SIZE = 20, 2048
ROUNDS, CALLS = 60, 50
TASKS, STALL_SECONDS = 64, 3.0
TEXTS = [f"{number} " + "retrieval " * (SIZE // 10) for number in range(PASSAGES)]


class Framework(Protocol):
    """How a framework retrieves; `wait` is how long its retriever takes in async code, in seconds."""

    def retrieve(self) -> object: ...
    async def aretrieve(self, wait: float = 0.0) -> object: ...


@dataclass
class Contender:
    """Something that watches, or nothing."""

    name: str
    attach: Callable[[], None] = lambda: None
    detach: Callable[[], None] = lambda: None
    settle: Callable[[], object] = lambda: None
    micros: dict[str, list[float]] = field(default_factory=lambda: {"sync": [], "async": []})
    stalls: list[float] = field(default_factory=list)

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Its turn."""
        self.attach()
        try:
            yield
        finally:
            self.detach()
            self.settle()


class Nowhere(SpanExporter):
    """Takes spans and drops them: what a peer sends, and to whom, is not counted against it."""

    def export(self, spans: object) -> SpanExportResult:
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        pass


def spans_to_nowhere() -> TracerProvider:
    """A tracer provider as one has it in production, but for its exporter."""
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Nowhere()))
    return provider


def ragguard(
    folder: str, instrument: Callable[[RagGuard], None], uninstrument: Callable[[], None]
) -> Contender:
    """ragguard with its store on a real disk; nothing is scored, since that is another's time."""
    rg = RagGuard(engine="nano", scorers=(), store=Path(folder) / "runs.db", queue_size=100_000)
    return Contender("ragguard", lambda: instrument(rg), uninstrument, lambda: rg.flush(timeout=60))


def openinference(instrumentor: Any) -> Contender:
    """OpenInference's instrumentation of the framework."""
    provider = spans_to_nowhere()
    return Contender(
        "openinference",
        lambda: instrumentor.instrument(tracer_provider=provider, skip_dep_check=True),
        instrumentor.uninstrument,
        provider.force_flush,
    )


def llama_index(folder: str) -> tuple[Framework, list[Contender]]:
    """LlamaIndex and those who watch it."""
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
    from openinference.instrumentation.llama_index import LlamaIndexInstrumentor

    from ragguard_llamaindex import instrument, uninstrument

    found = [
        NodeWithScore(
            node=TextNode(text=text, metadata={"source": "a.pdf", "page": n, "lang": "en"}), score=1 / (n + 1)
        )
        for n, text in enumerate(TEXTS)
    ]

    class Shelf(BaseRetriever):
        wait = 0.0

        def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            return found

        async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            if self.wait:
                await asyncio.sleep(self.wait * random.uniform(0.5, 1.5))
            return found

    shelf = Shelf()

    class LlamaIndex:
        def retrieve(self) -> object:
            return shelf.retrieve("which firm is based in Oslo?")

        async def aretrieve(self, wait: float = 0.0) -> object:
            shelf.wait = wait
            return await shelf.aretrieve("which firm is based in Oslo?")

    contenders = [ragguard(folder, instrument, uninstrument), openinference(LlamaIndexInstrumentor())]
    return LlamaIndex(), contenders


def langchain(folder: str) -> tuple[Framework, list[Contender]]:
    """LangChain and those who watch it."""
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.runnables import RunnableConfig
    from openinference.instrumentation.langchain import LangChainInstrumentor

    from ragguard_langchain import instrument, uninstrument

    found = [
        Document(text, metadata={"source": "a.pdf", "page": n, "lang": "en"}) for n, text in enumerate(TEXTS)
    ]
    config: RunnableConfig = {}

    class Shelf(BaseRetriever):
        wait: float = 0.0

        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
            return found

        async def _aget_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
            if self.wait:
                await asyncio.sleep(self.wait * random.uniform(0.5, 1.5))
            return found

    shelf = Shelf()

    class LangChain:
        def retrieve(self) -> object:
            return shelf.invoke("which firm is based in Oslo?", config)

        async def aretrieve(self, wait: float = 0.0) -> object:
            shelf.wait = wait
            return await shelf.ainvoke("which firm is based in Oslo?", config)

    contenders = [ragguard(folder, instrument, uninstrument), openinference(LangChainInstrumentor())]
    if find_spec("langfuse"):
        from langfuse import Langfuse
        from langfuse.langchain import CallbackHandler

        client = Langfuse(
            public_key="pk", secret_key="sk", base_url="http://127.0.0.1:9", span_exporter=Nowhere(),
            tracer_provider=TracerProvider(),
        )  # fmt: skip
        handler = CallbackHandler()
        contenders.append(
            Contender(
                "langfuse",
                lambda: config.update(callbacks=[handler]),
                lambda: config.pop("callbacks", None),
                client.flush,
            )
        )
    return LangChain(), contenders


def timed(framework: Framework) -> list[float]:
    """Microseconds of each of some calls, one after the other."""
    taken = []
    for _ in range(CALLS):
        start = time.perf_counter()
        framework.retrieve()
        taken.append(time.perf_counter() - start)
    return [seconds * 1e6 for seconds in taken]


async def atimed(framework: Framework) -> list[float]:
    """The same in async code."""
    taken = []
    for _ in range(CALLS):
        start = time.perf_counter()
        await framework.aretrieve()
        taken.append(time.perf_counter() - start)
    return [seconds * 1e6 for seconds in taken]


async def stalls(framework: Framework) -> list[float]:
    """How many milliseconds late the event loop is, while many retrievals are under way at any time."""
    end = time.perf_counter() + STALL_SECONDS
    late = []

    async def retrieve() -> None:
        while time.perf_counter() < end:
            await framework.aretrieve(wait=0.25)

    tasks: list[Awaitable[None]] = [asyncio.create_task(retrieve()) for _ in range(TASKS)]
    while (start := time.perf_counter()) < end:
        await asyncio.sleep(0.001)
        late.append((time.perf_counter() - start - 0.001) * 1e3)
    await asyncio.gather(*tasks)
    return late


def percentiles(values: list[float]) -> dict[str, float]:
    """The middle, and what one in a hundred exceeds."""
    return {
        "p50": round(statistics.median(values), 2),
        "p99": round(statistics.quantiles(values, n=100)[98], 2),
    }


def measure(name: str) -> dict[str, Any]:
    """All contenders, round by round."""
    with tempfile.TemporaryDirectory() as folder:
        framework, watching = (llama_index if name == "llama_index" else langchain)(folder)
        contenders = [Contender("bare"), *watching]
        for number in range(ROUNDS + 1):
            for contender in random.sample(contenders, len(contenders)):
                with contender.attached():
                    taken = {"sync": timed(framework)}
                with contender.attached():
                    taken["async"] = asyncio.run(atimed(framework))
                if number:  # the first round is for warming up
                    for mode, micros in taken.items():
                        contender.micros[mode] += micros
        for contender in contenders:
            with contender.attached():
                contender.stalls = asyncio.run(stalls(framework))
    return {
        contender.name: {
            **{mode: percentiles(micros) for mode, micros in contender.micros.items()},
            "loop_late_ms": {**percentiles(contender.stalls), "longest": round(max(contender.stalls), 2)},
        }
        for contender in contenders
    }


if __name__ == "__main__":
    random.seed(0)
    print(json.dumps(measure(sys.argv[1])))
