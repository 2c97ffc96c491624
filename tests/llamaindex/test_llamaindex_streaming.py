"""Streaming: the user gets every token, and the run ends with its stream, however that goes."""

from __future__ import annotations

import asyncio
import gc

import pytest
from llama_index.core.base.llms.types import CompletionResponse
from llama_index.core.chat_engine import (
    CondensePlusContextChatEngine,
    CondenseQuestionChatEngine,
    ContextChatEngine,
)
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.query_engine import RetrieverQueryEngine
from support.llamaindex_parts import QUESTION, ListRetriever, Says

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


def engine(llm=None):
    return RetrieverQueryEngine.from_args(
        ListRetriever(), llm=llm or Says(text="Ada Berg of Oslo"), streaming=True
    )


def test_every_token_reaches_the_user_and_the_run_ends_with_the_last(recorder, captured):
    response = engine().query(QUESTION)
    assert captured.run.status == "open"
    tokens = response.response_gen
    assert next(tokens) == "Ada"
    assert captured.run.status == "open"
    assert list(tokens) == TOKENS[1:]
    run = captured.run
    assert (run.status, run.answer, run.question) == ("ok", "Ada Berg of Oslo", QUESTION)


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_stream_that_is_closed_early_cancels_its_run(recorder, captured, mode):
    if mode == "sync":
        tokens = engine().query(QUESTION).response_gen
        next(tokens)
        tokens.close()
    else:
        tokens = (await engine().aquery(QUESTION)).response_gen
        await anext(tokens)
        await tokens.aclose()
    assert (captured.run.status, captured.run.answer) == ("cancelled", "Ada")


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_stream_that_nobody_reads_cancels_its_run(recorder, captured, mode):
    engine().query(QUESTION) if mode == "sync" else await engine().aquery(QUESTION)
    gc.collect()
    assert (captured.run.status, captured.run.answer) == ("cancelled", None)


def test_a_stream_that_breaks(recorder, captured):
    tokens = engine(Breaks()).query(QUESTION).response_gen
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
        query_engine=engine(), llm=Says(text="Ada Berg of Oslo"), memory=memory()
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
