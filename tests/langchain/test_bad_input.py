"""Retrievers, messages and states that are not what they should be: recorded as what they are, never a crash."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from uuid import uuid4

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.retrievers import BaseRetriever
from support.hostile_values import Uncopyable
from support.langchain_agents import QUESTION
from support.langchain_parts import ListRetriever, call, documents

from ragguard.capture.shapes import answer_in, query_in, question_in
from ragguard.capture.snapshot import LOST
from ragguard.records import CONTENT_KIND, Passage


class Gives(BaseRetriever):
    """Gives whatever it is told to."""

    what: object = None

    def _get_relevant_documents(self, query, *, run_manager):
        return self.what


def odd(**fields):
    return Document.model_construct(**{"page_content": "text", "metadata": {}, "id": None, **fields})


@pytest.mark.parametrize(
    ("given", "texts", "metadata"),
    [
        (None, [], []),
        ([], [], []),
        ("one text", ["one text"], [{}]),
        (["a", "b"], ["a", "b"], [{}, {}]),
        (documents("tuple", 1), ["tuple 0 about "], [{"source": "tuple", "score": 1.0}]),
        ([Document("no id")], ["no id"], [{}]),
        ([Document("mixed"), "text", Passage("passage")], ["mixed", "text", "passage"], [{}, {}, {}]),
        ([odd(page_content=None)], [""], [{CONTENT_KIND: "none"}]),
        ([odd(page_content=b"bytes")], [""], [{CONTENT_KIND: "bytes"}]),
        ([odd(page_content=[{"type": "image", "data": "x"}])], [""], [{CONTENT_KIND: "image"}]),
        ([odd(metadata=None)], ["text"], [{}]),
        ([odd(metadata=Uncopyable())], ["text"], [{LOST: "Uncopyable could not be copied: RuntimeError"}]),
        ([odd(id=7)], ["text"], [{}]),
        (3, [""], [{CONTENT_KIND: "int"}]),
    ],
)
def test_retriever_with_any_result_is_recorded(captured, config, given, texts, metadata):
    assert Gives(what=given).invoke(QUESTION, config) == given
    (step,) = captured.run.steps
    assert step.status == "ok"
    assert [p.text for p in step.passages] == texts
    assert [dict(p.metadata) for p in step.passages] == metadata


class Sealed(Document):
    def __getattribute__(self, name):
        if name == "page_content":
            raise RuntimeError("sealed")
        return super().__getattribute__(name)


class Glued(dict):
    def copy(self):
        raise RuntimeError("no")


def test_documents_that_raise_cost_only_themselves(captured, config):
    Gives(what=[Sealed("x"), odd(metadata=Glued(page=1)), Document("fine")]).invoke(QUESTION, config)
    (step,) = captured.run.steps
    assert step.status == "ok"
    assert [(p.text, dict(p.metadata)) for p in step.passages] == [
        ("", {CONTENT_KIND: "Sealed, unreadable: RuntimeError"}),
        ("text", {"page": 1}),
        ("fine", {}),
    ]


async def test_a_cancellation_out_of_a_hook_stays_in_it(captured, config, recorder, monkeypatch):
    def cancelled(self, *arguments, **named):
        raise asyncio.CancelledError

    monkeypatch.setattr("ragguard_langchain.call_tree.CallTree.is_whole_run", cancelled)
    assert len(await ListRetriever().ainvoke(QUESTION, config)) == 2
    assert recorder.faults.count == 1
    recorder.faults.count = 0


def test_ends_of_calls_that_nobody_saw_begin(captured, config):
    (handler,) = config["callbacks"]
    for hook in (handler.on_chain_end, handler.on_retriever_end, handler.on_tool_end):
        hook([], run_id=uuid4())
    for hook in (handler.on_chain_error, handler.on_retriever_error, handler.on_tool_error):
        hook(ValueError(), run_id=uuid4())
    assert captured.events == []


def test_a_call_whose_parent_nobody_saw_is_a_run(captured, config):
    (handler,) = config["callbacks"]
    call_id = uuid4()
    handler.on_retriever_start(None, QUESTION, run_id=call_id, parent_run_id=uuid4())
    handler.on_retriever_end(documents("x"), run_id=call_id)
    assert captured.run.id == str(call_id)


@dataclass
class State:
    messages: list


@pytest.mark.parametrize(
    ("inputs", "question"),
    [
        (QUESTION, QUESTION),
        (HumanMessage(QUESTION), QUESTION),
        (
            HumanMessage([{"type": "text", "text": QUESTION}, {"type": "image_url", "image_url": "x"}]),
            QUESTION,
        ),
        ({"messages": [("system", "be kind"), ("human", QUESTION)]}, QUESTION),
        ({"messages": QUESTION}, QUESTION),
        ({"messages": []}, ""),
        ([("user", QUESTION), ("ai", "well")], QUESTION),
        ([{"role": "user", "content": QUESTION}], QUESTION),
        (State([HumanMessage(QUESTION)]), QUESTION),
        ({"input": {"question": QUESTION}}, QUESTION),
        ({"a": 1}, ""),
        ({}, ""),
        (None, ""),
        (12, ""),
        (b"bytes", ""),
        ([], ""),
        ([[1, 2, 3]], ""),
    ],
)
def test_the_question_in_anything(inputs, question):
    assert question_in(inputs) == question


@pytest.mark.parametrize(
    ("outputs", "text"),
    [
        ("Ada", "Ada"),
        ("", None),
        (AIMessage("Ada"), "Ada"),
        (AIMessageChunk("Ada"), "Ada"),
        (AIMessage([{"type": "text", "text": "Ada"}]), "Ada"),
        (AIMessage([{"type": "image", "base64": "x", "mime_type": "image/png"}]), None),
        (AIMessage("", tool_calls=[call("search", query="q")]), None),
        (AIMessage("Ada", tool_calls=[call("search", query="q")]), "Ada"),
        ({"messages": [HumanMessage("q"), AIMessage("Ada")]}, "Ada"),
        ({"messages": [AIMessage("old"), HumanMessage("q")]}, None),
        ({"messages": [("user", "q"), ("assistant", "Ada")]}, "Ada"),
        ({"answer": AIMessage("Ada"), "context": []}, "Ada"),
        ({"n": 1}, None),
        (State([AIMessage("Ada")]), "Ada"),
        (None, None),
        (12, None),
        (documents("x"), None),
    ],
)
def test_the_answer_in_anything(outputs, text):
    assert answer_in(outputs).text == text


@pytest.mark.parametrize(("inputs", "query"), [({}, ""), ({"n": 1}, "1"), ({"n": 1, "m": 2}, "n: 1, m: 2")])
def test_a_tool_without_a_text_to_ask_was_asked_what_it_was_given(inputs, query):
    assert query_in(inputs) == query
