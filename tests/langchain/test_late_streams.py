"""What is said where a stream is read after its run, and where nothing was seen of what was declared."""

from __future__ import annotations

import pytest
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_core.tools import tool
from support.langchain_agents import ANSWER, agent, asked, search_tool
from support.langchain_parts import ListRetriever, call

from ragguard import RagGuard
from ragguard.capture.splitters import paragraphs
from ragguard_langchain import RagGuardCallback

QUESTION = "Who founded the firm based in Oslo?"
SAID = "A LangChain stream begins with its first read"
CHAIN = {"context": ListRetriever(), "question": RunnablePassthrough()} | RunnableLambda(lambda _: "Ada Berg")


@pytest.fixture
def rg():
    with RagGuard("nano", store=None, scorers=()) as made:
        yield made


def read_late(rg, **metadata):
    """Makes a stream inside the block and reads it after the block."""
    with rg.run(QUESTION, references=["Ada Berg"]) as run:
        named = {key: run.id if value == "run.id" else value for key, value in metadata.items()}
        stream = CHAIN.stream(QUESTION, {"callbacks": [RagGuardCallback(rg)], "metadata": named})
    assert "".join(stream) == "Ada Berg"


def told(rg):
    assert rg.flush(30)
    return [(run.question, run.references, run.answer, len(run.steps)) for run in rg.runs()]


def test_late_stream_is_a_run_of_its_own_and_logged_once(rg, caplog):
    read_late(rg)
    read_late(rg)
    assert told(rg) == [(QUESTION, ["Ada Berg"], None, 0), (QUESTION, None, "Ada Berg", 1)] * 2
    assert [record.levelname for record in caplog.records if SAID in record.message] == ["WARNING"]


def test_late_stream_that_names_the_run_continues_it(rg):
    read_late(rg, ragguard_resume="run.id")
    assert told(rg) == [(QUESTION, ["Ada Berg"], "Ada Berg", 1)]


@tool
def firms(query: str) -> str:
    """Finds firms."""
    return "Fjord is a firm in Oslo."


@pytest.mark.parametrize(("declared", "said"), [("frims", 1), ("firms", 0)])
def test_flush_names_once_a_declared_tool_that_was_never_called_beside_those_that_were(
    rg, declared, said, caplog
):
    built = agent(call("search", query="1"), call("firms", query="2"), ANSWER, tools=[search_tool(), firms])
    callback = RagGuardCallback(rg, tools={declared: paragraphs})
    for _ in range(2):
        built.invoke(asked(), {"callbacks": [callback]})
        rg.flush()
    found = [text for text in caplog.messages if "no call of it was seen" in text]
    assert len(found) == said
    assert all(
        "tools= declares 'frims'" in text and "not taken for retrievals: 'firms'" in text for text in found
    )
