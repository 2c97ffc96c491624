"""Pulls the spans of a project from a Phoenix server, page by page.

phoenix://HOST[:PORT]/PROJECT           over http, port 6006 unless told
phoenix+https://HOST[:PORT]/PROJECT     over https
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

import httpx

from ragguard.errors import InvalidInput
from ragguard.runtime.faults import describe
from ragguard.telemetry.phoenix import PhoenixError, phoenix_access
from ragguard.traces.exports import phoenix_span
from ragguard.traces.span import TraceSpan

_PAGE = 1000
_ATTEMPTS = 4
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


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
    asked = {"limit": str(_PAGE)} | ({"start_time": since.isoformat()} if since is not None else {})
    with httpx.Client(base_url=url, timeout=60, transport=transport, **access) as client:
        while True:
            page = _page(client, path, asked)
            yield from map(phoenix_span, page["data"])
            if not page.get("next_cursor"):
                return
            asked["cursor"] = page["next_cursor"]


def _page(client: httpx.Client, path: str, asked: dict[str, str]) -> dict[str, Any]:
    problem = ""
    for _ in range(_ATTEMPTS):
        try:
            answer = client.get(path, params=asked)
            if answer.is_success:
                page: dict[str, Any] = answer.json()
                return page
            problem = f"HTTP {answer.status_code}: {answer.text[:200]}"
            if answer.status_code < 500:
                break
        except (httpx.TransportError, ValueError) as error:
            problem = describe(error)
    raise PhoenixError(
        f"spans were asked of {client.base_url}{path}; {problem}. Is that project in a Phoenix there?"
    )
