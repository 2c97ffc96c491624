"""Scores as OpenTelemetry spans, events and metrics.

A score comes after its step's span has ended, so it stands on a span of its own: a child of the step's span and linked
to it. The retrieval's span is the application's where it made one, else a span of ragguard's with the times of the
retrieval. Everything happens on the scorer's side; nothing is attached to a context, and no provider is ever set
globally.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    format_span_id,
)

from ragguard._version import __version__
from ragguard.errors import InvalidInput, MissingDependency
from ragguard.facts.causes import retriever_of
from ragguard.facts.run_view import RunView
from ragguard.records import RetrievalStep, Run, ScoredRun, TraceContext
from ragguard.runtime.per_process import PerProcess
from ragguard.runtime.threads import in_daemon_thread
from ragguard.telemetry.attributes import Event, Writer, leading_steps
from ragguard.telemetry.instruments import BacklogGauge, Instruments
from ragguard.telemetry.names import SCHEMA_URL
from ragguard.telemetry.values import Attributes, Content, identifier

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Tracer, TracerProvider

    from ragguard.telemetry.otlp import Exporting


DRAFTS = "gen_ai_latest_experimental"
"""The word in OTEL_SEMCONV_STABILITY_OPT_IN with which drafts of the conventions are written."""


class OtelSink:
    """Sends scored runs to OpenTelemetry, as spans, events and metrics.

    With no provider given, the application's own (global) ones are used. A run is written once it has ended: of an open
    one the costs alone are counted.

    Args:
        tracer_provider: The provider that gets the spans. None: the application's provider.
        meter_provider: The provider that gets the metrics. None: the application's provider.
        otlp: An OTLP/HTTP address, for an application that has no provider of its own: private ones export there.
            Needs the extra `otlp`.
        project: The project's name at `otlp`.
        spans_only: True: `otlp` gets no metrics, for a back end that takes only spans.
        capture_content: Whether queries, passages and answers are written. None: as the environment variables of
            OpenTelemetry and OpenInference say, else not.
        experiment: The name of one side of a comparison, such as `new retriever`: Langfuse shows the runs of each name
            as an experiment, and those of one question side by side. Empty: the runs are no experiment.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        *,
        meter_provider: MeterProvider | None = None,
        otlp: str | None = None,
        project: str = "ragguard",
        spans_only: bool = False,
        capture_content: bool | None = None,
        experiment: str = "",
    ) -> None:
        if not isinstance(experiment, str):
            raise InvalidInput("experiment", experiment, "a name, or nothing")
        for name, provider, verb in (
            ("tracer_provider", tracer_provider, "get_tracer"),
            ("meter_provider", meter_provider, "get_meter"),
        ):
            if provider is not None and not callable(getattr(provider, verb, None)):
                raise InvalidInput(name, provider, f"a provider of OpenTelemetry, with `{verb}`")
        self._given = (tracer_provider, meter_provider)
        private = otlp is not None and tracer_provider is None and not configured()
        self._private = (otlp, project, spans_only) if otlp is not None and private else None
        self._write, self._experiment = Writer(Content.chosen(capture_content)), experiment
        self._drafts = DRAFTS in os.environ.get("OTEL_SEMCONV_STABILITY_OPT_IN", "").split(",")
        self._here = PerProcess(self._begin)
        self._here.get()

    def _begin(self) -> _Outlets:
        """Makes the tracer and the instruments, and private providers for them, where these are wanted."""
        tracers, meters = self._given
        exporting = None
        if self._private is not None:
            try:
                from ragguard.telemetry.otlp import Exporting
            except ImportError as error:
                raise MissingDependency("opentelemetry-exporter-otlp-proto-http", "otlp=…", "otlp") from error
            address, project, spans_only = self._private
            exporting = Exporting(address, project, spans_only=spans_only)
            tracers, meters = exporting.traces, exporting.metrics
        meter = metrics.get_meter("ragguard", __version__, meters, SCHEMA_URL)
        gauge = BacklogGauge(meters)
        if exporting is not None:
            gauge.add(lambda: 0, exporting.lost)
        tracer = trace.get_tracer("ragguard", __version__, tracers, SCHEMA_URL)
        return _Outlets(exporting=exporting, tracer=tracer, gauge=gauge, instruments=Instruments(meter))

    def watch(self, queue_depth: Callable[[], int], dropped: Callable[[], Mapping[str, int]]) -> None:
        """Makes the sink report how many runs wait, and what was lost, by reason."""
        self._here.get().gauge.add(queue_depth, dropped)

    async def submit(self, scored: ScoredRun) -> None:
        """Writes one scored run."""
        self.write(scored)

    def write(self, scored: ScoredRun) -> dict[str, SpanContext]:
        """Writes one scored run; returns the span of each step, by the step's id, and the run's under ""."""
        self._here.get().instruments.record(scored)
        run = scored.run
        if run.status == "open":
            return {}
        parent = self._run_span(run) if run.trace is None else span_context(run.trace)
        view = RunView(run, scored.scores, scored.failures)
        self._evaluation(scored, view, parent, None, parent)
        targets = {"": parent}
        for step in run.steps:
            targets[step.id] = self._target(run, step, parent, targets)
            self._evaluation(scored, view, targets[step.id], step, parent)
        return targets

    async def flush(self) -> None:
        """Sends what a private exporter holds; does nothing with the application's own providers."""
        exporting = self._here.get().exporting
        if exporting is not None:
            await in_daemon_thread(exporting.flush)

    def undelivered(self) -> Mapping[str, int]:
        """Returns how much a private exporter could not deliver, by kind and address; empty with the application's
        own providers."""
        exporting = self._here.get().exporting
        return {} if exporting is None else exporting.undelivered()

    async def aclose(self) -> None:
        """Closes a private exporter after its last export; an application's own providers stay open."""
        here = self._here.made
        if here is None:  # nothing was written in this process
            return
        try:
            if here.exporting is not None:
                await asyncio.to_thread(here.exporting.close)
        finally:
            here.gauge.close()

    def _run_span(self, run: Run) -> SpanContext:
        """Writes a span of ragguard's for a run that has none of the application's."""
        ended = run.ended_ns or max([run.started_ns, *(step.ended_ns for step in run.steps)])
        return self._write_span(
            run, None, _line("run", run.name), Context(), run.started_ns, max(0, ended - run.started_ns),
            attributes=lambda: self._write.run(run), error="" if run.status == "error" else None,
        )  # fmt: skip

    def _target(
        self, run: Run, step: RetrievalStep, parent: SpanContext, earlier: Mapping[str, SpanContext]
    ) -> SpanContext:
        """Returns the span of the retrieval: the application's where it is known to be one, else one of ragguard's,
        with links to the `earlier` steps that led to its query."""
        above = parent if step.trace is None else span_context(step.trace)
        if not above.trace_flags.sampled:
            return above
        target = above
        if step.trace is None or not step.trace.foreign:
            target = self._write_span(
                run, parent, _line("retrieval", retriever_of(step)), _under(above), step.started_ns,
                max(0, step.ended_ns - step.started_ns), attributes=lambda: self._write.step(step),
                error=_line(step.error.partition(":")[0]) if step.status == "error" else None, kind=SpanKind.CLIENT,
                links=[
                    Link(earlier[id], self._write.lead(step, id).values)
                    for id in leading_steps(step)
                    if id in earlier
                ],
            )  # fmt: skip
        if (decision := step.decision) is not None:
            length = int(decision.elapsed_ms * 1e6)
            self._write_span(
                run,
                parent,
                "guard",
                _under(target),
                decision.started_ns or max(step.started_ns, (step.ended_ns or time.time_ns()) - length),
                length,
                attributes=lambda: self._write.decision(decision, step),
                error=_line(decision.reason) if decision.status == "error" else None,
                events=[self._write.guardrail(decision)] if self._drafts else (),
            )
        if (advice := step.advice) is not None:
            self._write_span(
                run,
                parent,
                "ragguard.advice",
                _under(target),
                advice.started_ns or step.ended_ns or time.time_ns(),
                int(advice.elapsed_ms * 1e6),
                attributes=lambda: self._write.advice(advice, step),
                error=_line(*advice.reasons[:1]) if advice.status == "error" else None,
            )
        return target

    def _write_span(
        self,
        run: Run,
        root: SpanContext | None,
        name: str,
        above: Context,
        start: int,
        length: int,
        attributes: Callable[[], Attributes],
        error: str | None,
        kind: SpanKind = SpanKind.INTERNAL,
        links: Sequence[Link] = (),
        events: Iterable[Event] = (),
    ) -> SpanContext:
        """Writes a span of a run that took `length` nanoseconds, with events at its end; `attributes` are asked for
        only if it is recorded. `root` is the run's span; None: this one."""
        tracer, end = self._here.get().tracer, start + length or None
        span = tracer.start_span(name, context=above, kind=kind, links=links, start_time=start or None)
        if span.is_recording():
            if self._experiment:
                id = format_span_id((root or span.get_span_context()).span_id)
                span.set_attributes(self._write.experiment(run, self._experiment, id).values)
            span.set_attributes(attributes().values)
            for event, about in events:
                span.add_event(event, about, end)
            if error is not None:
                span.set_status(Status(StatusCode.ERROR, error or None))
        span.end(end)
        return span.get_span_context()

    def _evaluation(
        self,
        scored: ScoredRun,
        view: RunView,
        target: SpanContext,
        step: RetrievalStep | None,
        root: SpanContext,
    ) -> None:
        """Writes the scores and failures of a step, with one link, to the step's span; None: those of the run as a
        whole. `root` is the run's span."""
        step_id = "" if step is None else step.id
        scores = [score for score in scored.scores if score.step_id == step_id]
        failures = [failure for failure in scored.failures if failure.step_id == step_id]
        if not (scores or failures) or not target.trace_flags.sampled:
            return
        events = [self._write.event(score) for score in scores if score.level != "passage"]
        events += [self._write.failure(failure) for failure in failures]
        now = time.time_ns()
        started = scored.started_ns or now
        self._write_span(
            scored.run,
            root,
            "evaluate retrieval" if step is not None else "evaluate run",
            _under(target),
            started,
            max(0, (scored.ended_ns or now) - started),
            attributes=lambda: self._write.evaluation(scores, view, step),
            error=_line(failures[0].error) if failures and not scores else None,
            links=[Link(target)],
            events=events,
        )


def configured() -> bool:
    """Returns True where the application has a tracer provider of its own."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


@dataclass(slots=True)
class _Outlets:
    """The ways out of one process: a forked child has private providers of its own."""

    exporting: Exporting | None
    """The private providers; None where spans go to the application's own, or to given ones."""
    tracer: Tracer
    instruments: Instruments
    gauge: BacklogGauge


def _line(*words: object) -> str:
    """Returns a span's name or status as any exporter can encode it."""
    return identifier(" ".join(str(word) for word in words if word != ""))


def span_context(known: TraceContext) -> SpanContext:
    """Returns the place of a span that was made elsewhere."""
    flags = TraceFlags(TraceFlags.SAMPLED if known.sampled else TraceFlags.DEFAULT)
    return SpanContext(int(known.trace_id, 16), int(known.span_id, 16), is_remote=False, trace_flags=flags)


def _under(parent: SpanContext) -> Context:
    return trace.set_span_in_context(NonRecordingSpan(parent), Context())
