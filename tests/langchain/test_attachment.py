"""instrument and uninstrument: every call of the process, without patching anything."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from langchain_core.callbacks import CallbackManager
from support.captured import Captured
from support.langchain_agents import PARALLEL, QUESTION, agent, asked, hops
from support.langchain_parts import ListRetriever

from ragguard.capture.recorder import Recorder
from ragguard.capture.splitters import paragraphs
from ragguard_langchain import RagGuardCallback, instrument, uninstrument
from ragguard_langchain.attachment import _attachment


@pytest.fixture(autouse=True)
def attached(rg):
    instrument(rg)
    yield
    uninstrument()


def test_calls_are_captured_without_their_config(captured):
    ListRetriever().invoke(QUESTION)
    assert (captured.run.question, len(captured.run.steps)) == (QUESTION, 1)


def test_a_callback_beside_it_counts_nothing_twice(captured, rg):
    agent(*PARALLEL).invoke(asked(), {"callbacks": [RagGuardCallback(rg)]})
    assert hops(captured.run) == [("1a", 0, "ok"), ("1b", 0, "ok"), ("2", 1, "ok")]


def test_once_let_go_nothing_is_captured_and_no_handler_is_left(captured):
    uninstrument()
    uninstrument()
    ListRetriever().invoke(QUESTION)
    assert captured.events == []
    assert not any(isinstance(one, RagGuardCallback) for one in CallbackManager.configure().handlers)


def test_letting_go_while_a_call_begins_in_another_thread(captured, monkeypatch):
    """LangChain asks for the handler twice; it may be gone by the second time."""

    def gone_then(self):
        handler, self.handler = self.handler, None
        return handler

    monkeypatch.setattr(type(_attachment), "get", gone_then)
    assert len(ListRetriever().invoke(QUESTION)) == 2
    assert captured.events == []


def test_handler_can_be_attached_again_and_to_another_guard(captured, rg):
    theirs = Captured()
    instrument(SimpleNamespace(recorder=Recorder(theirs)))
    ListRetriever().invoke("theirs")
    instrument(rg, tools={"search": paragraphs})
    instrument(rg)
    ListRetriever().invoke("ours")
    assert (theirs.run.question, captured.run.question) == ("theirs", "ours")
