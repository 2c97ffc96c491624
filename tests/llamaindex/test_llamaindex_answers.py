"""Which run a stream or a handler belongs to, where the question and the answer are, and that each token arrives."""

from __future__ import annotations

import asyncio
import gc
import logging
from types import SimpleNamespace

import pytest
from llama_index.core.agent.workflow import AgentOutput
from llama_index.core.base.llms.types import CompletionResponse
from llama_index.core.chat_engine import (
    CondensePlusContextChatEngine,
    CondenseQuestionChatEngine,
    ContextChatEngine,
)
from llama_index.core.llms import ChatMessage
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.workflow import StartEvent, StopEvent, Workflow, step
from support.llamaindex_parts import QUESTION, ListRetriever, Says

from ragguard.capture.handle import RunHandle
from ragguard_llamaindex import instrument


def engine(text="Ada Berg", **settings):
    return RetrieverQueryEngine.from_args(ListRetriever(), llm=Says(text=text), **settings)


@pytest.mark.parametrize("read", ["to its end", "in part", "not at all"])
def test_a_stream_that_is_read_after_its_run_was_left(recorder, captured, read):
    with RunHandle(recorder, QUESTION):
        response = engine(streaming=True).query("first hop")
    assert captured.run.status == "open"
    if read == "to its end":
        assert "".join(response.response_gen) == "Ada Berg"
    elif read == "in part":
        next(response.response_gen)
    del response
    run = captured.run
    answer = {"to its end": "Ada Berg", "in part": "Ada", "not at all": None}[read]
    assert (run.status, run.answer, run.question) == ("ok", answer, QUESTION)
    assert len(run.steps) == 1


async def test_a_chats_stream_that_is_read_after_its_run_was_left(recorder, captured):
    chat = ContextChatEngine.from_defaults(
        retriever=ListRetriever(), llm=Says(), memory=ChatMemoryBuffer.from_defaults()
    )
    with RunHandle(recorder, QUESTION):
        response = chat.stream_chat("hello")
    assert "".join(response.response_gen) == "Ada Berg"
    del response
    assert (captured.run.status, captured.run.answer) == ("ok", "Ada Berg")


class Report(Workflow):
    """Takes its question and gives its answer under names of its own."""

    gives: object = None

    @step
    async def write(self, ev: StartEvent) -> StopEvent:
        await ListRetriever().aretrieve(str(ev.get("topic", "a topic")))
        return StopEvent(result=self.gives)


def report(gives):
    made = Report()
    made.gives = gives
    return made


@pytest.mark.parametrize(
    ("gives", "answer"),
    [
        ({"summary": "Ada Berg"}, "Ada Berg"),
        ({"verdict": "Ada Berg", "sources": [object()]}, "Ada Berg"),
        ({"founder": "Ada Berg", "year": 1931}, '{"founder": "Ada Berg", "year": 1931}'),
        (
            AgentOutput(
                response=ChatMessage("She is Ada Berg."),
                structured_response={"founder": "Ada Berg"},
                current_agent_name="",
            ),
            '{"founder": "Ada Berg"}',
        ),
        ({"verdict": "Ada Berg", "ground": "she did"}, '{"verdict": "Ada Berg", "ground": "she did"}'),
        (("Ada Berg", "she did"), "Ada Berg\nshe did"),
    ],
    ids=["a usual name", "one text", "a text and a number", "a structured response", "two texts", "a pair"],
)
async def test_an_answer_in_pieces(recorder, captured, gives, answer):
    await report(gives).run(topic=QUESTION)
    assert captured.run.answer == answer


FOUND = {"report": {"verdict": "Ada Berg"}, "ground": "she did"}


async def test_where_question_and_answer_are_can_be_said(recorder, captured):
    instrument(
        SimpleNamespace(recorder=recorder),
        question=lambda given: given["subject"]["text"],
        answer=lambda result: result["report"]["verdict"],
    )
    await report(FOUND).run(other="text", subject={"text": QUESTION})
    assert (captured.run.question, captured.run.answer) == (QUESTION, "Ada Berg")


async def test_a_key_that_is_not_there_is_said(recorder, captured, caplog):
    instrument(SimpleNamespace(recorder=recorder), answer="reprot")
    with caplog.at_level(logging.WARNING, "ragguard"):
        await report({"report": "Ada Berg"}).run(topic=QUESTION)
    assert captured.run.answer == "Ada Berg"
    assert "It has: report" in caplog.text


TOKENS = ["Ada", " Berg", " of", " Oslo"]


class Breaks(Says):
    """Fails in the middle of its answer."""

    def stream_complete(self, prompt, formatted=False, **kwargs):
        def tokens():
            yield CompletionResponse(text="Ada", delta="Ada")
            raise ConnectionError("model went away")

        return tokens()


