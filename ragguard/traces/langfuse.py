"""Pulls the observations of a project from a Langfuse server, by its Observations API v2.

langfuse://HOST[:PORT]        over https
langfuse+http://HOST[:PORT]   over http

The keys of the project stand in LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import httpx

from ragguard.errors import InvalidInput
from ragguard.telemetry.langfuse import langfuse_access
from ragguard.traces.exports import langfuse_span
from ragguard.traces.pulled import pages
from ragguard.traces.span import TraceSpan

_PATH = "/api/public/v2/observations"
_ASKED = {"fields": "core,basic,io,model,usage", "limit": "1000"}
_WHAT_TO_DO = (
    "Is a Langfuse there that has the Observations API v2 (its cloud, or version 4), and do LANGFUSE_PUBLIC_KEY and "
    "LANGFUSE_SECRET_KEY hold the project's keys?"
)


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
    asked = _ASKED | ({"fromStartTime": since.isoformat()} if since is not None else {})
    url, auth = langfuse_access(langfuse_server(address))
    with httpx.Client(base_url=url, timeout=60, transport=transport, auth=auth) as client:
        for page in pages(client, _PATH, asked, lambda page: page["meta"].get("cursor"), _WHAT_TO_DO):
            yield from map(langfuse_span, page["data"])
