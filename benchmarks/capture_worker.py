"""Measures one framework for `benchmarks/capture.py`: retrievals with nothing attached, with ragguard, with its peers.

    python benchmarks/capture_worker.py langchain | llama_index ROUNDS [--quick]

Prints JSON. The contenders take turns in one process, so that a busy moment strikes all; each has until the
turn's end to do in the background what it likes, and is then asked to finish before the next one's turn. "empty"
is a handler that does nothing: what the framework itself takes for telling anybody anything.
"""

from __future__ import annotations

import asyncio
import gc
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
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

sys.path.insert(0, str(Path(__file__).parents[1] / "integrations"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from benchmarks.options import is_quick
from ragguard import RagGuard

PASSAGES, SIZE = 20, 2048
CALLS, HOOK_CALLS = (2, 20) if is_quick() else (50, 3000)
TASKS, STALL_SECONDS, STALL_TURNS = (4, 0.1, 1) if is_quick() else (64, 2.0, 5)
SINGLE_CALLS, PAUSE = (2, 0.01) if is_quick() else (50, 0.01)
"""Retrievals one at a time, with a pause in seconds between them: a service with little to do."""
SATURATED_CALLS = 32 if is_quick() else 1000
"""Retrievals on an event loop that has no pause."""
TEXTS = [f"{number} " + "retrieval " * (SIZE // 10) for number in range(PASSAGES)]


class Framework(Protocol):
    """How a framework retrieves; `wait` is how long its retriever takes in async code, in seconds."""

    def retrieve(self) -> object: ...
    async def aretrieve(self, wait: float = 0.0) -> object: ...


class Late(NamedTuple):
    """How late the event loop was once, in milliseconds, and how long Python collected garbage meanwhile."""

    whole: float
    collecting: float


class Load(NamedTuple):
    """The processor time and the duration of one retrieval, measured over many; all threads and the writing
    afterwards are included."""

    cpu: float
    """Microseconds of processor time of the whole process."""
    seconds: float
    """Seconds until the next retrieval could begin."""


@dataclass
class Contender:
    """A library that watches, or nothing."""

    name: str
    attach: Callable[[], None] = lambda: None
    detach: Callable[[], None] = lambda: None
    settle: Callable[[], object] = lambda: None
    micros: dict[str, list[float]] = field(default_factory=lambda: {"sync": [], "async": []})
    stalls: list[list[Late]] = field(default_factory=list)
    """The lateness of the event loop in each turn."""
    single: list[Load] = field(default_factory=list)
    saturated: list[Load] = field(default_factory=list)

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Attaches the watcher for the block, then detaches it and waits until its work is done."""
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
    """Attaches ragguard with its store on a real disk; nothing is scored, since scoring is measured elsewhere."""
    rg = RagGuard(engine="nano", scorers=(), store=Path(folder) / "runs.db", queue_size=100_000)
    return Contender("ragguard", lambda: instrument(rg), uninstrument, lambda: rg.flush(timeout=60))


def hooks(folder: str, retrieval: Callable[[RagGuard], Callable[[], tuple[float, ...]]]) -> dict[str, Any]:
    """Microseconds of a hook's own, called as the framework calls it some hundred times a second, while ragguard
    tries to score on an HTTP engine that is not there."""
    with RagGuard(engine="http://127.0.0.1:9/v1", store=Path(folder) / "hooks.db", queue_size=100_000) as rg:
        once = retrieval(rg)
        taken = []
        for _ in range(HOOK_CALLS):
            time.sleep(0.002)
            taken += [seconds * 1e6 for seconds in once()]
        rg.close(timeout=0.1)
    return percentiles(taken)


def openinference(instrumentor: Any) -> Contender:
    """Attaches OpenInference's instrumentation of the framework."""
    provider = spans_to_nowhere()
    return Contender(
        "openinference",
        lambda: instrumentor.instrument(tracer_provider=provider, skip_dep_check=True),
        instrumentor.uninstrument,
        provider.force_flush,
    )


def llama_index(folder: str) -> tuple[Framework, list[Contender], dict[str, Any]]:
    """Returns LlamaIndex, the libraries that watch it, and our hooks alone."""
    from inspect import signature

    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.instrumentation.span_handlers import NullSpanHandler
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
    from llama_index_instrumentation import get_dispatcher
    from openinference.instrumentation.llama_index import LlamaIndexInstrumentor

    from ragguard.capture.declarations import CaptureOptions
    from ragguard_llamaindex import instrument, uninstrument
    from ragguard_llamaindex.spans import Spans

    found = [
        NodeWithScore(
            node=TextNode(text=text, metadata={"source": "a.pdf", "page": n, "lang": "en"}), score=1 / (n + 1)
        )
        for n, text in enumerate(TEXTS)
    ]

    class FixedRetriever(BaseRetriever):
        wait = 0.0

        def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            return found

        async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            if self.wait:
                await asyncio.sleep(self.wait * random.uniform(0.5, 1.5))
            return found

    retriever = FixedRetriever()

    class LlamaIndex:
        def retrieve(self) -> object:
            return retriever.retrieve("which firm is based in Oslo?")

        async def aretrieve(self, wait: float = 0.0) -> object:
            retriever.wait = wait
            return await retriever.aretrieve("which firm is based in Oslo?")

    def alone(rg: RagGuard) -> Callable[[], tuple[float, ...]]:
        spans, bound = (
            Spans(rg.recorder, CaptureOptions.checked(None, None, None)),
            signature(FixedRetriever.retrieve).bind(retriever, "which firm is based in Oslo?"),
        )

        def once() -> tuple[float, ...]:
            id_ = f"FixedRetriever.retrieve-{uuid4()}"
            start = time.perf_counter()
            spans.entered(id_, bound, retriever)
            between = time.perf_counter()
            spans.exited(id_, bound, retriever, found)
            return between - start, time.perf_counter() - between

        return once

    root, nothing = get_dispatcher("root"), NullSpanHandler()
    contenders = [
        Contender(
            "empty", lambda: root.add_span_handler(nothing), lambda: root.span_handlers.remove(nothing)
        ),
        ragguard(folder, instrument, uninstrument),
        openinference(LlamaIndexInstrumentor()),
    ]
    return LlamaIndex(), contenders, hooks(folder, alone)


def langchain(folder: str) -> tuple[Framework, list[Contender], dict[str, Any]]:
    """Returns LangChain, the libraries that watch it, and our hooks alone."""
    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.runnables import RunnableConfig
    from openinference.instrumentation.langchain import LangChainInstrumentor

    from ragguard_langchain import RagGuardCallback, instrument, uninstrument

    found = [
        Document(text, metadata={"source": "a.pdf", "page": n, "lang": "en"}) for n, text in enumerate(TEXTS)
    ]
    config: RunnableConfig = {}

    class FixedRetriever(BaseRetriever):
        wait: float = 0.0

        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
            return found

        async def _aget_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
            if self.wait:
                await asyncio.sleep(self.wait * random.uniform(0.5, 1.5))
            return found

    retriever = FixedRetriever()

    class LangChain:
        def retrieve(self) -> object:
            return retriever.invoke("which firm is based in Oslo?", config)

        async def aretrieve(self, wait: float = 0.0) -> object:
            retriever.wait = wait
            return await retriever.ainvoke("which firm is based in Oslo?", config)

    class Empty(BaseCallbackHandler):
        run_inline = True

        def on_retriever_start(self, *_: Any, **__: Any) -> None:
            pass

        def on_retriever_end(self, *_: Any, **__: Any) -> None:
            pass

    def alone(rg: RagGuard) -> Callable[[], tuple[float, ...]]:
        handler = RagGuardCallback(rg)

        def once() -> tuple[float, ...]:
            id = uuid4()
            start = time.perf_counter()
            handler.on_retriever_start(
                {}, "which firm is based in Oslo?", run_id=id, metadata={}, name="FixedRetriever"
            )
            between = time.perf_counter()
            handler.on_retriever_end(found, run_id=id)
            return between - start, time.perf_counter() - between

        return once

    def attach(handler: BaseCallbackHandler) -> None:
        config["callbacks"] = [handler]

    def detach() -> None:
        config.pop("callbacks", None)

    empty = Empty()
    contenders = [
        Contender("empty", lambda: attach(empty), detach),
        ragguard(folder, instrument, uninstrument),
        openinference(LangChainInstrumentor()),
    ]
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
                lambda: attach(handler),
                detach,
                client.flush,
            )
        )
    return LangChain(), contenders, hooks(folder, alone)


def timed(framework: Framework) -> list[float]:
    """Microseconds of each of some calls, one after the other."""
    taken = []
    for _ in range(CALLS):
        start = time.perf_counter()
        framework.retrieve()
        taken.append(time.perf_counter() - start)
    return [seconds * 1e6 for seconds in taken]


async def atimed(framework: Framework) -> list[float]:
    """Returns how many microseconds each asynchronous retrieval took."""
    taken = []
    for _ in range(CALLS):
        start = time.perf_counter()
        await framework.aretrieve()
        taken.append(time.perf_counter() - start)
    return [seconds * 1e6 for seconds in taken]


def single(framework: Framework) -> int:
    """Retrieves now and then; returns how often."""
    for _ in range(SINGLE_CALLS):
        framework.retrieve()
        time.sleep(PAUSE)
    return SINGLE_CALLS


def saturated(framework: Framework) -> int:
    """Retrieves in many tasks of an event loop that never rests; returns how often."""

    async def retrieve() -> None:
        for _ in range(SATURATED_CALLS // 16):
            await framework.aretrieve()
            await asyncio.sleep(0)

    async def retrieve_all() -> None:
        await asyncio.gather(*(retrieve() for _ in range(16)))

    asyncio.run(retrieve_all())
    return SATURATED_CALLS // 16 * 16


def load(contender: Contender, work: Callable[[Framework], int], framework: Framework) -> Load:
    """The processor time of some work, with what the contender does for it in other threads and later."""
    before = time.process_time()
    with contender.attached():
        began = time.perf_counter()
        count = work(framework)
        seconds = time.perf_counter() - began
    return Load((time.process_time() - before) / count * 1e6, seconds / count)


def loads(of: list[Load], bare: list[Load]) -> dict[str, float]:
    """Medians over the rounds, also of what is added to, and of what is left of, bare in the same round."""
    return {
        "cpu_us": round(statistics.median(one.cpu for one in of), 1),
        "added_cpu_us": round(statistics.median(one.cpu - b.cpu for one, b in zip(of, bare, strict=True)), 1),
        "per_second": round(1 / statistics.median(one.seconds for one in of)),
        "of_bare": round(
            statistics.median(b.seconds / one.seconds for one, b in zip(of, bare, strict=True)), 3
        ),
    }


async def stalls(framework: Framework) -> list[Late]:
    """Measures how late the event loop is, while many retrievals are under way at any time."""
    end = time.perf_counter() + STALL_SECONDS
    late: list[Late] = []
    collected: list[tuple[float, float]] = []
    began = 0.0

    def collecting(phase: str, _: dict[str, int]) -> None:
        nonlocal began
        if phase == "start":
            began = time.perf_counter()
        else:
            collected.append((began, time.perf_counter()))

    async def retrieve() -> None:
        while time.perf_counter() < end:
            await framework.aretrieve(wait=0.25)

    gc.callbacks.append(collecting)
    try:
        tasks: list[Awaitable[None]] = [asyncio.create_task(retrieve()) for _ in range(TASKS)]
        while (start := time.perf_counter()) < end:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            share = 0.0
            for since, until in reversed(collected):
                if until < start:
                    break
                share += min(now, until) - max(start, since)
            late.append(Late((now - start - 0.001) * 1e3, share * 1e3))
        await asyncio.gather(*tasks)
    finally:
        gc.callbacks.remove(collecting)
    return late


def lateness(turns: list[list[Late]]) -> dict[str, float]:
    """Returns the event loop's lateness over all turns, and the median over the turns of each one's longest; with and
    without the collector's share."""
    every = [late.whole for turn in turns for late in turn]
    return {
        **percentiles(every),
        "longest": round(statistics.median(max(late.whole for late in turn) for turn in turns), 2),
        "longest_without_gc": round(
            statistics.median(max(late.whole - late.collecting for late in turn) for turn in turns), 2
        ),
        "longest_of_all": round(max(every), 2),
        "longest_gc": round(max(late.collecting for turn in turns for late in turn), 2),
    }


def percentiles(values: list[float]) -> dict[str, float]:
    """The middle, what one in a hundred exceeds, and what one in four stays under: the other core at rest."""
    return {
        "p25": round(statistics.quantiles(values, n=4)[0], 2),
        "p50": round(statistics.median(values), 2),
        "p99": round(statistics.quantiles(values, n=100)[98], 2),
    }


def measure(name: str, rounds: int) -> dict[str, Any]:
    """All contenders, round by round."""
    with tempfile.TemporaryDirectory() as folder:
        framework, watching, alone = (llama_index if name == "llama_index" else langchain)(folder)
        contenders = [Contender("bare"), *watching]
        for number in range(rounds + 1):
            for contender in random.sample(contenders, len(contenders)):
                with contender.attached():
                    taken = {"sync": timed(framework)}
                with contender.attached():
                    taken["async"] = asyncio.run(atimed(framework))
                if number:  # the first round is for warming up
                    for mode, micros in taken.items():
                        contender.micros[mode] += micros
        for number in range(max(2, rounds // 2 + 1)):
            for contender in random.sample(contenders, len(contenders)):
                one, many = load(contender, single, framework), load(contender, saturated, framework)
                if number:
                    contender.single.append(one)
                    contender.saturated.append(many)
        for _ in range(STALL_TURNS):
            for contender in random.sample(contenders, len(contenders)):
                with contender.attached():
                    contender.stalls.append(asyncio.run(stalls(framework)))
    figures = {
        contender.name: {
            **{mode: percentiles(micros) for mode, micros in contender.micros.items()},
            "single": loads(contender.single, contenders[0].single),
            "saturated": loads(contender.saturated, contenders[0].saturated),
            "loop_late_ms": lateness(contender.stalls),
        }
        for contender in contenders
    }
    return {"hook_us": alone, "contenders": figures}


if __name__ == "__main__":
    random.seed(0)
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
