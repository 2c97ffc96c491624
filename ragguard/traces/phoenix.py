"""Pulls the spans of a project from a Phoenix server, page by page.

phoenix://HOST[:PORT]/PROJECT           over http, port 6006 unless told
phoenix+https://HOST[:PORT]/PROJECT     over https
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

import httpx

from ragguard.errors import InvalidInput
from ragguard.telemetry.phoenix import phoenix_access
from ragguard.traces.exports import phoenix_span
from ragguard.traces.pulled import pages
from ragguard.traces.span import TraceSpan

_PAGE = 1000
_WHAT_TO_DO = "Is that project in a Phoenix there?"


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
    asked = {"limit": str(_PAGE)} | ({"start_time": since.isoformat()} if since is not None else {})
    with httpx.Client(base_url=url, timeout=60, transport=transport, **access) as client:
        for page in pages(client, path, asked, lambda page: page.get("next_cursor"), _WHAT_TO_DO):
            yield from map(phoenix_span, page["data"])
