"""What LangChain's models read: extracts, searches of plain code, sub-agents as tools; and whose calls these are."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain_classic.retrievers import ContextualCompressionRetriever
from langchain_classic.retrievers.document_compressors import LLMChainExtractor
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.graph import END, START, StateGraph
from support.langchain_agents import QUESTION, asked, search_tool
from support.langchain_parts import ListRetriever, call, says

import ragguard

OSLO = "Nordlys is a shipping firm that is based in Oslo; it was founded by Ada Berg in 1922."
BERGEN = "Skagen is a fishing firm that is based in Bergen; it was founded by Olav Dahl in 1931."


def read(captured):
    return [
        "unknown" if step.metadata.get("ragguard.delivered") else [one.text for one in step.passages]
        for step in captured.run.steps
    ]


def test_extracts_of_a_compressor_are_what_was_read(captured, config):
    extract = "shelf 0 about the firm, in short"
    retriever = ContextualCompressionRetriever(
        base_compressor=LLMChainExtractor.from_llm(says(extract)), base_retriever=ListRetriever(count=1)
    )
    model = says("Ada Berg founded it.")

    def answer(question: str) -> str:
        context = "\n".join(one.page_content for one in retriever.invoke(question))
        return str(model.invoke(f"From {context}: {question}").content)

    RunnableLambda(answer).invoke(QUESTION, config)
    assert read(captured) == [[extract]]
    assert captured.run.steps[0].candidates[0].text == extract
    assert len(captured.run.steps[0].candidates) == 2


def test_search_of_plain_code_in_a_graph_follows_the_same_rule(captured, config):
    model = says("no", "Ada Berg founded it.")

    def node(state: dict[str, Any]) -> dict[str, Any]:
        found = [Document(OSLO, id="a"), Document(BERGEN, id="b")]
        ragguard.retrieved("firms", found)
        model.invoke(f"Is it relevant? {BERGEN}")
        return {"answer": model.invoke(f"Answer from: {OSLO}").content}

    class State(TypedDict):
        question: str
        answer: str

    graph = StateGraph(State)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    graph.add_edge("node", END)
    graph.compile().invoke({"question": QUESTION}, config)
    assert read(captured) == [[OSLO]]


@pytest.mark.parametrize("answer", ["Yes", "No", "4"])
def test_a_word_as_the_answer_of_an_agent_that_is_a_tool(captured, config, answer):
    inner = create_agent(says(call("search", query="firm"), answer), [search_tool()])

    @tool
    def expert(question: str) -> str:
        """Asks an expert."""
        return str(inner.invoke({"messages": [HumanMessage(question)]})["messages"][-1].content)

    outer = create_agent(says(call("expert", question="is it so?"), f"The expert says: {answer}."), [expert])
    outer.invoke(asked("Is it so? Say yes or no, or a number from 1 to 9."), config)
    assert [len(passages) for passages in read(captured)] == [2]


class Other(BaseCallbackHandler):
    """Another tracer's callback."""


def test_call_with_callbacks_of_its_own_belongs_to_the_run_around_it(captured, config):
    model, retriever = says("Ada Berg founded it."), ListRetriever(count=1)

    def answer(question: str) -> str:
        (found,) = retriever.invoke(question, {"callbacks": [Other()]})
        return str(model.invoke(f"From {found.page_content}", {"callbacks": [Other()]}).content)

    RunnableLambda(answer).invoke(QUESTION, config)
    assert read(captured) == [[f"shelf 0 about {QUESTION}"]]


def test_same_callback_again_inside_a_run_joins_it(captured, config):
    retriever = ListRetriever(count=1).with_config(config)

    def answer(question: str) -> str:
        return str(len(retriever.invoke(question)))

    RunnableLambda(answer).invoke(QUESTION, config)
    assert len(captured.runs) == 1
    assert len(captured.run.steps) == 1


def test_fallback_at_the_top_joins_the_run(captured, config):
    def fails(question: str) -> str:
        ListRetriever(name="first").invoke(question)
        raise ValueError("it failed")

    def works(question: str) -> str:
        ListRetriever(name="second").invoke(question)
        return "Ada Berg"

    RunnableLambda(fails).with_fallbacks([RunnableLambda(works)]).invoke(QUESTION, config)
    assert [(run.question, run.answer, len(run.steps)) for run in captured.runs] == [
        (QUESTION, "Ada Berg", 2)
    ]
