"""Plain code inside LangChain and LangGraph calls finds the framework's run: nodes, tools, middleware, retrievers."""

from __future__ import annotations

import asyncio
from typing import TypedDict

import pytest
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda
from langchain_core.runnables.config import ContextThreadPoolExecutor
from langchain_core.tools import tool
from langchain_core.vectorstores import InMemoryVectorStore
from langgraph.graph import END, START, StateGraph
from support.langchain_agents import ANSWER, QUESTION, asked
from support.langchain_parts import Embeddings, ListRetriever, call, says

import ragguard
from ragguard.capture.handle import RunHandle

STORE = InMemoryVectorStore(Embeddings())
STORE.add_documents([Document("about Oslo", id="d1"), Document("about Bergen, far away", id="d2")])


class State(TypedDict, total=False):
    question: str
    context: list
    answer: str


@ragguard.retrieval
def search(query: str) -> list[Document]:
    return STORE.similarity_search(query, k=1)


def direct(query: str) -> list:
    found = STORE.similarity_search_with_score(query, k=1)
    ragguard.retrieved(query, found)
    return found


def graph(node):
    built = StateGraph(State)
    built.add_node("retrieve", node)
    built.add_node("generate", lambda state: {"answer": ANSWER})
    built.add_edge(START, "retrieve")
    built.add_edge("retrieve", "generate")
    built.add_edge("generate", END)
    return built.compile()


@pytest.mark.parametrize("retrieve", [search, direct])
@pytest.mark.parametrize("mode", ["invoke", "ainvoke", "stream"])
async def test_a_vector_store_that_is_searched_in_a_node(captured, config, retrieve, mode):
    built = graph(lambda state: {"context": retrieve(state["question"])})
    if mode == "invoke":
        built.invoke({"question": QUESTION}, config)
    elif mode == "ainvoke":
        await built.ainvoke({"question": QUESTION}, config)
    else:
        list(built.stream({"question": QUESTION}, config))
    run = captured.run
    assert (run.question, run.answer, run.status) == (QUESTION, ANSWER, "ok")
    (step,) = run.steps
    assert (step.query, step.passages[0].id, step.passages[0].text) == (
        QUESTION,
        "d2",
        "about Bergen, far away",
    )
    assert step.metadata["langgraph_node"] == "retrieve"


async def test_in_an_async_node_and_in_threads_with_its_context(captured, config):
    async def node(state):
        await asyncio.gather(*(asyncio.to_thread(search, f"hop {n}") for n in range(2)))
        return {"context": search("hop 2")}

    def threads(state):
        with ContextThreadPoolExecutor(2) as pool:
            return {"context": list(pool.map(search, ["hop 3", "hop 4"]))}

    await graph(node).ainvoke({"question": QUESTION}, config)
    graph(threads).invoke({"question": QUESTION}, config)
    assert [sorted(step.query for step in run.steps) for run in captured.runs] == [
        ["hop 0", "hop 1", "hop 2"],
        ["hop 3", "hop 4"],
    ]


@tool(response_format="content_and_artifact")
def lookup(query: str):
    """Looks something up."""
    found = search(query)
    return "\n".join(document.page_content for document in found), found


@tool
def as_text(query: str) -> str:
    """Looks something up."""
    return str(direct(query))


@pytest.mark.parametrize("mode", ["invoke", "ainvoke"])
async def test_a_tool_that_searches_is_one_step_whatever_it_returns(captured, config, mode):
    built = create_agent(
        says((call("lookup", query="1"), call("as_text", query="2")), ANSWER), [lookup, as_text]
    )
    if mode == "invoke":
        built.invoke(asked(), config)
    else:
        await built.ainvoke(asked(), config)
    assert sorted((s.query, s.tool, s.turn, len(s.passages)) for s in captured.run.steps) == [
        ("1", "lookup", 0, 1),
        ("2", "as_text", 0, 1),
    ]
    assert {s.metadata["tool_call_id"] for s in captured.run.steps} == {"call-lookup-1", "call-as_text-2"}


def test_a_framework_retriever_inside_a_decorated_function_is_a_part_of_it(captured, config):
    @ragguard.retrieval
    def rewritten(query: str):
        return ListRetriever().invoke(f"{query}?") + ListRetriever().invoke(f"{query}!")

    RunnableLambda(rewritten).invoke("hop", config)
    (step,) = captured.run.steps
    assert (step.query, [part.query for part in step.sub_steps]) == ("hop", ["hop?", "hop!"])


@pytest.mark.parametrize("around", ["nothing", "a run"])
@pytest.mark.parametrize("kind", ["retriever", "chain", "tool", "plain"])
def test_a_run_of_ones_own_inside_a_call_holds_what_is_called_in_it(captured, recorder, config, kind, around):
    inside = {
        "retriever": ListRetriever().invoke,
        "chain": (RunnableLambda(lambda query: query) | ListRetriever()).invoke,
        "tool": lambda query: lookup.invoke(query),
        "plain": search,
    }[kind]

    def node(query):
        ListRetriever().invoke("before")
        with RunHandle(recorder, "sub", name="inner") as run:
            inside("one")
            inside("two")
            run.answered("x")
        ListRetriever().invoke("after")
        return ANSWER

    if around == "a run":
        with RunHandle(recorder, QUESTION):
            RunnableLambda(node).invoke(QUESTION, config)
    else:
        RunnableLambda(node).invoke(QUESTION, config)
    runs = {run.question: run for run in captured.runs}
    assert [(step.query, step.turn) for step in runs["sub"].steps] == [("one", 0), ("two", 1)]
    assert [step.query for step in runs[QUESTION].steps] == ["before", "after"]
    assert (runs["sub"].answer, runs[QUESTION].answer) == ("x", ANSWER)


def test_a_pause_inside_a_node_leaves_the_rest_of_the_run(captured, config):
    def node(state):
        with ragguard.paused():
            ListRetriever().invoke("an evaluator's")
            lookup.invoke("an evaluator's")
        return {"context": ListRetriever().invoke("hop")}

    graph(node).invoke({"question": QUESTION}, config)
    assert [step.query for step in captured.run.steps] == ["hop"]
