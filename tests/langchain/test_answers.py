"""Where the question and the answer of a pipeline are, and what else a call says of its run."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TypedDict

import pytest
from langchain.agents import create_agent
from langchain_classic.chains import create_history_aware_retriever, create_retrieval_chain
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from pydantic import BaseModel
from support.langchain_agents import ANSWER, QUESTION, asked, search_tool
from support.langchain_parts import ListRetriever, call, documents, says

from ragguard import RagGuard
from ragguard.capture.handle import RunHandle
from ragguard.capture.shapes import answer_in
from ragguard.errors import InvalidInput
from ragguard_langchain import RagGuardCallback, instrument


class Reply(BaseModel):
    answer: str
    sources: list[str] = []


class Verdict(BaseModel):
    founder: str
    year: int


@dataclass
class Outcome:
    answer: str
    pages: int = 3


def test_a_structured_response_is_the_answer(captured, config):
    reply = call("Reply", answer=ANSWER, sources=["a"])
    built = create_agent(
        says(call("search", query="hop"), reply), [search_tool()], response_format=Reply,
        checkpointer=InMemorySaver(),
    )  # fmt: skip
    built.invoke(asked(), {**config, "configurable": {"thread_id": "t1"}})
    run = captured.run
    assert (run.status, run.answer) == ("ok", ANSWER)


@pytest.mark.parametrize(
    ("outputs", "answer"),
    [
        ({"structured_response": Verdict(founder="Ada", year=1922)}, '{"founder": "Ada", "year": 1922}'),
        ({"structured_response": {"answer": ANSWER}}, ANSWER),
        ({"topic": "Oslo", "report": ANSWER}, ANSWER),
        ({"messages": [], "summary": ANSWER}, ANSWER),
        (Outcome(ANSWER), ANSWER),
        ({"draft": "a"}, None),
    ],
)
def test_answer_is_read_where_states_usually_have_it(outputs, answer):
    assert answer_in(outputs).text == answer


class State(TypedDict, total=False):
    topic: str
    draft: str
    verdict: str
    found: list


def graph():
    built = StateGraph(State)
    built.add_node(
        "look", lambda state: {"found": ListRetriever().invoke("hop"), "draft": "not yet", "verdict": ANSWER}
    )
    return built.add_edge(START, "look").compile()


@pytest.mark.parametrize("by", ["key", "function"])
def test_the_application_says_where_they_are(captured, rg, by):
    options = {"question": "topic", "answer": "verdict"}
    if by == "function":
        options = {"question": lambda given: given["topic"], "answer": lambda gives: gives["verdict"]}
    graph().invoke({"topic": QUESTION, "draft": "?"}, {"callbacks": [RagGuardCallback(rg, **options)]})
    assert (captured.run.question, captured.run.answer) == (QUESTION, ANSWER)


def test_a_key_that_is_not_there_is_warned_about(captured, rg, caplog):
    with caplog.at_level(logging.WARNING):
        config = {"callbacks": [RagGuardCallback(rg, answer="verdikt")]}
        graph().invoke({"topic": QUESTION}, config)
    assert "answer='verdikt' is no field of the pipeline's input or output" in caplog.text
    assert "It has: draft, found, topic, verdict" in caplog.text


def chain(answer=ANSWER):
    prompt = ChatPromptTemplate.from_template("{context}\n\n{question}")
    return (
        {"context": ListRetriever(), "question": RunnablePassthrough()}
        | prompt
        | says(answer)
        | StrOutputParser()
    )


def test_a_stream_that_is_read_after_its_run_belongs_to_it(captured, recorder, config):
    with RunHandle(recorder, QUESTION) as run:
        stream = chain().stream(QUESTION, config)
        next(stream)
    assert captured.run.status == "open"
    list(stream)
    assert (captured.run.id, captured.run.status, captured.run.answer) == (run.id, "ok", ANSWER)
    assert len(captured.run.steps) == 1


def test_question_of_a_follow_up_is_what_the_user_said_last(captured, config):
    history = [HumanMessage("Which firm is based in Oslo?"), AIMessage("Fjord")]
    prompt = ChatPromptTemplate.from_messages([("placeholder", "{chat_history}"), ("human", "{input}")])
    retriever = create_history_aware_retriever(says("Who founded Fjord?"), ListRetriever(), prompt)
    built = create_retrieval_chain(retriever, RunnableLambda(lambda given: ANSWER))
    built.invoke({"input": "And who founded it?", "chat_history": history}, config)
    assert captured.run.question == "And who founded it?"
    assert captured.run.steps[0].query == "Who founded Fjord?"


def test_a_mapped_chain_is_a_run_an_input(captured, config):
    chain().map().invoke([f"question {n}" for n in range(100)], config)
    assert sorted(run.question for run in captured.runs) == sorted(f"question {n}" for n in range(100))
    assert {(run.answer, len(run.steps)) for run in captured.runs} == {(ANSWER, 1)}


def test_names_stand_on_every_step(captured, config):
    @tool(response_format="content_and_artifact")
    def search(query: str) -> tuple[str, list]:
        """Searches."""
        found = documents("found", 1, query)
        return found[0].page_content, found

    built = create_agent(
        says([call("search", query="a"), call("find", query="b")], ANSWER), [search, search_tool(name="find")],
        name="researcher",
    )  # fmt: skip
    built.invoke(asked(), config)
    for step in captured.run.steps:
        assert (step.metadata["agent"], step.metadata["langgraph_node"]) == ("researcher", "tools")
        assert step.tool in ("search", "find")
        assert step.metadata["tool_call_id"]


@pytest.mark.parametrize("make", [RagGuardCallback, instrument])
@pytest.mark.parametrize("given", [RagGuard, "nano", None])
def test_argument_that_is_no_ragguard_is_refused(make, given):
    with pytest.raises(InvalidInput, match="a RagGuard, such as"):
        make(given)
