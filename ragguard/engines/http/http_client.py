"""The HTTP client of a server: its address and key, requests with JSON, and which model it serves.

Knows deadlines and event loops, and no API beyond the list of models. The key is never shown: not in a repr, a log line
or an error, even where the server repeats it.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit
from urllib.request import getproxies

import httpx

from ragguard.engines.http.replies import (
    NOT_JSON,
    beginning,
    broken,
    needed,
    optional,
    refusal,
    status_within,
    usage_of,
)
from ragguard.engines.layers.budget import count_reply, count_request
from ragguard.engines.layers.retry import repeated
from ragguard.errors import (
    Closed,
    EngineOverloaded,
    EngineProtocolError,
    EngineRejected,
    InvalidInput,
)
from ragguard.runtime.deadline import until
from ragguard.runtime.faults import NOTICES
from ragguard.text.credentials import (
    Credentials,
    checked_headers,
    checked_key,
    header_lines,
    split_credentials,
)
from ragguard.text.secret_filter import clean_cause, logger

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Address:
    """The parts of a server's address."""

    base: str
    """The URL before the OpenAI paths, such as `http://host:8000/v1`."""
    model: str | None = None
    """The model named in the address: `…/v1#MODEL` or `…/v1?model=MODEL`."""
    credentials: Credentials | None = field(default=None, repr=False)
    query: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """The parameters that each request carries, such as `api-version`; they may hold a key and are never shown."""
    loopback: bool = False

    @property
    def root(self) -> str:
        """The URL before vLLM's own paths (`/version`, `/tokenize`)."""
        return self.base.removesuffix("/v1")

    @property
    def is_azure(self) -> bool:
        """True for Azure's OpenAI service, which wants the key in a header of its own."""
        return ".azure.com" in self.base or "/openai/deployments/" in self.base


def parse_address(url: str) -> Address:
    """Takes an address apart: `http(s)://host:port/v1`, with or without `/v1`, `#model` or `?model=`. Other
    parameters of the query are sent with each request. A deployment of Azure's names its model in the path."""
    allowed = "http(s)://HOST[:PORT][/v1][#MODEL]"
    bare, credentials = split_credentials("engine", url, allowed)
    parts = urlsplit(bare)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInput("engine", bare, allowed)
    path = parts.path.rstrip("/").removesuffix("/chat/completions")
    query = parse_qsl(parts.query)
    of_path = path.partition("/openai/deployments/")[2].partition("/")[0]
    model = unquote(parts.fragment) or dict(query).get("model") or unquote(of_path)
    return Address(
        f"{parts.scheme}://{parts.netloc.lower()}{path or '/v1'}",
        model or None,
        credentials,
        query=tuple((name, value) for name, value in query if name != "model"),
        loopback=parts.hostname in ("127.0.0.1", "localhost", "::1"),
    )


def key_from_environment(address: Address) -> str | None:
    """Returns `RAGGUARD_API_KEY`, else `OPENAI_API_KEY`, which goes over https or to this machine only. For Azure that
    is `AZURE_OPENAI_API_KEY`."""
    names = ["RAGGUARD_API_KEY"]
    if address.loopback or address.base.startswith("https:"):
        names.append("AZURE_OPENAI_API_KEY" if address.is_azure else "OPENAI_API_KEY")
    return next((key for name in names if (key := checked_key(name, os.environ.get(name, "")))), None)


_CONNECT_S = 10.0
_CLIENT_LOGGERS = ("httpx", "httpcore.connection", "httpcore.http11")
"""The loggers that print addresses, and so the keys in their queries; `logger` cleans what they print."""
"""Seconds that connecting to a server may take."""
_CONNECTIONS = 64
"""The most connections of one event loop to a server."""
MOST_BYTES = 32 * 2**20
"""The largest reply that is read. 512 answers of 64 tokens with their log-probabilities are some 5 MB."""
_MOST_BYTES_OF_AN_ERROR = 64 * 2**10


