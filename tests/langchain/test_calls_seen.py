"""A run of LangChain without a retrieval names the call that was seen in it."""

import logging

from langchain_core.runnables import RunnableLambda
from support.langchain_parts import ListRetriever

from ragguard import RagGuard
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