class Stalls(Says):
    """Says one word and then no more."""

    async def astream_complete(self, prompt, formatted=False, **kwargs):
        async def tokens():
            yield CompletionResponse(text="Ada", delta="Ada")
            await asyncio.Event().wait()

        return tokens()


def streaming_engine(llm=None):
    return RetrieverQueryEngine.from_args(
        ListRetriever(), llm=llm or Says(text="Ada Berg of Oslo"), streaming=True
    )


def test_every_token_reaches_the_user_and_the_run_ends_with_the_last(recorder, captured):
    response = streaming_engine().query(QUESTION)
    assert captured.run.status == "open"
    tokens = response.response_gen
    assert next(tokens) == "Ada"
    assert captured.run.status == "open"
    assert list(tokens) == TOKENS[1:]
    run = captured.run
    assert (run.status, run.answer, run.question) == ("ok", "Ada Berg of Oslo", QUESTION)


class Best(BaseNodePostprocessor):
    """Keeps the best node."""

    def _postprocess_nodes(self, nodes, query_bundle=None):
        return nodes[:1]


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_model_that_is_first_asked_when_its_stream_is_read_shows_what_was_read(
    recorder, captured, mode
):
    streaming = engine(streaming=True, node_postprocessors=[Best()])
    if mode == "sync":
        list(streaming.query(QUESTION).response_gen)
    else:
        [token async for token in (await streaming.aquery(QUESTION)).response_gen]
    (step,) = captured.run.steps
    assert (step.passages, step.k) == (step.candidates[:1], 1)
    assert len(step.candidates) == 2
    assert "ragguard.delivered" not in step.metadata


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_stream_that_is_closed_early_cancels_its_run(recorder, captured, mode):
    if mode == "sync":
        tokens = streaming_engine().query(QUESTION).response_gen
        next(tokens)
        tokens.close()
    else:
        tokens = (await streaming_engine().aquery(QUESTION)).response_gen
        await anext(tokens)
        await tokens.aclose()
    assert (captured.run.status, captured.run.answer) == ("cancelled", "Ada")


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_stream_that_nobody_reads_cancels_its_run(recorder, captured, mode):
    streaming_engine().query(QUESTION) if mode == "sync" else await streaming_engine().aquery(QUESTION)
    gc.collect()
    assert (captured.run.status, captured.run.answer) == ("cancelled", None)


def test_a_stream_that_breaks(recorder, captured):
    tokens = streaming_engine(Breaks()).query(QUESTION).response_gen
    assert next(tokens) == "Ada"
    with pytest.raises(ConnectionError, match="model went away"):
        next(tokens)
    run = captured.run
    assert (run.status, run.answer, run.metadata["error"]) == (
        "error",
        "Ada",
        "ConnectionError: model went away",
    )


CHATS = [
    lambda: ContextChatEngine.from_defaults(
        retriever=ListRetriever(), llm=Says(text="Ada Berg of Oslo"), memory=memory()
    ),
    lambda: CondensePlusContextChatEngine.from_defaults(
        retriever=ListRetriever(), llm=Says(text="Ada Berg of Oslo"), memory=memory()
    ),
    lambda: CondenseQuestionChatEngine.from_defaults(
        query_engine=streaming_engine(), llm=Says(text="Ada Berg of Oslo"), memory=memory()
    ),
]


def memory():
    return ChatMemoryBuffer.from_defaults()


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("chat", CHATS, ids=["context", "condense and context", "condense"])
async def test_streamed_chat_gives_every_token_and_ends_its_run(recorder, captured, chat, mode):
    if mode == "sync":
        tokens = list(chat().stream_chat(QUESTION).response_gen)
    else:
        tokens = [token async for token in (await chat().astream_chat(QUESTION)).async_response_gen()]
    run = captured.run
    assert (tokens, run.status, run.answer, run.question) == (TOKENS, "ok", "Ada Berg of Oslo", QUESTION)


def test_a_chat_is_heard_to_its_end_even_when_nobody_reads_it(recorder, captured):
    response = CHATS[0]().stream_chat(QUESTION)
    response.write_response_to_history_thread.join(10)
    assert (captured.run.status, captured.run.answer) == ("ok", "Ada Berg of Oslo")


async def test_an_async_chat_that_is_cancelled(recorder, captured):
    chat = ContextChatEngine.from_defaults(retriever=ListRetriever(), llm=Stalls(), memory=memory())
    response = await chat.astream_chat(QUESTION)
    tokens = response.async_response_gen()
    assert await anext(tokens) == "Ada"
    writer = response.awrite_response_to_history_task
    writer.cancel()
    await asyncio.gather(writer, return_exceptions=True)
    assert (captured.run.status, captured.run.answer) == ("cancelled", "Ada")
