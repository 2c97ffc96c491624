"""Replies of servers: the parts that all APIs share, and each kind of failure as an error of ragguard (`errors.py`)."""

from __future__ import annotations

import json
import os
import re
import ssl
from collections.abc import Mapping
from typing import Any, TypeVar

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

T = TypeVar("T")

_COUNTS = (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens"))
"""The names of the tokens read and written: those of completions, and those of decisions."""
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


NOT_JSON = (ValueError, RecursionError)
"""The errors of `json.loads`; the second is that of JSON which is nested too deeply."""


def beginning(body: bytes) -> str:
    """Returns how a body begins that is no JSON, whatever it is encoded in."""
    return brief(body[:4000].decode("utf-8", "replace"))


def unexpected(url: str, expected: str, got: Any) -> EngineProtocolError:
    """Returns the error for a part of a reply that is not what it should be; it names the fields that came instead."""
    if isinstance(got, Mapping):
        came = "an object with " + (", ".join(f"`{name}`" for name in list(got)[:8]) or "nothing in it")
    else:
        came = brief(json.dumps(got))[:80]
    return EngineProtocolError(
        f"{url}: expected {expected} and got {came}; is this an OpenAI-compatible server?"
    )


def optional(answer: Any, kind: type[T], *path: str) -> T | None:
    """Returns the value at a path of names in a reply; None where there is none of this type."""
    for name in path:
        answer = answer.get(name) if isinstance(answer, Mapping) else None
    return answer if isinstance(answer, kind) else None


def needed(answer: Any, kind: type[T], *path: str, url: str, expected: str) -> T:
    """Returns the value at a path of names in a reply.

    Raises EngineProtocolError where there is none of this type; `expected` says what should have come.
    """
    found = optional(answer, kind, *path)
    if found is None:
        raise unexpected(url, expected, answer)
    return found


def choices_of(answer: Any, url: str) -> list[Mapping[str, Any]]:
    """Returns the choices in a reply, at least one, as they are listed."""
    expected = "a reply with a list of `choices`"
    found = needed(answer, list, "choices", url=url, expected=expected)
    if not found or not all(isinstance(choice, Mapping) for choice in found):
        raise unexpected(url, expected, answer)
    return found


def usage_of(answer: Any, prompts: int) -> Usage:
    """Returns the cost of a reply; zeros where the server does not report it."""
    known = optional(answer, Mapping, "usage") or {}
    counts = [known.get(name, known.get(other)) for name, other in _COUNTS]
    spent, written = (max(0, count) if isinstance(count, int) else 0 for count in counts)
    return Usage(requests=1, prompts=prompts, prompt_tokens=spent, output_tokens=written)


def refusal(what: str, status: int, headers: httpx.Headers, body: bytes, *, known: bool) -> EngineError:
    """Returns the error for a reply with this status; `known` is true where the URL has answered well before."""
    try:
        answer = json.loads(body)
        said, from_server = message(answer), True
    except NOT_JSON:
        answer, said, from_server = None, beginning(body)[:200], False
    what = f"{what}: {status}, the server said: {said or httpx.codes.get_reason_phrase(status) or 'nothing'}"
    if _PERMANENT & {optional(answer, str, "error", name) for name in ("code", "type")}:
        return EngineRejected(f"{what}; waiting does not help: look at the account's quota and its bills")
    # What a server has not implemented (501) does not pass by itself.
    if status in (408, 429) or (500 <= status < 600 and status != 501):
        wait = _retry_after(headers)
        asks = "" if not wait else f"; it asks to come back in {in_words(wait)}"
        return EngineOverloaded(what + asks, retry_after=wait, status=status)
    if status in (400, 413, 422) and _TOO_LONG.search(said):
        limit, length = _LIMIT.search(said), _LENGTH.search(said)
        return PromptTooLong(
            f"{what}; give fewer or shorter passages, or serve the model with more context",
            limit=int(limit[1]) if limit else None,
            tokens=int(length[1]) if length else None,
        )
    if 300 <= status < 400:
        what += "; it points elsewhere: use that address"
    elif status in (404, 405, 415, 422) and not (isinstance(answer, Mapping) and "error" in answer):
        what += "; is this an OpenAI-compatible server? Its address mostly ends in /v1"
    error = EngineRejected(what, status=status)
    if status == 404:
        # A proxy's page may give way to the server again. A server that has lost its model has another one: the answer
        # to the same call would be taken for one of the first model, so only the run is tried again.
        error.retryable, error.repeated = known, known and from_server
    return error


def status_within(answer: Any) -> int:
    """Returns the status of a reply that came with 200: another one where it holds an error."""
    if not isinstance(answer, Mapping) or not answer.get("error"):
        return 200
    code = str(optional(answer, object, "error", "code"))
    return int(code) if re.fullmatch(r"[45]\d\d", code) else 400


def message(answer: Any) -> str:
    """Returns what a server says of an error, and the parameter that it names."""
    said, parameter = answer, None
    for name in ("error", "message", "detail"):
        if isinstance(said, Mapping) and name in said:
            parameter = said.get("param")
            said = said[name]
    text = said if isinstance(said, str) else json.dumps(said)
    named = not parameter or re.search(rf"\b{re.escape(str(parameter))}\b", text)
    return brief(text if named else f"{text} (parameter {parameter})")


def _retry_after(headers: httpx.Headers) -> float | None:
    """Returns the seconds in `Retry-After`; a date there is not read."""
    given = headers.get("retry-after", "").strip()
    return float(given) if re.fullmatch(r"\d+(\.\d+)?", given) else None


def broken(what: str, error: Exception) -> EngineError:
    """Returns the error for a request that brought no reply, by the exception of the HTTP library."""
    said = brief(str(error)) or type(error).__name__
    if isinstance(error, httpx.ConnectTimeout | httpx.ConnectError):
        return EngineUnreachable(
            f"{what}: {_reason(error) or said}; check the address (http:// or https://) and that the server is up"
        )
    if isinstance(error, httpx.TransportError):
        return EngineUnreachable(f"{what}: the connection broke ({said}); the server may have been restarted")
    return EngineProtocolError(f"{what}: {type(error).__name__}: {said}")


def _reason(error: BaseException | None) -> str:
    """Returns the operating system's reason, such as `connection refused`; httpx says only that all attempts failed.
    Of TLS it says more, and the number is none of the system's."""
    while error is not None and not isinstance(error, ssl.SSLError):
        if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
            return os.strerror(error.errno).lower()
        error = error.__cause__ or error.__context__
    return ""
