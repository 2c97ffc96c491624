"""Pulls spans from the servers of Phoenix and Langfuse, page by page.

phoenix://HOST[:PORT]/PROJECT           a project of a Phoenix, over http, port 6006 unless told
phoenix+https://HOST[:PORT]/PROJECT     over https
langfuse://HOST[:PORT]                  a project of a Langfuse, by its Observations API v2, over https
langfuse+http://HOST[:PORT]             over http

The keys of Langfuse's project stand in LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice
from time import monotonic
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import httpx

from ragguard.errors import InvalidInput, RagguardError
from ragguard.runtime.faults import describe
from ragguard.telemetry.back_ends import langfuse_access, phoenix_access
from ragguard.traces.spans import TraceSpan
from ragguard.traces.trace_spans import langfuse_span, phoenix_span

SCHEMES = ("phoenix://", "phoenix+https://", "langfuse://", "langfuse+http://")
"""The beginnings of addresses of traces."""
_ATTEMPTS = 4
LARGEST_PAGE = 200_000_000
"""The most bytes of a page, unpacked."""
PAGE_SECONDS = 300.0
"""The time after which a page is given up that still goes on."""
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_PHOENIX_THERE = "Is that project in a Phoenix there?"
_OBSERVATIONS = "/api/public/v2/observations"
_SCORES = "/api/public/v2/scores"
_IDS = 100
"""The most ids of spans in one request for annotations."""
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


def server_of(address: str) -> tuple[str, str, str]:
    """Returns what an address names: `phoenix` or `langfuse`, the server's URL, and the project, which is "" for
    Langfuse, whose keys name it; raises InvalidInput where it names none."""
    parts = urlsplit(address)
    kind, _, scheme = parts.scheme.partition("+")
    project = unquote(parts.path.strip("/"))
    if not parts.hostname or "/" in project or bool(project) != (kind == "phoenix"):
        allowed = "phoenix://HOST/PROJECT, such as phoenix://localhost:6006/default, or langfuse://HOST"
        raise InvalidInput("address", address, allowed)
    if kind == "langfuse":
        return kind, f"{scheme or 'https'}://{parts.netloc}", ""
    port = "" if parts.port or scheme else ":6006"
    return kind, f"{scheme or 'http'}://{parts.netloc}{port}", project


def spans_at(
    address: str, since: datetime | None = None, transport: httpx.BaseTransport | None = None
) -> Iterator[TraceSpan]:
    """Yields the spans at an address; raises PullError where the server does not give them.

    Args:
        address: A project of a Phoenix, or a Langfuse, whose project is the one with the keys of the environment.
        since: The time since which they began. None: all spans.
        transport: An httpx transport instead of the usual one.
    """
    access: Mapping[str, Any]
    kind, url, project = server_of(address)
    if kind == "phoenix":
        url, access = phoenix_access(url)
        path, asked = f"/v1/projects/{quote(project, safe='')}/spans", {"limit": "1000"}
        read, start, advice = phoenix_span, "start_time", _PHOENIX_THERE
    else:
        url, keys = langfuse_access(url)
        access, path, asked = {"auth": keys}, _OBSERVATIONS, dict(_OBSERVED)
        read, start, advice = langfuse_span, "fromStartTime", _LANGFUSE_THERE
    if since is not None:
        asked[start] = since.isoformat()
    with httpx.Client(base_url=url, timeout=60, transport=transport, **access) as client:
        while True:
            page = _page(client, path, asked, advice)
            annotated = _with_annotations if kind == "phoenix" else _with_scores
            yield from map(read, annotated(client, page["data"], path))
            following = page.get("next_cursor") or page.get("meta", {}).get("cursor")
            if not following:
                return
            if following == asked.get("cursor"):
                raise PullError(f"{client.base_url}{path} gives the same page again and again; {advice}")
            asked["cursor"] = following


def _with_annotations(client: httpx.Client, spans: list[Any], path: str) -> list[Any]:
    """Returns spans of Phoenix with their annotations; without them if the Phoenix is too old to tell them."""
    by_id = {str(span["context"]["span_id"]): span for span in spans}
    path = f"{path.removesuffix('/spans')}/span_annotations"
    for ids in batched(by_id):
        asked: dict[str, Any] = {"span_ids": ids, "limit": "1000"}
        while asked:
            page = _extra(client, path, asked)
            for one in page.get("data") or ():
                if one.get("span_id") in by_id:
                    by_id[one["span_id"]].setdefault("annotations", []).append(one)
            cursor = page.get("next_cursor")
            asked = {**asked, "cursor": cursor} if cursor else {}
    return spans


def _with_scores(client: httpx.Client, observations: list[Any], _: str) -> list[Any]:
    """Returns observations of Langfuse with their scores; those of a trace as a whole stand at its root."""
    roots = {one["traceId"]: one for one in observations if not one.get("parentObservationId")}
    by_id = {one["id"]: one for one in observations}
    for trace in roots:
        for score in _extra(client, _SCORES, {"traceId": trace, "limit": "100"}).get("data") or ():
            at = by_id.get(score.get("observationId") or "", roots[trace])
            at.setdefault("scores", []).append(score)
    return observations


def batched(ids: Iterable[str]) -> Iterator[list[str]]:
    """Yields ids, so many at a time as fit into an address."""
    coming = iter(ids)
    while some := list(islice(coming, _IDS)):
        yield some


def _extra(client: httpx.Client, path: str, asked: Mapping[str, Any]) -> Any:
    """Returns a page of what people said of spans; {} where the server has none, as older ones."""
    try:
        answer = client.get(path, params=asked)
        return answer.json() if answer.is_success else {}
    except (httpx.TransportError, ValueError):
        return {}


def _body(answer: httpx.Response) -> bytes:
    """Returns the body of a page; raises PullError for one that is too large or does not end."""
    body, deadline = bytearray(), monotonic() + PAGE_SECONDS
    for piece in answer.iter_bytes():
        body += piece
        if len(body) > LARGEST_PAGE or monotonic() > deadline:
            much = (
                f"over {LARGEST_PAGE // 1_000_000} MB"
                if len(body) > LARGEST_PAGE
                else f"over {PAGE_SECONDS:.0f} s"
            )
            raise PullError(
                f"a page of spans from {answer.url.copy_with(query=None)} takes {much}: it was given up"
            )
    return bytes(body)


def _page(client: httpx.Client, path: str, asked: Mapping[str, str], advice: str) -> Any:
    problem = ""
    for _ in range(_ATTEMPTS):
        try:
            with client.stream("GET", path, params=asked) as answer:
                body = _body(answer)
            if answer.is_success:
                return json.loads(body)
            problem = f"HTTP {answer.status_code}: {body[:200].decode('utf-8', 'replace')}"
            if answer.status_code < 500:
                break
        except (httpx.TransportError, ValueError) as error:
            problem = describe(error)
    raise PullError(f"spans were asked of {client.base_url}{path}; {problem}. {advice}")
