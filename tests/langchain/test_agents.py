"""Agents and graphs: streams, crowds, cancellation, and which of the retrieved documents are read."""

from __future__ import annotations

import asyncio
import traceback
from typing import Any, TypedDict

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tools import tool
from langgraph.graph import END, START, StateGraph
from support.langchain_agents import ANSWER, QUESTION, SEQUENTIAL, agent, asked
from support.langchain_parts import ListRetriever, call, documents, says
from support.scripted_engine import ScriptedEngine

from ragguard import RagGuard
from ragguard.capture.splitters import paragraphs
from ragguard.guard import DistractorGuard, TopUtility
from ragguard_langchain import DistractorFilter, RagGuardCallback


async def test_the_user_gets_every_token_of_a_streaming_agent(captured, config):
    tokens = [
        message.content
        async for message, _ in agent(*SEQUENTIAL[:2], "Ada Berg of Oslo").astream(
            asked(), config, stream_mode="messages"
        )
        if isinstance(message, AIMessage) and message.content
    ]
    assert "".join(tokens) == "Ada Berg of Oslo"
    assert len(tokens) == 4
    assert captured.run.answer == "Ada Berg of Oslo"
    assert len(captured.run.steps) == 2


async def test_an_agent_that_is_left_while_it_streams(captured, recorder, config):
    stream = agent(*SEQUENTIAL).astream(asked(), config)
    async for update in stream:
        if "tools" in update:
            break
    await stream.aclose()
    async with asyncio.timeout(10):
        while captured.run.status == "open":
            await asyncio.sleep(0)
    assert captured.run.status in ("cancelled", "ok")
    assert [step.query for step in captured.run.steps] == ["1 firm in Oslo"]


PROMPT = ChatPromptTemplate.from_template("{context}\nQuestion: {input}")


LONG = [
    f"{name} Berg is said to be the founder of a firm in Oslo that makes {product} for people of the region."
    for name, product in [("Ada", "ships"), ("Clara", "lamps"), ("Dora", "ropes"), ("Emma", "clocks")]
]


class Shelf(ListRetriever):
    def _get_relevant_documents(self, query, **_):
        return [Document(text, id=str(n)) for n, text in enumerate(LONG)]

    async def _aget_relevant_documents(self, query, **_):
        return self._get_relevant_documents(query)


class State(TypedDict, total=False):
    question: str
    documents: list[Document]
    answer: str


def graph(*between: Any, context=lambda found: "\n\n".join(one.page_content for one in found), model=None):
    """Retrieve, nodes from documents to documents, and generate, each a node of its own."""
    built = StateGraph(State)
    nodes = [lambda state: {"documents": Shelf().invoke(state["question"])}]
    nodes += [lambda state, one=one: {"documents": one(state["documents"])} for one in between]

    def generate(state):
        given = {"context": context(state["documents"]), "input": state["question"]}
        return {"answer": (PROMPT | (model or says(ANSWER))).invoke(given).text}

    for number, node in enumerate([*nodes, generate]):
        built.add_node(str(number), node)
        built.add_edge(START if number == 0 else str(number - 1), str(number))
    built.add_edge(str(len(nodes)), END)
    return built.compile()


def read(captured, config, built) -> tuple[list[str], str]:
    """The texts of the passages that count as read, of all four, and whether that is unknown."""
    built.invoke({"question": QUESTION}, config)
    (step,) = captured.run.steps
    assert [one.text for one in step.candidates] == LONG
    return [one.text for one in step.passages], step.metadata.get("ragguard.delivered", "")


def test_documents_that_a_grading_model_rejected_were_not_read(captured, config):
    def graded(found):
        verdicts = says("no", "yes", "yes", "no")
        return [one for one in found if verdicts.invoke(f"Relevant? {one.page_content}").text == "yes"]

    assert read(captured, config, graph(graded)) == (LONG[1:3], "")
    assert captured.run.steps[0].metadata["ragguard.judged_only"] == 2


def test_guard_in_a_node_of_its_own_decides_what_is_read(captured, config):
    guard = DistractorFilter(DistractorGuard("nano", policies=[TopUtility(1)], budget_ms=60_000))
    texts, unknown = read(captured, config, graph(lambda found: guard.compress_documents(found, QUESTION)))
    assert (len(texts), unknown) == (1, "")
    assert [one.text for one in captured.run.steps[0].decision.kept] == texts


@tool
def wiki(query: str) -> str:
    """Reads a wiki, and gives one string."""
    return "\n\n".join(one.page_content for one in documents("wiki", 4, query))


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
