"""Pulls spans from the servers of Phoenix and Langfuse, page by page.

phoenix://HOST[:PORT]/PROJECT           a project of a Phoenix, over http, port 6006 unless told
phoenix+https://HOST[:PORT]/PROJECT     over https
langfuse://HOST[:PORT]                  a project of a Langfuse, by its Observations API v2, over https
langfuse+http://HOST[:PORT]             over http

The keys of Langfuse's project stand in LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from time import monotonic
from typing import Any, TypeAlias
from urllib.parse import quote, unquote, urlsplit

import httpx

from ragguard.errors import InvalidInput, RagguardError
from ragguard.runtime.faults import describe
from ragguard.telemetry.back_ends import langfuse_access, phoenix_access
from ragguard.traces.spans import TraceSpan, object_in
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
_LEVELS = ("span", "trace")
"""The levels of Phoenix whose annotations are read. Those of a session are about a conversation, and say of none of its
answers whether it is right."""
_Annotator: TypeAlias = Callable[[httpx.Client, list[Any], str], None]
_IDS = 100
"""The most ids of spans or traces in one request for annotations."""
_OBSERVED = {"fields": "core,basic,io,model,usage", "limit": "1000"}
_LANGFUSE_THERE = (
    "Is a Langfuse there that has the Observations API v2 (its cloud, or version 4), and do LANGFUSE_PUBLIC_KEY and "
    "LANGFUSE_SECRET_KEY hold the project's keys?"
)
_UNANNOTATED = (
    "people's annotations were not pulled, so that `ragguard label --people` has no labels of them: {problem}"
)
_ANNOTATIONS_THERE = (
    "Update the server if it is too old to give them, or use a key that may read them, and pull again"
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
    address: str,
    since: datetime | None = None,
    transport: httpx.BaseTransport | None = None,
    remarks: Counter[str] | None = None,
) -> Iterator[TraceSpan]:
    """Yields the spans at an address; raises PullError where the server does not give them.

    Args:
        address: A project of a Phoenix, or a Langfuse, whose project is the one with the keys of the environment.
        since: The time since which they began. None: all spans.
        transport: An httpx transport instead of the usual one.
        remarks: Gets a sentence if the annotations of the spans cannot be pulled.
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
        annotators: list[_Annotator] = [partial(_add_annotations, one) for one in _LEVELS]
        if kind != "phoenix":
            annotators = [_add_scores]
        for spans in _pages(client, path, asked, "spans", advice):
            for annotate in [*annotators]:
                try:
                    with _readable(url, "annotations", _ANNOTATIONS_THERE):
                        annotate(client, spans, path)
                except PullError as problem:
                    annotators.remove(
                        annotate
                    )  # the server would be asked in vain for each page, for minutes
                    if remarks is not None:
                        remarks[_UNANNOTATED.format(problem=problem)] += 1
            with _readable(url + path, "spans", advice):
                found = [*map(read, spans)]
            yield from found


@contextmanager
def _readable(address: str, what: str, advice: str) -> Iterator[None]:
    """Raises PullError if what a page holds has another form than that of `what`."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, RecursionError, InvalidInput) as error:
        problem = f"{address} gives {what} that cannot be read ({describe(error)})"
        raise PullError(f"{problem}; {advice}") from error


def _add_annotations(level: str, client: httpx.Client, spans: list[Any], path: str) -> None:
    """Gives spans of Phoenix their annotations, and roots those of their traces; raises PullError if the Phoenix does
    not give them."""
    spans = spans if level == "span" else [span for span in spans if not span.get("parent_id")]
    by_id = {str(span["context"][f"{level}_id"]): span for span in spans}
    path = f"{path.removesuffix('/spans')}/{level}_annotations"
    for ids in batched(by_id):
        asked: dict[str, Any] = {f"{level}_ids": ids, "limit": "1000"}
        for page in _pages(client, path, asked, "annotations", _ANNOTATIONS_THERE):
            for annotation in page:
                if annotation.get(f"{level}_id") in by_id:
                    by_id[annotation[f"{level}_id"]].setdefault("annotations", []).append(annotation)


def _add_scores(client: httpx.Client, observations: list[Any], _: str) -> None:
    """Gives observations of Langfuse their scores; those of a trace as a whole stand at its root."""
    roots = {one["traceId"]: one for one in observations if not one.get("parentObservationId")}
    by_id = {one["id"]: one for one in observations}
    for trace in roots:
        asked = {"traceId": trace, "limit": "100"}
        for page in _pages(client, _SCORES, asked, "scores", _ANNOTATIONS_THERE):
            for score in page:
                at = by_id.get(score.get("observationId") or "", roots[trace])
                at.setdefault("scores", []).append(score)


def batched(ids: Iterable[str]) -> Iterator[list[str]]:
    """Yields ids, so many at a time as fit into an address."""
    coming = iter(ids)
    while some := list(islice(coming, _IDS)):
        yield some


def _pages(
    client: httpx.Client, path: str, asked: Mapping[str, Any], what: str, advice: str
) -> Iterator[list[Any]]:
    """Yields the items of each page; raises PullError for a page that cannot be had, or that comes again."""
    place: dict[str, str] = {}
    places: list[dict[str, str]] = []
    while place not in places:
        places.append(place)
        page = _page(client, path, {**asked, **place}, what, advice)
        items = page.get("data") if isinstance(page, Mapping) else None
        if not isinstance(items, list):
            raise PullError(f"{client.base_url}{path} gives no page of {what}; {advice}")
        yield items
        place = _next_place(page)
        if not place:
            return
    raise PullError(f"{client.base_url}{path} gives the same page again and again; {advice}")


def _next_place(page: Mapping[str, Any]) -> dict[str, str]:
    """Returns what asks for the page after this one: a cursor, or a number; {} after the last page."""
    meta = object_in(page.get("meta"))
    if cursor := page.get("next_cursor") or meta.get("cursor"):
        return {"cursor": str(cursor)}
    number, last = meta.get("page"), meta.get("totalPages")
    return {"page": str(number + 1)} if type(number) is type(last) is int and number < last else {}


def _body(answer: httpx.Response, what: str) -> bytes:
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
                f"a page of {what} from {answer.url.copy_with(query=None)} takes {much}: it was given up"
            )
    return bytes(body)


def _page(client: httpx.Client, path: str, asked: Mapping[str, Any], what: str, advice: str) -> Any:
    problem = ""
    for _ in range(_ATTEMPTS):
        try:
            with client.stream("GET", path, params=asked) as answer:
                body = _body(answer, what)
            if answer.is_success:
                return json.loads(body)
            problem = f"HTTP {answer.status_code}: {body[:200].decode('utf-8', 'replace')}"
            if answer.status_code < 500:
                break
        except (httpx.TransportError, ValueError, RecursionError) as error:
            problem = describe(error)
    raise PullError(f"{what} were asked of {client.base_url}{path}; {problem}. {advice}")
