"""Streamed answers: the user gets every token as before, and the whole text is known at the stream's end.

A stream also ends when it is closed, or dropped and collected; even one that nobody ever read.
"""

from __future__ import annotations

import weakref
from asyncio import CancelledError
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from typing import Any, TypeAlias

from llama_index.core.base.response.schema import AsyncStreamingResponse, StreamingResponse

from ragguard.records import Status

OnEnd: TypeAlias = Callable[[object, Status, BaseException | None], None]
"""Told once: what was said, how it ended, and the error if one ended it."""


def watch(response: StreamingResponse | AsyncStreamingResponse, on_end: OnEnd) -> None:
    """Puts a listener between the response's stream and its reader."""
    heard = _Heard(on_end)
    generator: Generator[Any, None, None] | AsyncGenerator[Any, None]
    if isinstance(response, StreamingResponse):
        generator = response.response_gen = _listen(response.response_gen, heard)
    else:
        generator = response.response_gen = _alisten(response.response_gen, heard)
    # A generator that was never started runs no code of its own when it goes.
    heard.gone = weakref.finalize(generator, heard.end, "cancelled")
    heard.gone.atexit = False


class _Heard:
    """What a reader has been given so far."""

    __slots__ = ("_last", "_on_end", "_texts", "gone")

    def __init__(self, on_end: OnEnd) -> None:
        self._on_end: OnEnd | None = on_end
        self._texts: list[str] = []
        self._last: object = None
        self.gone: weakref.finalize[..., Any] | None = None

    def token(self, token: object) -> None:
        """Structured output streams growing objects in place of pieces of text; the last one is the answer."""
        if isinstance(token, str):
            self._texts.append(token)
        else:
            self._last = token

    def end(self, status: Status = "ok", error: BaseException | None = None) -> None:
        on_end, self._on_end = self._on_end, None
        if on_end is None:
            return
        if self.gone is not None:
            self.gone.detach()
        said = "".join(self._texts) if self._texts or self._last is None else self._last
        on_end(said or None, status, error)


def _listen(tokens: Iterator[Any], heard: _Heard) -> Generator[Any, None, None]:
    try:
        for token in tokens:
            heard.token(token)
            yield token
    except BaseException as error:
        heard.end(status_of(error), error)
        raise
    else:
        heard.end()
    finally:
        if isinstance(tokens, Generator):
            tokens.close()


async def _alisten(tokens: AsyncIterator[Any], heard: _Heard) -> AsyncGenerator[Any, None]:
    try:
        async for token in tokens:
            heard.token(token)
            yield token
    except BaseException as error:
        heard.end(status_of(error), error)
        raise
    else:
        heard.end()
    finally:
        if isinstance(tokens, AsyncGenerator):
            await tokens.aclose()


def status_of(error: BaseException | None) -> Status:
    """How something ended that ended with that error."""
    if error is None:
        return "ok"
    return "cancelled" if isinstance(error, (CancelledError, GeneratorExit, KeyboardInterrupt)) else "error"
