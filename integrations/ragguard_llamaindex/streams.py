"""Observes streamed answers: the user gets every token as before, and the whole text is known at the stream's end.

A stream also ends when it is closed or garbage-collected, even one that was never read.
"""

from __future__ import annotations

import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from typing import Any, TypeAlias, TypeVar

from llama_index.core.base.llms.types import ChatResponse
from llama_index.core.base.response.schema import AsyncStreamingResponse, StreamingResponse
from llama_index.core.chat_engine.types import StreamingAgentChatResponse

from ragguard.capture.handle import status_of
from ragguard.records import Status

Item = TypeVar("Item")

OnEnd: TypeAlias = Callable[[object, Status, BaseException | None], None]
"""A function that is called once with the answer, the status of the stream, and the error that ended it, if any."""


def watch(response: StreamingResponse | AsyncStreamingResponse, on_end: OnEnd) -> None:
    """Puts a listener between the response's stream and its reader."""
    streamed = StreamedAnswer(on_end)
    generator: Generator[Any, None, None] | AsyncGenerator[Any, None]
    if isinstance(response, StreamingResponse):
        generator = response.response_gen = _listen(response.response_gen, streamed, streamed.token)
    else:
        generator = response.response_gen = _alisten(response.response_gen, streamed, streamed.token)
    # A generator that was never started runs no code when it is garbage-collected.
    streamed.gone = weakref.finalize(generator, streamed.end, "cancelled")
    streamed.gone.atexit = False


def watch_chat(response: StreamingAgentChatResponse, on_end: OnEnd) -> StreamedAnswer:
    """Puts a listener between a chat's stream, which is about to be read in the background, and its reader."""
    streamed = StreamedAnswer(on_end)
    if response.chat_stream is not None:
        response.chat_stream = _listen(response.chat_stream, streamed, streamed.chat)
    if response.achat_stream is not None:
        response.achat_stream = _alisten(response.achat_stream, streamed, streamed.chat)
    return streamed


class StreamedAnswer:
    """The part of a streamed answer that its reader has been given so far; `with` it the end of the block is reported
    as the end of the stream."""

    __slots__ = ("_last", "_on_end", "_texts", "gone")

    def __init__(self, on_end: OnEnd) -> None:
        self._on_end: OnEnd | None = on_end
        self._texts: list[str] = []
        self._last: object = None
        self.gone: weakref.finalize[..., Any] | None = None

    @property
    def ended(self) -> bool:
        """True once the end of the stream was reported."""
        return self._on_end is None

    def token(self, token: object) -> None:
        """Adds the next piece of the answer. Structured output streams growing objects in place of pieces of text;
        the last object is the answer."""
        if isinstance(token, str):
            self._texts.append(token)
        else:
            self._last = token

    def chat(self, response: ChatResponse) -> None:
        """Adds the next piece of a chat's stream, which has the new text beside the text so far."""
        self._texts.append(response.delta or "")

    def end(self, status: Status = "ok", error: BaseException | None = None) -> None:
        """Reports the end of the stream, once."""
        on_end, self._on_end = self._on_end, None
        if on_end is None:
            return
        if self.gone is not None:
            self.gone.detach()
        answer = "".join(self._texts) if self._texts or self._last is None else self._last
        on_end(answer or None, status, error)

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.end(status_of(error), error)


def _listen(
    stream: Iterator[Item], streamed: StreamedAnswer, listen: Callable[[Item], None]
) -> Generator[Item, None, None]:
    try:
        with streamed:
            for item in stream:
                listen(item)
                yield item
    finally:
        if isinstance(stream, Generator):
            stream.close()


async def _alisten(
    stream: AsyncIterator[Item], streamed: StreamedAnswer, listen: Callable[[Item], None]
) -> AsyncGenerator[Item, None]:
    try:
        with streamed:
            async for item in stream:
                listen(item)
                yield item
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()
