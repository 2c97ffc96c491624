"""The configuration of a RagGuard: its arguments, checked once and handed down whole through the service."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ragguard.errors import InvalidInput
from ragguard.runtime.arguments import number_between, one_of, share, whole_number
from ragguard.runtime.circuit_breaker import RetrySchedule
from ragguard.scorers.references import References, ReferenceTable
from ragguard.scorers.settings import ScoringSettings
from ragguard.storage.preparation import Redact
from ragguard.storage.sqlite.store import Durability
from ragguard.telemetry.sink import Sink
from ragguard.telemetry.values import Content

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

When = Literal["step", "run"]
"""The times at which a run is scored: as its steps end and again at its end, or at its end alone."""
_BLOCK = re.compile(r"block\((\d+(?:\.\d+)?)\)")
_SHORTEST = sys.float_info.min
"""Seconds: the least number over 0."""
LONGEST = 9e9
"""Seconds, some 285 years: more nanoseconds than a store's columns hold."""


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
        one_of("when", self.when, ("step", "run"))
        share("sample_rate", self.sample_rate)
        share("score_rate", self.score_rate)
        number_between("exit_timeout", self.exit_timeout, 0, math.inf, "a number of seconds, 0 or more")
        number_between("run_ttl", self.run_ttl, _SHORTEST, math.inf, "a number of seconds over 0")
        self.block_seconds  # noqa: B018 - refuses a wrong policy
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
        self.kept_seconds  # noqa: B018 - refuses a wrong time
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

    @property
    def makes_spans(self) -> bool:
        """True where spans of scores were asked for."""
        return self.tracer_provider is not None or self.otlp is not None

    @property
    def forwards(self) -> bool:
        """True where runs are captured alone and sent to a service that scores them."""
        return self.scoring.engine is None and self.otlp is not None

    @property
    def queue_events(self) -> int:
        """The most events that may wait for the disk."""
        return self.events_a_run * self.queue_size

    @property
    def block_seconds(self) -> float:
        """The seconds for which a thread may wait before anything is dropped; a hook on an event loop never waits."""
        policy = self.on_overflow if isinstance(self.on_overflow, str) else ""
        block = _BLOCK.fullmatch(policy)
        if block is None and policy != "drop_oldest":
            raise InvalidInput("on_overflow", self.on_overflow, "'drop_oldest' or 'block(SECONDS)'")
        return 0.0 if block is None else float(block.group(1))

    @property
    def kept_seconds(self) -> float | None:
        """The seconds for which a run is kept after its end; None: for ever."""
        if self.retention is None:
            return None
        kept = self.retention.total_seconds() if isinstance(self.retention, timedelta) else self.retention
        return number_between("retention", kept, _SHORTEST, LONGEST, "a time over 0, or None for ever")
