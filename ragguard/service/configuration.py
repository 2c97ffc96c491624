"""The configuration of a RagGuard: its arguments, checked once and handed down whole through the service."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ragguard.errors import InvalidInput
from ragguard.runtime.arguments import LONGEST_WAIT, whole_number
from ragguard.runtime.circuit_breaker import RetrySchedule
from ragguard.scorers.evaluation import References, ReferenceTable
from ragguard.scorers.settings import ScoringSettings
from ragguard.service.batches import Redact
from ragguard.service.queue import QueueBounds
from ragguard.storage.sqlite.store import Durability
from ragguard.telemetry.sink import Sink
from ragguard.telemetry.values import Content

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

When = Literal["step", "run"]
"""The times at which a run is scored: as its steps end and again at its end, or at its end alone."""
_BLOCK = re.compile(r"block(?:\((\d+(?:\.\d+)?)\))?")
_BLOCK_SECONDS = 1.0
_LONGEST_KEPT = 9e9
"""Seconds, some 285 years: more nanoseconds than a store's columns hold, and as good as no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The arguments of a RagGuard. Each field has the name and the meaning of RagGuard's argument.

    Wrong values are refused at once.
    """

    scoring: ScoringSettings = ScoringSettings()  # noqa: RUF009 - frozen
    store: str | Path | None = "ragguard.db"
    durability: Durability = "fast"
    sample_rate: float = 1.0
    score_rate: float = 1.0
    when: When = "step"
    references: References | Mapping[str, str | Sequence[str]] | None = None
    redact: Redact | None = None
    sinks: Sequence[Sink] = ()
    tracer_provider: TracerProvider | None = None
    otlp: str | None = None
    capture_content: bool | None = None
    queue_size: int = 1024
    queue_bytes: int = 64 * 2**20
    on_overflow: str = "drop_oldest"
    concurrency: int = 8
    retention: timedelta | float | None = None
    max_open_runs: int = 4096
    run_ttl: float = 3600.0
    exit_timeout: float = 10.0
    retry: RetrySchedule = RetrySchedule()  # noqa: RUF009 - frozen
    """The times at which a run is tried again that could not be scored for now."""
    tick_seconds: float = 5.0
    """The seconds between two renewals of the lease, with which old runs are looked for."""
    events_a_run: int = 64
    """The number of events that count as one run, where the queue holds events and not runs."""

    def __post_init__(self) -> None:
        """Refuses wrong values."""
        for name in ("queue_size", "queue_bytes", "concurrency", "max_open_runs"):
            whole_number(name, getattr(self, name), 1)
        _seconds_to_block(self.on_overflow)
        if not isinstance(self.when, str) or self.when not in ("step", "run"):
            raise InvalidInput("when", self.when, "'step' or 'run'")
        if not isinstance(self.score_rate, int | float) or not 0.0 <= self.score_rate <= 1.0:
            raise InvalidInput("score_rate", self.score_rate, "a share between 0 and 1")
        if not isinstance(self.exit_timeout, int | float) or not self.exit_timeout >= 0:
            raise InvalidInput("exit_timeout", self.exit_timeout, "a number of seconds, 0 or more")
        if not isinstance(self.run_ttl, int | float) or not self.run_ttl > 0:
            raise InvalidInput("run_ttl", self.run_ttl, "a number of seconds over 0")
        if not isinstance(self.sinks, list | tuple):
            raise InvalidInput("sinks", self.sinks, "a list of sinks")
        for sink in self.sinks:
            if not isinstance(sink, Sink):
                raise InvalidInput("sinks", sink, "something with `async def submit(scored)` and `aclose()`")
        if self.redact is not None and not callable(self.redact):
            raise InvalidInput("redact", self.redact, "a function of one text")
        if self.references is not None and not callable(self.find_references):
            allowed = "a function of the question, or a mapping from questions to right answers"
            raise InvalidInput("references", self.references, allowed)
        Content.chosen(self.capture_content)
        _seconds(self.retention)
        object.__setattr__(self, "sinks", tuple(self.sinks))  # the caller may go on changing its list

    @property
    def find_references(self) -> References | None:
        """The function that finds known right answers; that of a table where a table was given."""
        found = self.references
        return ReferenceTable(found) if isinstance(found, Mapping) else found

    @property
    def scored(self) -> bool:
        """True where ended runs wait for the scorer; also without scorers where sinks are to get the runs."""
        return self.scoring.scorers != () or self.makes_spans or bool(self.sinks)

    @property
    def live(self) -> bool:
        """True where steps are scored as they end."""
        return self.when == "step" and self.scoring.scorers != ()

    def chooses(self, run_id: str) -> bool:
        """Returns True for the share of the runs that is scored without being asked for: always the same runs."""
        if self.score_rate >= 1.0:
            return True
        # Not the hash that sampling uses: of the runs that it lets through, the same share is chosen.
        digest = hashlib.sha256(run_id.encode("utf-8", "replace")).digest()
        return int.from_bytes(digest[:4], "big") < self.score_rate * 2**32

    @property
    def makes_spans(self) -> bool:
        """True where spans of scores were asked for."""
        return self.tracer_provider is not None or self.otlp is not None

    @property
    def forwards(self) -> bool:
        """True where runs are captured alone and sent to a service that scores them."""
        return self.scoring.engine is None and self.otlp is not None

    @property
    def bounds(self) -> QueueBounds:
        """The bounds on the events that wait for the disk."""
        block = _seconds_to_block(self.on_overflow)
        return QueueBounds(self.events_a_run * self.queue_size, bytes=self.queue_bytes, block=block)

    @property
    def ttl(self) -> float:
        """The seconds without an event after which an open run is abandoned; infinite for never."""
        return math.inf if self.run_ttl > _LONGEST_KEPT else float(self.run_ttl)

    @property
    def kept_seconds(self) -> float | None:
        """The seconds for which a run is kept after its end; None: for ever."""
        return _seconds(self.retention)

    @property
    def exit_seconds(self) -> float:
        """The most seconds that the end of the process may wait."""
        return float(min(self.exit_timeout, LONGEST_WAIT))


def _seconds_to_block(policy: object) -> float:
    """Returns the seconds that a thread waits before the oldest is dropped."""
    name = policy if isinstance(policy, str) else ""
    if name == "drop_oldest":
        return 0.0
    block = _BLOCK.fullmatch(name)
    if block is None:
        raise InvalidInput("on_overflow", policy, "'drop_oldest', 'block' or 'block(SECONDS)'")
    return float(block.group(1) or _BLOCK_SECONDS)


def _seconds(retention: timedelta | float | None) -> float | None:
    seconds = retention.total_seconds() if isinstance(retention, timedelta) else retention
    if seconds is not None and (not isinstance(seconds, int | float) or not seconds > 0):
        raise InvalidInput("retention", retention, "a time longer than 0")
    return None if seconds is None or seconds > _LONGEST_KEPT else float(seconds)