class HttpClient:
    """Sends requests to one server. Safe to use from several event loops and threads at once."""

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        timeout_s: float = 120.0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.address = parse_address(url)
        if not timeout_s > 0:
            raise InvalidInput("timeout_s", timeout_s, "more than 0 seconds")
        self.timeout_s = timeout_s
        given = api_key is not None
        for name in _CLIENT_LOGGERS:
            logger(name)
        self._key = checked_key("api_key", api_key) if given else key_from_environment(self.address)
        self._headers = header_lines("RAGGUARD_HEADERS", os.environ.get("RAGGUARD_HEADERS", ""))
        self._headers |= checked_headers("headers", headers or {})
        self._clients: dict[asyncio.AbstractEventLoop, httpx.AsyncClient] = {}
        """The connections of each event loop. Single operations of a dict need no lock between threads."""
        self._closed = False
        self._answered: set[str] = set()
        """The URLs that have answered well. An odd answer of such a URL may pass by itself, such as that of a proxy
        while the server restarts. A URL that never answered well is a wrong address."""

    async def aclose(self) -> None:
        """Closes the connections of each event loop that still runs."""
        self._closed = True
        here = asyncio.get_running_loop()
        while self._clients:
            loop, client = self._clients.popitem()
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
        # A compressed reply is not asked for: it could become gigabytes.
        headers = httpx.Headers({"Content-Type": "application/json", "Accept-Encoding": "identity"})
        if self._key:
            name, scheme = ("api-key", "") if self.address.is_azure else ("Authorization", "Bearer ")
            headers[name] = scheme + self._key
        headers.update(self._headers)
        return httpx.AsyncClient(
            headers=headers,
            params=self.address.query,
            # Certificates take tens of milliseconds to load, out of the budget of a guard's first call. A proxy on the
            # way to the server may have one, too.
            verify=self.address.base.startswith("https:")
            or (not self.address.loopback and bool(getproxies())),
            auth=None if "authorization" in headers else self.address.credentials,
            # Requests to this machine never use a proxy.
            trust_env=not self.address.loopback,
            # The whole exchange is timed by the caller's deadline; here only the hand-shake.
            timeout=httpx.Timeout(None, connect=_CONNECT_S),
            # Servers close what was idle for five seconds: a connection is not used again shortly before.
            limits=httpx.Limits(
                max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS, keepalive_expiry=2.0
            ),
        )

    async def ask(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        deadline: float | None = None,
        root: bool = False,
    ) -> Any:
        """Returns the JSON at a path under the base, or under the root; with a body, what the server replies to it. A
        request that fails is repeated if the call is."""
        method, content = "GET", None
        if body is not None:
            # No server accepts an unpaired surrogate; it becomes a question mark.
            text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
            method, content = "POST", text.encode("utf-8", "replace")
        url = (self.address.root if root else self.address.base) + path
        return await repeated(lambda: self._reply_to(method, url, content, deadline), deadline)

    async def field(
        self, path: str, body: Mapping[str, Any], kind: type[T], name: str, deadline: float | None = None
    ) -> T:
        """Returns a field of what the server replies at a path under the root."""
        answer = await self.ask(path, body, deadline=deadline, root=True)
        return needed(answer, kind, name, url=self.address.root + path, expected=f"a reply with `{name}`")

    async def _reply_to(self, method: str, url: str, content: bytes | None, deadline: float | None) -> Any:
        """Returns the JSON with which the server answers a request."""
        what, known = f"{method} {url}", url in self._answered
        count_request()
        limit = min(math.inf if deadline is None else deadline, time.monotonic() + self.timeout_s)
        try:
            async with until(limit, what):
                status, headers, said = await self._exchange(method, url, content)
        except (httpx.TransportError, httpx.InvalidURL, httpx.DecodingError, UnicodeError) as error:
            raise broken(what, error) from clean_cause(error)
        if status == 200:
            try:
                answer = json.loads(said)
            except NOT_JSON as error:
                unread = EngineProtocolError(
                    f"{what}: the answer is not JSON but begins {beginning(said)[:80]!r}; is this an OpenAI-compatible "
                    "server, asked directly?"
                )
                unread.retryable = known
                raise unread from clean_cause(error)
            status = status_within(answer)
        if status != 200:
            refused = refusal(what, status, headers, said, known=known)
            if status in (401, 403):
                refused.args = (f"{refused}; {self._about_key()}",)
            elif status == 404 and self.address.is_azure and "api-version" not in dict(self.address.query):
                version = "Azure's deployments want a version: ADDRESS?api-version=2024-10-21"
                refused.args = (f"{refused}; {version}",)
            raise refused
        self._answered.add(url)
        count_reply(usage_of(answer, 0))
        return answer

    async def _exchange(
        self, method: str, url: str, content: bytes | None
    ) -> tuple[int, httpx.Headers, bytes]:
        """Returns the status, the headers and the body of the reply to a request; a compressed body may become
        gigabytes, and is read no further than the largest reply."""
        body = bytearray()
        async with self._client().stream(method, url, content=content) as response:
            most = MOST_BYTES if response.status_code == 200 else _MOST_BYTES_OF_AN_ERROR
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > most:
                    break
        if response.status_code == 200 and len(body) > most:
            body.clear()  # the error and its traceback may be kept for long
            raise EngineProtocolError(
                f"{method} {url}: the reply is larger than {MOST_BYTES / 2**20:.0f} MiB and was not read to its end: "
                "ask for less at once; is this an OpenAI-compatible server?"
            )
        return response.status_code, response.headers, bytes(body)

    def _about_key(self) -> str:
        """Returns what to do about a key that is missing or refused."""
        name = "AZURE_OPENAI_API_KEY" if self.address.is_azure else "OPENAI_API_KEY"
        if self._key or self._headers or self.address.credentials:
            return (
                f"the key that was given is not accepted: check it (api_key, RAGGUARD_API_KEY, {name}), and that it "
                "is one of this server; if the server wants it in another header, give headers={'api-key': KEY}, "
                "or --header 'api-key: KEY'"
            )
        return f"give the key as RAGGUARD_API_KEY; {name} goes only over https or to this machine"


