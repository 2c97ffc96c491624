"""The HTTP client: sends JSON to an engine's server, and turns each failure into one of the errors of `errors.py`.

Knows addresses, keys, deadlines and event loops; knows no model and no API. The key is never shown: not in a repr, a
log line or an error, even where the server repeats it.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import ssl
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.request import getproxies

import httpx

from ragguard.engines.account import count_reply, count_request
from ragguard.engines.http.address import key_from_environment, parse_address
from ragguard.engines.http.body import (
    MOST_BYTES,
    MOST_BYTES_OF_AN_ERROR,
    BodyTooLarge,
    as_text,
    parsed,
    read_body,
    usage_of,
)
from ragguard.errors import (
    Closed,
    EngineError,
    EngineOverloaded,
    EngineProtocolError,
    EngineRejected,
    EngineUnreachable,
    InvalidInput,
    PromptTooLong,
)
from ragguard.runtime.deadline import in_words, until
from ragguard.runtime.faults import brief
from ragguard.runtime.notices import NOTICES
from ragguard.text.credentials import (
    checked_headers,
    checked_key,
    header_lines,
)
from ragguard.text.secret_filter import clean_cause

_CONNECT_S = 10.0
_SILENT_S = 3.0
"""Seconds after which a server that has answered nothing yet is said to be waited for."""
_LOOKED_AT = 4000
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


class HttpClient:
    """Sends requests to one server. Safe to use from several event loops and threads at once."""

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        timeout_s: float = 120.0,
        connections: int = 64,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.address = parse_address(url)
        if not timeout_s > 0:
            raise InvalidInput("timeout_s", timeout_s, "more than 0 seconds")
        if connections < 1:
            raise InvalidInput("connections", connections, "1 or more")
        self.timeout_s = timeout_s
        self._connections = connections
        given = None if api_key is None else checked_key("api_key", api_key)
        self._key = key_from_environment(self.address) if given is None else given
        self._headers = header_lines("RAGGUARD_HEADERS", os.environ.get("RAGGUARD_HEADERS", ""))
        self._headers |= checked_headers("headers", headers or {})
        self._clients: dict[asyncio.AbstractEventLoop, httpx.AsyncClient] = {}
        """The connections of each event loop. Single operations of a dict need no lock between threads."""
        self._closed = False
        self._answered: set[str] = set()
        """The URLs that have answered well. An odd answer of such a URL may pass by itself, such as that of a proxy
        while the server restarts. A URL that never answered well is a wrong address."""

    def __repr__(self) -> str:
        return f"HttpClient({self.address.base!r})"

    async def get(self, path: str, *, root: bool = False) -> Any:
        """Returns the JSON at a path under the base, or under the root."""
        return await self._ask("GET", path, None, None, root)

    async def post(
        self, path: str, body: Mapping[str, Any], *, deadline: float | None = None, root: bool = False
    ) -> Any:
        """Returns the JSON that a server replies to a JSON body."""
        # No server accepts an unpaired surrogate; it becomes a question mark.
        content = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        return await self._ask("POST", path, content, deadline, root)

    async def aclose(self) -> None:
        """Closes the connections of each event loop that still runs."""
        self._closed = True
        here = asyncio.get_running_loop()
        for loop in list(self._clients):
            client = self._clients.pop(loop, None)
            if client is None:
                continue
            if loop is here:
                await client.aclose()
            elif loop.is_running():
                closing = asyncio.run_coroutine_threadsafe(client.aclose(), loop)
                await asyncio.wait([asyncio.wrap_future(closing)], timeout=5.0)

    def _client(self) -> httpx.AsyncClient:
        if self._closed:
            raise Closed(f"the engine at {self.address.base} was closed: connect again")
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            for ended in [other for other in list(self._clients) if other.is_closed()]:
                self._clients.pop(ended, None)
            client = self._clients[loop] = self._new_client()
        return client

    def _new_client(self) -> httpx.AsyncClient:
        # A compressed reply could become gigabytes.
        headers = httpx.Headers(
            {
                "Content-Type": "application/json",
                "Accept": "application/json",
                "Accept-Encoding": "identity",
            }
        )
        if self._key:
            name, scheme = ("api-key", "") if self.address.is_azure else ("Authorization", "Bearer ")
            headers[name] = scheme + self._key
        headers.update(self._headers)
        return httpx.AsyncClient(
            headers=headers,
            params=self.address.query,
            # Certificates take tens of milliseconds to load, out of the budget of a guard's first call.
            verify=self._is_encrypted(),
            auth=None if "authorization" in headers else self.address.credentials,
            # Requests to this machine never use a proxy.
            trust_env=not self.address.loopback,
            # The whole exchange is timed by the caller's deadline; here only the hand-shake.
            timeout=httpx.Timeout(None, connect=_CONNECT_S),
            limits=httpx.Limits(
                max_connections=self._connections, max_keepalive_connections=self._connections
            ),
        )

    def _is_encrypted(self) -> bool:
        """True where a certificate may have to be checked: that of the server, or of a proxy on the way to it."""
        proxies = {} if self.address.loopback else getproxies()
        return self.address.base.startswith("https:") or any(p.startswith("https:") for p in proxies.values())

    def _say_waiting(self, url: str, most: float) -> None:
        NOTICES.warn(
            f"no answer from {self.address.base}",
            f"{url} has not answered for {_SILENT_S:.0f} s; this request is given up after {most:.0f} s. "
            "Is the server up, and is this its address?",
        )

    async def _ask(
        self, method: str, path: str, content: bytes | None, deadline: float | None, root: bool
    ) -> Any:
        url = (self.address.root if root else self.address.base) + path
        count_request()
        began = time.monotonic()
        limit = min(math.inf if deadline is None else deadline, began + self.timeout_s)
        patient: asyncio.TimerHandle | None = None
        if (
            not self._answered
        ):  # a server that hangs would leave a user without a word until the request's end
            patient = asyncio.get_running_loop().call_later(_SILENT_S, self._say_waiting, url, limit - began)
        try:
            async with until(limit, f"{method} {url}"):
                status, headers, body = await self._exchange(method, url, content)
        except httpx.ConnectTimeout as error:
            raise EngineUnreachable(
                f"{method} {url}: no connection within {_CONNECT_S:.0f} s; "
                "check host and port, and that the server is up"
            ) from clean_cause(error)
        except httpx.ConnectError as error:
            raise EngineUnreachable(
                f"{method} {url}: {brief(_why_not_connected(error))}; "
                "check the address and that the server is up"
            ) from clean_cause(error)
        except httpx.TransportError as error:
            raise EngineUnreachable(
                f"{method} {url}: the connection broke ({brief(str(error)) or type(error).__name__}); "
                "the server may have been restarted"
            ) from clean_cause(error)
        except (httpx.InvalidURL, httpx.DecodingError, UnicodeError) as error:
            raise EngineProtocolError(
                f"{method} {url}: {type(error).__name__}: {brief(str(error))}"
            ) from clean_cause(error)
        except BodyTooLarge as error:
            raise EngineProtocolError(
                f"{method} {url}: the reply is larger than {MOST_BYTES / 2**20:.0f} MiB and was not read to its end; "
                "is this an OpenAI-compatible server?"
            ) from error
        finally:
            if patient is not None:
                patient.cancel()
        if status != 200:
            refusal = _refusal(method, url, status, headers, body, known=url in self._answered)
            if status in (401, 403):
                refusal.args = (f"{refusal}; {self._about_key()}",)
            elif status == 404 and self.address.is_azure and "api-version" not in dict(self.address.query):
                refusal.args = (
                    f"{refusal}; Azure's deployments want a version: ADDRESS?api-version=2024-10-21",
                )
            raise refusal
        try:
            answer = parsed(body)
        except ValueError as error:
            begins = brief(as_text(body, _LOOKED_AT))[:80]
            what = (
                "is a stream of events, which was not asked for: switch that off in the server, or in the proxy "
                "before it"
                if begins.startswith(("data:", "event:"))
                else f"is not JSON but begins {begins!r}; is this an OpenAI-compatible server?"
            )
            unread = EngineProtocolError(f"{method} {url}: the answer {what}")
            unread.retryable = url in self._answered
            raise unread from clean_cause(error)
        if isinstance(answer, dict) and answer.get("error"):
            what = f"{method} {url}: the server said: {_message(answer)}"
            raise EngineOverloaded(what) if _may_pass(_code(answer["error"])) else EngineRejected(what)
        self._answered.add(url)
        count_reply(usage_of(answer, 0))
        return answer

    def _about_key(self) -> str:
        """Returns what to do about a key that is missing or refused."""
        if self._key or self._headers or self.address.credentials:
            return (
                "the key that was given is not accepted: check it (api_key, RAGGUARD_API_KEY, OPENAI_API_KEY), and "
                "that it is one of this server; where the server wants it in another header, give "
                "headers={'api-key': KEY}, or --header 'api-key: KEY'"
            )
        if os.environ.get("OPENAI_API_KEY") and not self.address.is_azure:
            return "OPENAI_API_KEY goes over https or to this machine only: give the key as RAGGUARD_API_KEY"
        other = "AZURE_OPENAI_API_KEY" if self.address.is_azure else "OPENAI_API_KEY"
        return f"give the key as RAGGUARD_API_KEY or {other}"

    async def _exchange(
        self, method: str, url: str, content: bytes | None
    ) -> tuple[int, httpx.Headers, bytes]:
        """Returns the status, the headers and the body of the reply to a request; for an error only the first bytes
        of the body."""
        async with self._client().stream(method, url, content=content) as response:
            status = response.status_code
            try:
                body = await read_body(response, MOST_BYTES if status == 200 else MOST_BYTES_OF_AN_ERROR)
            except BodyTooLarge as error:
                if status == 200:
                    raise
                body = error.read
            return status, response.headers, body


def _may_pass(status: int) -> bool:
    """Returns whether a refusal with this status may pass by itself. What a server has not implemented (501) does
    not."""
    return status in (408, 429) or (500 <= status < 600 and status != 501)


def _codes(answer: Any) -> set[str]:
    """Returns the words by which a reply names its error."""
    error = answer.get("error") if isinstance(answer, Mapping) else None
    named = [error.get(name) for name in ("code", "type")] if isinstance(error, Mapping) else []
    return {word for word in named if isinstance(word, str)}


def _code(error: Any) -> int:
    """Returns the status that an error object in a reply names; 0 where it names none."""
    code = error.get("code") if isinstance(error, Mapping) else None
    return (
        int(code) if isinstance(code, int) or (isinstance(code, str) and re.fullmatch(r"\d{3}", code)) else 0
    )


def _refusal(
    method: str, url: str, status: int, headers: httpx.Headers, body: bytes, *, known: bool
) -> EngineError:
    """Returns the error for a reply with this status; `known` is true where the URL has answered well before."""
    from_server, answer = True, None
    try:
        said = _message(answer := parsed(body))
    except ValueError:
        said, from_server = brief(as_text(body, _LOOKED_AT))[:200], False
    said = said or httpx.codes.get_reason_phrase(status) or "nothing"
    what = f"{method} {url}: {status}, the server said: {said}"
    if not _PERMANENT.isdisjoint(_codes(answer)):
        return EngineRejected(f"{what}; waiting does not help: look at the account's quota and its bills")
    if _may_pass(status):
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


def _message(answer: Any) -> str:
    said, parameter = answer, None
    for name in ("error", "message", "detail"):
        if isinstance(said, Mapping) and name in said:
            parameter = said.get("param")
            said = said[name]
    text = said if isinstance(said, str) else json.dumps(said)
    named = not parameter or re.search(rf"\b{re.escape(str(parameter))}\b", text)
    return brief(text if named else f"{text} (parameter {parameter})")


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
