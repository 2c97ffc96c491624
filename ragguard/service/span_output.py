"""The sink that makes spans of scores where the user gave none."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ragguard.errors import Closed
from ragguard.runtime.protocols import implements
from ragguard.service.settings import Settings
from ragguard.storage.sqlite.store import Store
from ragguard.telemetry.base import Sink, SpanSink

if TYPE_CHECKING:
    from ragguard.telemetry.otel import OtelSink

_LOSSES = ("runs_dropped", "events_lost", "events_late", "events_refused", "sink_failures")


class SpanOutput:
    """Chooses the sinks of a RagGuard, and gives those that write metrics the numbers of waiting and lost runs."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings, self._store = settings, store

    def sinks(self) -> list[Sink]:
        """Returns the sinks that were given, and one for spans where the settings ask for spans."""
        found: list[Sink] = list(self._settings.sinks)
        for sink in found:
            if implements(sink, SpanSink):
                sink.watch(self.depth, self.losses)
        return [*found, self._made()] if self._settings.makes_spans else found

    @property
    def awaits_application(self) -> bool:
        """True where scores go to the application's own provider, once it has one."""
        return not self._settings.makes_spans and not any(
            implements(sink, SpanSink) for sink in self._settings.sinks
        )

    def of_application(self) -> Sink | None:
        """Returns a sink to the provider that the application has set; None where it has none yet."""
        if "opentelemetry.sdk.trace" not in sys.modules:
            return None
        from ragguard.telemetry.otlp import configured

        return self._made() if configured() else None

    def depth(self) -> int:
        """Returns how many runs wait to be scored."""
        try:
            return self._store.left().pending
        except Closed:  # an application's meter still asks after the end
            return 0

    def losses(self) -> Mapping[str, int]:
        """Returns how much was lost, by kind."""
        return {name: self._store.counts[name] for name in _LOSSES}

    def _made(self) -> OtelSink:
        from ragguard.telemetry.otel import OtelSink

        settings = self._settings
        sink = OtelSink(
            settings.tracer_provider, otlp=settings.otlp, capture_content=settings.capture_content
        )
        sink.watch(self.depth, self.losses)
        return sink
