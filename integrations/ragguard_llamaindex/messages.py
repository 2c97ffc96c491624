"""Reads what LlamaIndex gives models and tools, and the answers of its responses, and observes streamed answers.

The user gets every token of a stream as before, and the whole text is known at the stream's end. A stream also ends
when it is closed or garbage-collected, even one that was never read.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias, TypeVar

from llama_index.core.agent.workflow import AgentOutput
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse
from llama_index.core.base.response.schema import (
    AsyncStreamingResponse,
    PydanticResponse,
    Response,
    StreamingResponse,
)
from llama_index.core.chat_engine.types import AgentChatResponse, StreamingAgentChatResponse
from llama_index.core.tools import ToolOutput

from ragguard.capture.handle import status_of
from ragguard.capture.shapes import answer_in
from ragguard.records import Status

REPLIES = (ChatResponse, CompletionResponse)
RESPONSES = (Response, PydanticResponse, StreamingResponse, AsyncStreamingResponse, AgentChatResponse)
_REWRITTEN = re.compile(r"\n\w+ is (.*)\n", re.DOTALL)


def prompt_of(arguments: Mapping[str, Any]) -> object:
    """Returns what a call gives a model; LlamaIndex's decorators for models hide the names of the arguments."""
    given = {**arguments, **arguments.get("kwargs", {})}
    positional = next(iter(arguments.get("args", ())), None)
    return given.get("messages", given.get("prompt", positional))


def tool_arguments(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns what the agent wrote to a tool, by the names of the arguments."""
    args, kwargs = arguments.get("args", ()), arguments.get("kwargs", {})
    given: dict[str, Any] = {**{str(n): value for n, value in enumerate(args)}, **kwargs}
    return given or {name: value for name, value in arguments.items() if name not in ("args", "kwargs")}


def without_rewriting(asked: str) -> str:
    """Returns a query without the words that a RetrieverTool puts around the one argument that the agent wrote."""
    found = _REWRITTEN.fullmatch(asked)
    return (asked if found is None else found[1]).strip()


def answer_of(response: object) -> str | None:
    """Returns an answer's text; None where it has none, as an image has."""
    if isinstance(response, (Response, AgentChatResponse, StreamingAgentChatResponse)):
        return response.response
    if isinstance(response, (StreamingResponse, AsyncStreamingResponse)):
        return response.response_txt
    if isinstance(response, ToolOutput):
        return response.content
    if isinstance(response, AgentOutput) and response.structured_response is None:
        response = response.response  # beside it stands the model's whole reply, thoughts included
    return answer_in(response, whole=not isinstance(response, (ChatMessage, *REPLIES))).text


Item = TypeVar("Item")

OnEnd: TypeAlias = Callable[[object, Status, BaseException | None], None]
"""A function that is called once with the answer, the status of the stream, and the error that ended it, if any."""


Inside: TypeAlias = Callable[[], AbstractContextManager[object]]
"""Returns a context in which what is called counts as called inside the run whose answer is streamed."""


def watch(response: StreamingResponse | AsyncStreamingResponse, on_end: OnEnd, inside: Inside) -> None:
    """Puts a listener between the response's stream and its reader. A model that is first asked when the stream is
    read is asked `inside` the run."""
    streamed = StreamedAnswer(on_end, inside)
    generator: Generator[Any, None, None] | AsyncGenerator[Any, None]
    if isinstance(response, StreamingResponse):
        generator = response.response_gen = _listen(response.response_gen, streamed)
    else:
        generator = response.response_gen = _alisten(response.response_gen, streamed)
    # A generator that was never started runs no code when it is garbage-collected.
    weakref.finalize(generator, streamed.end, "cancelled").atexit = False


def watch_chat(response: StreamingAgentChatResponse, on_end: OnEnd) -> StreamedAnswer:
    """Puts a listener between a chat's stream, which is about to be read in the background, and its reader."""
    streamed = StreamedAnswer(on_end)
    if response.chat_stream is not None:
        response.chat_stream = _listen(response.chat_stream, streamed)
    if response.achat_stream is not None:
        response.achat_stream = _alisten(response.achat_stream, streamed)
    return streamed


class StreamedAnswer:
    """The part of a streamed answer that its reader has been given so far; `with` it the end of the block is reported
    as the end of the stream."""

    __slots__ = ("_last", "_on_end", "_texts", "inside")

    def __init__(self, on_end: OnEnd, inside: Inside = nullcontext) -> None:
        self._on_end: OnEnd | None = on_end
        self.inside = inside
        self._texts: list[str] = []
        self._last: object = None

    @property
    def ended(self) -> bool:
        """True once the end of the stream was reported."""
        return self._on_end is None

    def heard(self, piece: object) -> None:
        """Adds the next piece of the answer: a text, or a chat's message, which has the new text beside the text so
        far. Structured output streams growing objects; the last one is the answer."""
        if isinstance(piece, ChatResponse):
            piece = piece.delta or ""
        if isinstance(piece, str):
            self._texts.append(piece)
        else:
            self._last = piece

    def end(self, status: Status = "ok", error: BaseException | None = None) -> None:
        """Reports the end of the stream, once."""
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            answer = "".join(self._texts) if self._texts or self._last is None else self._last
            on_end(answer or None, status, error)

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.end(status_of(error), error)


_END: Any = object()


def _listen(stream: Iterator[Item], streamed: StreamedAnswer) -> Generator[Item, None, None]:
    try:
        with streamed:
            while True:
                with streamed.inside():
                    item = next(stream, _END)
                if item is _END:
                    return
                streamed.heard(item)
                yield item
    finally:
        if isinstance(stream, Generator):
            stream.close()


async def _alisten(stream: AsyncIterator[Item], streamed: StreamedAnswer) -> AsyncGenerator[Item, None]:
    try:
        with streamed:
            while True:
                with streamed.inside():
                    item = await anext(stream, _END)
                if item is _END:
                    return
                streamed.heard(item)
                yield item
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()
