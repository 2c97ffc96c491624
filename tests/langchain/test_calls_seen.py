"""A run of LangChain without a retrieval names the call that was seen in it."""

import logging

import pytest
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from support.langchain_agents import ANSWER, agent, asked, search_tool
from support.langchain_parts import ListRetriever, call

from ragguard import RagGuard
from ragguard.capture.splitters import paragraphs
from ragguard_langchain import RagGuardCallback

QUESTION = "Which firm is based in Oslo?"


def warnings(caplog):
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno == logging.WARNING and "without a retrieval" in record.getMessage()
    ]


def test_a_run_that_ends_before_its_stream_is_read_says_that_a_stream_can_continue_it(caplog):
    with RagGuard(engine="nano", store=None, scorers=()) as rg:
        chain = ListRetriever() | RunnableLambda(lambda documents: "Fjord")
        with rg.run(QUESTION) as run:
            metadata = {"ragguard_resume": run.id}
            stream = chain.stream(QUESTION, {"callbacks": [RagGuardCallback(rg)], "metadata": metadata})
        assert list(stream) == ["Fjord"]
        rg.flush()
        assert len(rg.runs()[0].steps) == 1
    (warning,) = warnings(caplog)
    assert "continue the run (ragguard_resume), which then gets its retrievals" in warning


@tool
def firms(query: str) -> str:
    """Finds firms."""
    return "Fjord is a firm in Oslo."


@pytest.mark.parametrize(("declared", "said"), [("frims", 1), ("firms", 0)])
def test_flush_names_once_a_declared_tool_that_was_never_called_beside_those_that_were(
    declared, said, caplog
):
    built = agent(call("search", query="1"), call("firms", query="2"), ANSWER, tools=[search_tool(), firms])
    with RagGuard(engine="nano", store=None, scorers=()) as rg:
        callback = RagGuardCallback(rg, tools={declared: paragraphs})
        for _ in range(2):
            built.invoke(asked(), {"callbacks": [callback]})
            rg.flush()
        assert rg.runs()[0].steps
    found = [text for text in caplog.messages if "no call was seen" in text]
    assert len(found) == said
    assert all("tools= declares 'frims'" in text and "no retrievals: 'firms'" in text for text in found)
