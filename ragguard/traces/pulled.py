"""Pulls spans from the servers of Phoenix and Langfuse, page by page.

phoenix://HOST[:PORT]/PROJECT           a project of a Phoenix, over http, port 6006 unless told
phoenix+https://HOST[:PORT]/PROJECT     over https
langfuse://HOST[:PORT]                  a project of a Langfuse, by its Observations API v2, over https
langfuse+http://HOST[:PORT]             over http

The keys of Langfuse's project stand in LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

import httpx

from ragguard.errors import InvalidInput, RagguardError
from ragguard.runtime.faults import describe
from ragguard.telemetry.back_ends import langfuse_access, phoenix_access
from ragguard.traces.trace_spans import TraceSpan, langfuse_span, phoenix_span

_ATTEMPTS = 4
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_PHOENIX_PAGE = 1000
_PHOENIX_THERE = "Is that project in a Phoenix there?"
_OBSERVATIONS = "/api/public/v2/observations"
_OBSERVED = {"fields": "core,basic,io,model,usage", "limit": "1000"}
_LANGFUSE_THERE = (
    "Is a Langfuse there that has the Observations API v2 (its cloud, or version 4), and do LANGFUSE_PUBLIC_KEY and "
    "LANGFUSE_SECRET_KEY hold the project's keys?"
)


class PullError(RagguardError):
    """Traces could not be pulled from a server."""


def since_time(given: str) -> datetime:
    """Returns the time that `30m`, `24h`, `7d`, `2w`, or a date or time of ISO 8601 names; raises InvalidInput for
    anything else."""
    try:
        if given[-1:] in _UNITS:
            return datetime.now(UTC) - timedelta(**{_UNITS[given[-1]]: float(given[:-1])})
        at = datetime.fromisoformat(given)
    except (ValueError, OverflowError) as error:
        raise InvalidInput("--since", given, "30m, 24h, 7d, or a time such as 2026-11-25T10:00") from error
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def pages(
    client: httpx.Client,
    path: str,
    asked: Mapping[str, str],
    cursor: Callable[[Any], str | None],
    what_to_do: str,
) -> Iterator[Any]:
    """Yields the pages of a list; raises PullError where the server does not give one.

    Args:
        client: A client of the server.
        path: The path of the list.
        asked: The parameters of each request.
        cursor: Returns the cursor of the next page from a page; None after the last one.
        what_to_do: The end of the error's sentence.
    """
    at: dict[str, str] = {}
    while True:
        page = _page(client, path, {**asked, **at}, what_to_do)
        yield page
        following = cursor(page)
        if not following:
            return
        at = {"cursor": following}


def _page(client: httpx.Client, path: str, asked: Mapping[str, str], what_to_do: str) -> Any:
    problem = ""
    for _ in range(_ATTEMPTS):
        try:
            answer = client.get(path, params=asked)
            if answer.is_success:
                return answer.json()
            problem = f"HTTP {answer.status_code}: {answer.text[:200]}"
            if answer.status_code < 500:
                break
        except (httpx.TransportError, ValueError) as error:
            problem = describe(error)
    raise PullError(f"spans were asked of {client.base_url}{path}; {problem}. {what_to_do}")


class PhoenixProject(NamedTuple):
    """A project of a Phoenix server."""

    url: str
    name: str


def phoenix_project(address: str) -> PhoenixProject:
    """Returns the project that an address names; raises InvalidInput for an address without one."""
    scheme, _, rest = address.partition("://")
    parts = urlsplit(f"//{rest}")
    name = unquote(parts.path.strip("/"))
    if not parts.hostname or not name or "/" in name:
        raise InvalidInput(
            "address", address, "phoenix://HOST/PROJECT, such as phoenix://localhost:6006/default"
        )
    secure = scheme == "phoenix+https"
    port = "" if parts.port or secure else ":6006"
    return PhoenixProject(f"{'https' if secure else 'http'}://{parts.netloc}{port}", name)


def spans_of_project(
    address: str, since: datetime | None = None, transport: httpx.BaseTransport | None = None
) -> Iterator[TraceSpan]:
    """Yields the spans of a project that began since a time, the latest first.

    Args:
        address: The project, as `phoenix://HOST/PROJECT`.
        since: The time. None: all spans.
        transport: An httpx transport in place of the usual one.
    """
    project = phoenix_project(address)
    url, access = phoenix_access(project.url)
    path = f"/v1/projects/{quote(project.name, safe='')}/spans"
    asked = {"limit": str(_PHOENIX_PAGE)} | ({"start_time": since.isoformat()} if since is not None else {})
    with httpx.Client(base_url=url, timeout=60, transport=transport, **access) as client:
        for page in pages(client, path, asked, lambda page: page.get("next_cursor"), _PHOENIX_THERE):
            yield from map(phoenix_span, page["data"])


def langfuse_server(address: str) -> str:
    """Returns the URL of the server that an address names; raises InvalidInput for an address without one."""
    scheme, _, host = address.partition("://")
    host = host.rstrip("/")
    if not host or "/" in host:
        raise InvalidInput("address", address, "langfuse://HOST, such as langfuse://cloud.langfuse.com")
    return f"{'http' if scheme == 'langfuse+http' else 'https'}://{host}"


def spans_of_server(
    address: str, since: datetime | None = None, transport: httpx.BaseTransport | None = None
) -> Iterator[TraceSpan]:
    """Yields the observations of the project whose keys the environment holds.

    Args:
        address: The server, as `langfuse://HOST`.
        since: The time since which they began. None: all.
        transport: An httpx transport in place of the usual one.
    """
    asked = _OBSERVED | ({"fromStartTime": since.isoformat()} if since is not None else {})
    url, auth = langfuse_access(langfuse_server(address))
    with httpx.Client(base_url=url, timeout=60, transport=transport, auth=auth) as client:
        for page in pages(
            client, _OBSERVATIONS, asked, lambda page: page["meta"].get("cursor"), _LANGFUSE_THERE
        ):
            yield from map(langfuse_span, page["data"])
