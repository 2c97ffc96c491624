"""The counts of the service as instruments of OpenTelemetry, which its exporter writes in the format of Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from ragguard._version import __version__
from ragguard.client import RagGuard
from ragguard.guard import DistractorGuard
from ragguard.records import GuardStatus
from ragguard.serve.ingest import Ingest

_STORED = dict.fromkeys(("runs_scored", "runs_failed", "runs_unscored"), 0)
_DECIDED = dict.fromkeys(get_args(GuardStatus), 0)
"""Counts that are there from the start: of one that is new, Prometheus sees no increase."""
_MOST_REMARKS, _LONGEST_LABEL = 100, 200


class PrometheusPage:
    """The page that a Prometheus scrapes."""

    def __init__(
        self, rg: RagGuard, ingest: Ingest, guard: DistractorGuard, requests: Counter[tuple[str, str]]
    ) -> None:
        self._registry = CollectorRegistry()
        reader = PrometheusMetricReader(True, scope_info_enabled=False, registry=self._registry)
        meter = MeterProvider([reader], shutdown_on_exit=False).get_meter("ragguard.serve", __version__)
        count, gauge = meter.create_observable_counter, meter.create_observable_gauge
        sources: list[tuple[Any, str, str, tuple[str, ...], Callable[[], Mapping[Any, int]]]] = [
            (count, "requests", "Requests, by address and status.", ("address", "status"), lambda: requests),
            (count, "spans", "Spans, taken or refused, by what became of them.", ("what",),
             lambda: ingest.spool.counts),
            (count, "ingest", "Traces and runs made of spans.", ("what",), lambda: ingest.counts),
            (count, "remarks", "What of traces was not understood.", ("remark",),
             lambda: dict(ingest.remarks.most_common(_MOST_REMARKS)) or {"": 0}),
            (count, "store", "What the store counts, such as runs that were scored.", ("what",),
             lambda: {**_STORED, **rg.store.counts}),
            (count, "guard_decisions", "Decisions of the guard, by status.", ("status",),
             lambda: {**_DECIDED, **guard.health().statuses}),
            (gauge, "traces_waiting", "Traces that are not complete.", (), lambda: {(): ingest.spool.waiting}),
            (gauge, "runs_pending", "Runs that wait to be scored or delivered.", (), lambda: {(): ingest.pending()}),
        ]  # fmt: skip
        for create, name, about, labels, numbers in sources:
            create(f"ragguard_{name}", [_observed(labels, numbers)], "", about)

    def text(self, accept: str) -> tuple[bytes, str]:
        """Returns the page in a format that is accepted, and its content type."""
        encode, kind = choose_encoder(accept)
        return encode(self._registry), kind


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
