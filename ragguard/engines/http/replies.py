"""Replies of servers: their bodies, read up to a limit, the parts that are alike in all APIs, and each way to fail,
as one of our errors (`errors.py`)."""

from __future__ import annotations

import json
import os
import re
import ssl
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from ragguard.errors import (
    EngineError,
    EngineOverloaded,
    EngineProtocolError,
    EngineRejected,
    EngineUnreachable,
    PromptTooLong,
)
from ragguard.records import Usage
from ragguard.runtime.deadline import in_words
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

CONNECT_S = 10.0
"""Seconds that connecting to a server may take."""
LOOKED_AT = 4000
"""The number of characters of an answer that are read for an error message, which is then cut further."""
_TOO_LONG = re.compile(
    r"context[_ ]?(length|size|window)|maximum (model|input|prompt) length|prompt (is )?too long"
    r"|too many (input )?tokens|longer than the maximum",
    re.IGNORECASE,
)
_PERMANENT = frozenset(
    {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "account_deactivated"}
)
"""The refusals that stay whatever their status says, by the code or the type of the error."""
_LIMIT = re.compile(
    r"(?:context (?:length|size|window)|max_model_len|maximum model length)\D{0,12}?(\d+)", re.IGNORECASE
)
_LENGTH = re.compile(
    r"(?:resulted in|contains(?: at least)?|requested|request|prompt|length of)\D{0,12}?(\d+) (?:input )?tokens",
    re.IGNORECASE,
)


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


def may_pass(status: int) -> bool:
    """Returns whether a refusal with this status may pass by itself. What a server has not implemented (501) does
    not."""
    return status in (408, 429) or (500 <= status < 600 and status != 501)


def _codes(answer: Any) -> set[str]:
    """Returns the words by which a reply names its error."""
    error = answer.get("error") if isinstance(answer, Mapping) else None
    named = [error.get(name) for name in ("code", "type")] if isinstance(error, Mapping) else []
    return {word for word in named if isinstance(word, str)}


def code(error: Any) -> int:
    """Returns the status that an error object in a reply names; 0 where it names none."""
    code = error.get("code") if isinstance(error, Mapping) else None
    return (
        int(code) if isinstance(code, int) or (isinstance(code, str) and re.fullmatch(r"\d{3}", code)) else 0
    )


def refusal(
    method: str, url: str, status: int, headers: httpx.Headers, body: bytes, *, known: bool
) -> EngineError:
    """Returns the error for a reply with this status; `known` is true where the URL has answered well before."""
    from_server, answer = True, None
    try:
        said = message(answer := parsed(body))
    except ValueError:
        said, from_server = brief(as_text(body, LOOKED_AT))[:200], False
    said = said or httpx.codes.get_reason_phrase(status) or "nothing"
    what = f"{method} {url}: {status}, the server said: {said}"
    if not _PERMANENT.isdisjoint(_codes(answer)):
        return EngineRejected(f"{what}; waiting does not help: look at the account's quota and its bills")
    if may_pass(status):
        wait = _retry_after(headers)
        asks = "" if not wait else f"; it asks to come back in {in_words(wait)}"
        return EngineOverloaded(what + asks, retry_after=wait, status=status)
    if status in (401, 403):
        return EngineRejected(what)
    if 300 <= status < 400:
        return EngineRejected(f"{what}; it points elsewhere: use that address")
    if status in (400, 413, 422) and _TOO_LONG.search(said):
        limit, length = _LIMIT.search(said), _LENGTH.search(said)
        return PromptTooLong(
            f"{what}; give fewer or shorter passages, or serve the model with more context",
            limit=int(limit[1]) if limit else None,
            tokens=int(length[1]) if length else None,
        )
    if status in (404, 405, 415, 422) and not (isinstance(answer, Mapping) and "error" in answer):
        what += "; is this an OpenAI-compatible server? Its address mostly ends in /v1"
    refusal = EngineRejected(what, status=status)
    if status == 404:
        # A proxy's page may give way to the server again. A server that has lost its model has another one: the answer
        # to the same call would be taken for one of the first model, so only the run is tried again.
        refusal.retryable, refusal.repeated = known, known and from_server
    return refusal


def message(answer: Any) -> str:
    said, parameter = answer, None
    for name in ("error", "message", "detail"):
        if isinstance(said, Mapping) and name in said:
            parameter = said.get("param")
            said = said[name]
    text = said if isinstance(said, str) else json.dumps(said)
    named = not parameter or re.search(rf"\b{re.escape(str(parameter))}\b", text)
    return brief(text if named else f"{text} (parameter {parameter})")


def _retry_after(headers: httpx.Headers) -> float | None:
    """Returns the seconds in `retry-after-ms`, or in `Retry-After`, which holds seconds or a date."""
    try:
        if "retry-after-ms" in headers:
            return max(0.0, float(headers["retry-after-ms"]) / 1000)
        given = headers.get("retry-after")
        if given is None:
            return None
        if re.fullmatch(r"\s*\d+(\.\d+)?\s*", given):
            return float(given)
        return max(0.0, parsedate_to_datetime(given).timestamp() - time.time())
    except (ValueError, TypeError):
        return None


def broken(what: str, error: Exception) -> EngineError:
    """Returns the error for a request that brought no reply, by the exception of the HTTP library."""
    said = brief(str(error))
    if isinstance(error, httpx.ConnectTimeout):
        return EngineUnreachable(
            f"{what}: no connection within {CONNECT_S:.0f} s; check host and port, and that the server is up"
        )
    if isinstance(error, httpx.ConnectError):
        why = brief(_why_not_connected(error))
        return EngineUnreachable(f"{what}: {why}; check the address and that the server is up")
    if isinstance(error, httpx.TransportError):
        return EngineUnreachable(
            f"{what}: the connection broke ({said or type(error).__name__}); the server may have been restarted"
        )
    return EngineProtocolError(f"{what}: {type(error).__name__}: {said}")


def _why_not_connected(error: BaseException) -> str:
    """Returns the operating system's reason, such as `connection refused`; httpx says only that all attempts failed."""
    root: BaseException | None = error
    while root is not None:
        if isinstance(root, ssl.SSLError):
            return (
                f"no TLS connection ({root.reason or root}); a server without TLS has an address with http://"
            )
        if isinstance(root, OSError) and root.errno is not None and root.errno > 0:
            return os.strerror(root.errno).lower()
        root = root.__cause__ or root.__context__
    return str(error) or "no connection"
