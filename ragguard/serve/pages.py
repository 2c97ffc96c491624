"""The pages of the service: the report over the growing store, and the counts that Prometheus scrapes."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse

from ragguard._version import __version__
from ragguard.analysis.page import write_html
from ragguard.client import RagGuard
from ragguard.errors import StoreError
from ragguard.guard import DistractorGuard
from ragguard.records import GuardStatus
from ragguard.serve.ingest import Ingest
from ragguard.storage.sqlite.store import Store

_EVERY = 2.0
"""Seconds between two looks at the store for each page that is open."""
_EMPTY = """<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="2"><title>ragguard</title>
<p>No runs yet. Send spans to /v1/traces or run lines to /v1/runs; this page looks again by itself.</p>"""
_STORED = dict.fromkeys(("runs_scored", "runs_failed", "runs_unscored"), 0)
_DECIDED = dict.fromkeys(get_args(GuardStatus), 0)
"""Counts that are there from the start: of one that is new, Prometheus sees no increase."""
_MOST_REMARKS, _LONGEST_LABEL = 100, 200


class LivePage:
    """The page, written once for each state of the store that somebody looks at."""

    def __init__(self, store: Store, title: str) -> None:
        self._store, self._title = store, title
        self._written = "", ""
        self._writing = asyncio.Lock()

    async def page(self, request: Request) -> Response:
        """Returns the page."""
        async with self._writing:
            state = await asyncio.to_thread(self._state)
            if self._written[0] != state:
                self._written = state, await asyncio.to_thread(self._write, state)
        return HTMLResponse(self._written[1], headers={"cache-control": "no-store"})

    async def events(self, request: Request) -> Response:
        """Sends an event once the store is no longer as it was when the page was written."""
        seen = request.query_params.get("since", "")

        async def changes() -> AsyncIterator[str]:
            while True:
                await asyncio.sleep(_EVERY)
                changed = await asyncio.to_thread(self._state) != seen
                yield "data: changed\n\n" if changed else ": still\n\n"
                if changed:
                    return

        return StreamingResponse(
            changes(), media_type="text/event-stream", headers={"cache-control": "no-store"}
        )

    def _state(self) -> str:
        return f"{self._store.run_count()}-{sum(self._store.counts.values())}"

    def _write(self, state: str) -> str:
        if not self._store.run_count():
            return _EMPTY
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "page.html")
            write_html(self._store.overviews(), path, self._title, events=f"events?since={state}")
            return path.read_text(encoding="utf-8")


class PrometheusPage:
    """The page that a Prometheus scrapes."""

    def __init__(
        self,
        rg: RagGuard,
        ingest: Ingest,
        guard: DistractorGuard,
        requests: Counter[tuple[str, str]],
        lines: Counter[str],
    ) -> None:
        self._registry = CollectorRegistry()
        reader = PrometheusMetricReader(True, scope_info_enabled=False, registry=self._registry)
        meter = MeterProvider([reader], shutdown_on_exit=False).get_meter("ragguard.serve", __version__)
        count, gauge = meter.create_observable_counter, meter.create_observable_gauge
        sources: list[tuple[Any, str, str, tuple[str, ...], Callable[[], Mapping[Any, int]]]] = [
            (count, "requests", "Requests, by address and status.", ("address", "status"), lambda: requests),
            (count, "spans", "Spans, taken or refused, by what became of them.", ("what",),
             lambda: ingest.spool.counts),
            (count, "run_lines", "Lines of /v1/runs, by what became of them.", ("what",), lambda: lines),
            (count, "ingest", "Traces and runs made of spans.", ("what",), lambda: ingest.counts),
            (count, "remarks", "What of traces was not understood.", ("remark",),
             lambda: dict(ingest.remarks.most_common(_MOST_REMARKS))),
            (count, "store", "What the store counts, such as runs that were scored.", ("what",),
             lambda: {**_STORED, **rg.store.counts}),
            (count, "guard_decisions", "Decisions of the guard, by status.", ("status",),
             lambda: {**_DECIDED, **guard.health().statuses}),
            (gauge, "traces_waiting", "Traces that are not complete.", (), lambda: {(): ingest.spool.waiting}),
            (gauge, "runs_pending", "Runs that wait to be scored or delivered.", (),
             lambda: _pending(rg.store)),
        ]  # fmt: skip
        for create, name, about, labels, numbers in sources:
            create(f"ragguard_{name}", [_observed(labels, numbers)], "", about)

    def text(self, accept: str) -> tuple[bytes, str]:
        """Returns the page in a format that is accepted, and its content type."""
        encode, kind = choose_encoder(accept)
        return encode(self._registry), kind


def _pending(store: Store) -> Mapping[Any, int]:
    """Returns how many runs wait; nothing if the disk cannot say it now."""
    with suppress(StoreError):
        return {(): store.left().pending}
    return {}


def _observed(
    labels: tuple[str, ...], counts: Callable[[], Mapping[Any, int]]
) -> Callable[[CallbackOptions], Iterator[Observation]]:
    """Returns a callback of an instrument: one observation for each key, a label's value or a tuple of these."""

    def observe(_: CallbackOptions) -> Iterator[Observation]:
        for key, number in dict(counts()).items():
            values = key if isinstance(key, tuple) else (key,)
            yield Observation(
                number, {name: one[:_LONGEST_LABEL] for name, one in zip(labels, values, strict=True)}
            )

    return observe
