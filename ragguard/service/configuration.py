"""The configuration of a RagGuard: its arguments, checked once and passed whole through the service."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ragguard.engines.layers.budget import Account
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


@dataclass(frozen=True, kw_only=True)
class ServiceSettings:
    """The settings of capture, store, scoring in the background and delivery. Wrong values are refused at once.

    The one description of these settings: RagGuard's arguments and the settings page are made of its fields.
    """

    store: str | Path | None = "ragguard.db"
    """The SQLite file that keeps runs and scores. None keeps them in memory: at most 10,000 runs or 256 MiB, and only
    until the process ends."""
    durability: Durability = "fast"
    """The loss that a kill may cause: `fast` loses at most the last 50 ms; with `full`, calls on a thread return once
    their event is on the disk."""
    sample_rate: float = 1.0
    """The share of runs that is captured, from 0 to 1, decided by the run's id. The others are not recorded."""
    score_rate: float = 1.0
    """The share of captured runs that is scored without being asked for, from 0 to 1, decided by the run's id. The
    others are kept, and `rg.score(run)` or `ragguard score` scores them later."""
    when: When = "step"
    """The time at which runs are scored: `step` scores each step as it ends with what is known then, and asks at the
    run's end what needs the end; `run` scores nothing before."""
    references: References | Mapping[str, str | Sequence[str]] | None = None
    """The right answers for runs that bring none: a function of the question, sync or async, or a mapping from
    questions to answers. It is called when runs are scored, never in a hook."""
    redact: Redact | None = None
    """A function of one text that returns what may be kept of it; None or an empty text keeps nothing. It is applied
    to every text before anything is written, scored or sent; if it fails, the text is dropped."""
    sinks: Sequence[Sink] = ()
    """The receivers of scored runs besides the store: a list of objects with `async def submit(scored)` and `async def
    aclose()`."""
    tracer_provider: TracerProvider | None = None
    """The OpenTelemetry provider that scores go to, instead of the application's own."""
    otlp: str | None = None
    """An OTLP/HTTP address, such as `http://localhost:4318`, for an application that has no OpenTelemetry configured;
    if it has, that is used. Needs the extra `otlp`."""
    capture_content: bool | None = None
    """True to write queries, passages and answers on spans. None: as the environment variables of OpenTelemetry and
    OpenInference say, else not."""
    queue_size: int = 1024
    """How many runs may wait, 1 or more: with a store for the disk (a run is taken for 64 events), without one to be
    scored. Beyond that `on_overflow` applies."""
    queue_bytes: int = 64 * 2**20
    """How many bytes of captured data may wait for the disk, about; 64 MiB by default. Beyond that `on_overflow`
    applies."""
    on_overflow: str = "drop_oldest"
    """The policy for a full queue: `drop_oldest`, or `block(SECONDS)`, which lets a thread wait that long for the disk
    before the oldest events are dropped. A hook on an event loop never waits, and none waits for scoring. What is
    dropped is counted."""
    concurrency: int = 8
    """How many runs are scored at once in the background, 1 or more."""
    retention: timedelta | float | None = None
    """How long a run is kept after its end, in seconds or as a timedelta. Older runs are removed for good with their
    texts and scores, scored or not. None: for ever."""
    max_open_runs: int = 4096
    """How many runs may be open at once in a process, 1 or more. Beyond that the one without an event for longest ends
    as `abandoned`: what it retrieves later is not recorded, its answer is."""
    run_ttl: float = 3600.0
    """The seconds without an event after which an open run ends as `abandoned` and is scored as it is. `float('inf')`:
    never."""
    exit_timeout: float = 10.0
    """How many seconds the end of the process may wait for what is still to be stored, scored and sent; 0 or more."""

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

    @cached_property
    def find_references(self) -> References | None:
        """The function that finds known right answers; that of a table where a table was given."""
        found = self.references
        return ReferenceTable(found) if isinstance(found, Mapping) else found

    @property
    def makes_spans(self) -> bool:
        """True where spans of scores were asked for."""
        return self.tracer_provider is not None or self.otlp is not None

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


@dataclass(frozen=True, kw_only=True)
class Configuration(ServiceSettings):
    """The settings of a RagGuard, checked and handed down whole through the service, with what no user sets."""

    scoring: ScoringSettings = ScoringSettings()  # noqa: RUF009 - frozen
    retry: RetrySchedule = RetrySchedule()  # noqa: RUF009 - frozen
    """The times at which a run is tried again that could not be scored for now."""
    tick_seconds: float = 5.0
    """The seconds between two renewals of the lease, with which old runs are looked for."""
    events_a_run: int = 64
    """The number of events that count as one run, where the queue holds events and not runs."""

    @property
    def scored(self) -> bool:
        """True where ended runs wait for the scorer; also without scorers where sinks are to get the runs."""
        return self.scoring.scorers != () or self.makes_spans or bool(self.sinks)

    @property
    def live(self) -> bool:
        """True where steps are scored as they end."""
        return self.when == "step" and self.scoring.scorers != ()

    @property
    def forwards(self) -> bool:
        """True where runs are captured alone and sent to a service that scores them."""
        return self.scoring.engine is None and not self.scoring.scorers and self.otlp is not None

    @property
    def queue_events(self) -> int:
        """The most events that may wait for the disk."""
        return self.events_a_run * self.queue_size


@dataclass(frozen=True, kw_only=True)
class Options(ServiceSettings, ScoringSettings):
    """All arguments of a RagGuard, flat."""

    @property
    def configuration(self) -> Configuration:
        """The same settings as the service takes them."""
        scoring = ScoringSettings(**{one.name: getattr(self, one.name) for one in fields(ScoringSettings)})
        # One account, also for forked processes.
        scoring = replace(scoring.or_capture_only(), budget=Account.of(self.budget))
        return Configuration(
            scoring=scoring, **{one.name: getattr(self, one.name) for one in fields(ServiceSettings)}
        )
