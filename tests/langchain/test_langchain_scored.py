"""From LangChain to scores, through a whole RagGuard: what the store, telemetry and the scores say of a guard."""

from __future__ import annotations

import traceback

import pytest
from langchain_classic.retrievers import ContextualCompressionRetriever
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_core.tools import tool
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from support.guards import assert_spans_tell, guarding, judging
from support.langchain_agents import ANSWER, agent, asked, search_tool
from support.langchain_parts import ListRetriever, call, documents
from support.scripted_engine import ScriptedEngine

from ragguard import RagGuard
from ragguard.capture.splitters import paragraphs
from ragguard_langchain import (
    DistractorFilter,
    GuardedRetriever,
    GuardMiddleware,
    RagGuardCallback,
    drop_distractors,
)

QUERY = "Who founded it?"


@tool
def wiki(query: str) -> str:
    """Reads a wiki, and gives one string."""
    return "\n\n".join(one.page_content for one in documents("wiki", 4, query))


def guarded(place, guard):
    """Something guarded, and what it is asked."""
    if place == "agent":
        tools = [search_tool(ListRetriever(count=4))]
        return agent(
            call("search", query=QUERY), ANSWER, tools=tools, middleware=[GuardMiddleware(guard)]
        ), asked()
    if place == "agent with a string":
        middleware = [GuardMiddleware(guard, tools={"wiki": paragraphs})]
        return agent(call("wiki", query=QUERY), ANSWER, tools=[wiki], middleware=middleware), asked()
    if place == "chain":
        given = {"context": ListRetriever(count=4), "question": RunnablePassthrough()}
        return given | drop_distractors(guard) | RunnableLambda(lambda given: ANSWER), QUERY
    if place == "compressor":
        return ContextualCompressionRetriever(
            base_compressor=DistractorFilter(guard), base_retriever=ListRetriever(count=4)
        ), QUERY
    return GuardedRetriever(ListRetriever(count=4), guard), QUERY


PLACES = pytest.mark.parametrize(
    "place", ["agent", "agent with a string", "chain", "compressor", "retriever"]
)


@pytest.fixture
def model():
    return ScriptedEngine(label=judging)


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def rg(tmp_path, model, exporter):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    rg = RagGuard(engine=model, scorers=("utility",), store=tmp_path / "runs.db", tracer_provider=provider)
    yield rg
    rg.close()


def played(rg, place, guard):
    """The run, as the store has it, of something guarded."""
    runnable, given = guarded(place, guard)
    runnable.invoke(given, {"callbacks": [RagGuardCallback(rg)]})
    assert rg.flush(timeout=30)
    (run,) = rg.runs()
    return run


@PLACES
def test_the_store_and_telemetry_tell_what_was_dropped_and_why(rg, exporter, place):
    (step,) = played(rg, place, guarding()).steps
    texts = [passage.text.rpartition(" about ")[0][-1] for passage in step.candidates]
    assert texts == ["0", "1", "2", "3"]
    assert [passage.text for passage in step.passages] == [step.candidates[n].text for n in (0, 2)]
    assert [(drop.position, drop.passage.text) for drop in step.decision.dropped] == [
        (n + 1, step.candidates[n].text) for n in (1, 3)
    ]
    assert_spans_tell(exporter.get_finished_spans())


@pytest.mark.parametrize("mode", ["invoke", "ainvoke"])
async def test_no_hook_calls_a_function_of_the_users(tmp_path, mode):
    """A splitter, `references=` and `redact=` run on the scorer's side, where nothing of LangChain is around them."""
    called = {}

    def seen(name, result):
        def function(*given):
            called.setdefault(name, set()).update(frame.filename for frame in traceback.extract_stack())
            return result(*given)

        return function

    with RagGuard(
        engine=ScriptedEngine(), scorers=("utility",), store=tmp_path / "runs.db",
        references=seen("references", lambda question: ["Ada Berg"]), redact=seen("redact", lambda text: text),
    ) as rg:  # fmt: skip
        callback = RagGuardCallback(rg, tools={"wiki": seen("splitter", paragraphs)})
        asking = agent(
            call("wiki", query="a"), [call("wiki", query="b"), call("wiki", query="c")], ANSWER, tools=[wiki]
        )
        if mode == "invoke":
            asking.invoke(asked(), {"callbacks": [callback]})
        else:
            await asking.ainvoke(asked(), {"callbacks": [callback]})
        assert await rg.aflush(timeout=30)
        (run,) = rg.runs()
    assert run.references == ["Ada Berg"]
    assert [len(step.passages) for step in run.steps] == [4, 4, 4]
    assert set(called) == {"references", "redact", "splitter"}
    assert not [file for files in called.values() for file in files if "/langchain_core/" in file]
