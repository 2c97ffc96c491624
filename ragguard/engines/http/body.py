"""Reads the body of a server's reply up to a limit, also where it is endless, and the parts that are alike in all APIs:
the choices and their cost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

import httpx

from ragguard.errors import EngineProtocolError
from ragguard.records import Usage
from ragguard.runtime.faults import brief
from ragguard.runtime.limiter import Limiter
from ragguard.runtime.per_process import PerProcess

MOST_BYTES = 32 * 2**20
"""The largest reply that is read. 512 answers of 64 tokens with their log-probabilities are some 5 MB."""
MOST_BYTES_OF_AN_ERROR = 64 * 2**10
"""The most bytes that are read of an error's body."""
LARGE_REPLIES = 4
"""How many replies beyond `_SMALL` are read at once in this process, over all connections; the others wait, as far as
they were read."""
_SMALL = 64 * 2**10
_COUNTS = (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens"))
"""The names of the tokens read and written: those of completions, and those of decisions."""
_STEP = 64 * 2**10

_large_replies = PerProcess(lambda: Limiter(LARGE_REPLIES))


class BodyTooLarge(Exception):
    """Raised when a body is longer than its limit; `read` holds how it begins."""

    def __init__(self, read: bytes) -> None:
        super().__init__("the body of the reply is too large")
        self.read = read


async def read_body(response: httpx.Response, limit: int) -> bytes:
    """Returns the body, or raises `BodyTooLarge` without holding more than the limit and a little."""
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        raise EngineProtocolError(
            f"the reply is compressed ({encoding[:40]!r}), which was not asked for: switch that off in the server, or "
            "in the proxy before it"
        )
    body = bytearray()
    async with AsyncExitStack() as slot:
        async for piece in response.aiter_raw(_STEP):
            if len(body) <= _SMALL < len(body) + len(piece):
                await slot.enter_async_context(_large_replies.get().admitted())
            body += piece
            if len(body) > limit:
                # The error and its traceback may be kept for long, so they hold no more than is shown.
                del body[MOST_BYTES_OF_AN_ERROR:]
                raise BodyTooLarge(bytes(body))
        return bytes(body)


def parsed(body: bytes) -> Any:
    """Returns the JSON in a body; raises ValueError where there is none, and for JSON that is nested too deeply."""
    try:
        return json.loads(body)
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error


def as_text(body: bytes, length: int) -> str:
    """Returns the first characters of a body that is no JSON, whatever it is encoded in."""
    return body[: 4 * length].decode("utf-8", "replace")[:length]


def unexpected(url: str, expected: str, got: Any) -> EngineProtocolError:
    """Returns the error for a part of a reply that is not what it should be; it names the fields that came instead."""
    if isinstance(got, Mapping):
        came = "an object with " + (", ".join(f"`{name}`" for name in list(got)[:8]) or "nothing in it")
    else:
        came = brief(json.dumps(got))[:80]
    return EngineProtocolError(
        f"{url}: expected {expected} and got {came}; is this an OpenAI-compatible server?"
    )


def choices_of(answer: Any, url: str) -> list[Mapping[str, Any]]:
    """Returns the choices in a reply, as they are listed."""
    found = answer.get("choices") if isinstance(answer, Mapping) else None
    if not isinstance(found, list) or not all(isinstance(choice, Mapping) for choice in found):
        raise unexpected(url, "a reply with a list of `choices`", answer)
    return found


def usage_of(answer: Any, prompts: int) -> Usage:
    """Returns the cost of a reply; zeros where the server does not report it."""
    said = answer.get("usage") if isinstance(answer, Mapping) else None
    known = said if isinstance(said, Mapping) else {}
    counts = [known.get(name, known.get(other)) for name, other in _COUNTS]
    spent, written = (max(0, count) if isinstance(count, int) else 0 for count in counts)
    return Usage(requests=1, prompts=prompts, prompt_tokens=spent, output_tokens=written)