def notice_other_model(client: HttpClient, asked: str, answering: Any) -> None:
    """Logs once that another model answers than the one that was asked for, such as the only one that is loaded."""
    if not isinstance(answering, str) or client.address.is_azure:  # whose names are those of deployments
        return
    one, other = asked.lower(), answering.lower()
    if one not in other and other not in one:
        NOTICES.once(
            f"{answering} answers for {asked} at {client.address.base}",
            f"{client.address.base} was asked for {asked}, but {answering} answers: scores are stored under "
            f"{asked}; name the model that you mean, as {client.address.base}#{answering}",
        )


@dataclass(frozen=True, slots=True)
class ServedModel:
    """The entry of a model in `/v1/models`."""

    id: str
    owner: str = ""
    """The server's make: `vllm` for vLLM."""
    root: str = ""
    """The name or the folder of the weights, where the server reports it."""
    context: int | None = None
    notes: tuple[str, ...] = ()
    """How the server's list differs from the name that was given."""


_NO_LIST = frozenset({400, 404, 405, 500, 501})
"""The statuses with which a server without a list of models replies; others are of the key, or may pass."""


async def served_model(client: HttpClient, wanted: str | None) -> ServedModel:
    """Returns the model to ask for. One that is named is trusted where the server's list is empty or cannot be read.

    Raises EngineRejected with the list where it has other models alone, or where none was named and there are several.
    """
    base, unlisted = client.address.base, "the server does not list it"
    try:
        answer = await client.ask("/models")
        expected = "a list of models in `data`"
        listed = needed(answer, list, "data", url=f"GET {base}/models", expected=expected)
        models = {str(model["id"]): model for model in listed if optional(model, str, "id")}
    except (EngineRejected, EngineOverloaded, EngineProtocolError) as error:
        # Gateways may hide the list, or have none.
        if wanted is None or not (isinstance(error, EngineProtocolError) or error.status in _NO_LIST):
            raise
        models, unlisted = {}, f"no list of models ({error})"
    names = ", ".join(models) or "none"
    if wanted is None:
        # Adapters name their base model, which is taken unless an adapter is named.
        found = [name for name, model in models.items() if not model.get("parent")]
        if len(found) != 1:
            raise EngineRejected(
                f"{base} has several models or none: say which, as {base}#MODEL; it has: {names}"
            )
    else:
        found = [wanted] if wanted in models else [name for name in models if _spelled_alike(name, wanted)]
        if len(found) != 1 and models and not client.address.is_azure:
            raise EngineRejected(f"{base} has no model {wanted!r}; it has: {names}")
        if len(found) != 1:
            return ServedModel(wanted, notes=(f"{wanted} is used as it was named: {unlisted}",))
    model, alike = models[found[0]], wanted in (None, found[0])
    return ServedModel(
        id=found[0],
        owner=str(model.get("owned_by") or ""),
        root=str(model.get("root") or ""),
        context=optional(model, int, "max_model_len") or optional(model, int, "meta", "n_ctx"),
        notes=() if alike else (f"the server spells {wanted} as {found[0]}",),
    )


def _spelled_alike(listed: str, wanted: str) -> bool:
    """True for one model in two spellings: `models/x` or `openai/x` for `x`, `x:latest` for `x`, other letter cases."""
    one, other = (name.lower().removesuffix(":latest") for name in (listed, wanted))
    return one == other or one.endswith(f"/{other}") or other.endswith(f"/{one}")
