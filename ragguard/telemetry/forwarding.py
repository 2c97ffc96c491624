"""Sends captured runs, as spans with texts, to a service that scores them. Needs OpenTelemetry's SDK.

A run's spans always have the same ids, so that a run that is sent twice is one run there. Its first span holds the run
itself, with the id, the metadata and all else that no other attribute has.
"""

from __future__ import annotations

import gzip
import re
from dataclasses import replace
from hashlib import sha256

import httpx
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from ragguard.records import ScoredRun
from ragguard.runtime.faults import NOTICES, describe
from ragguard.runtime.per_process import PerProcess
from ragguard.storage.files.runfile import data_of_run
from ragguard.storage.sqlite.schema import dump
from ragguard.telemetry.names import RUN_WHOLE
from ragguard.telemetry.otel import OtelSink
from ragguard.telemetry.otlp import ExportError, endpoint
from ragguard.telemetry.sink import DestinationAway
from ragguard.telemetry.values import Content

_SECONDS = 10.0
_LATER = frozenset({401, 403, 404, 408, 429, 500, 502, 503, 504})
"""The statuses of a service that is not ready, or lacks a token: the same spans may be taken later."""
_DOCUMENTS, _CHARACTERS, _ATTRIBUTES = 1000, 1_000_000, 10_000
"""The most of a step that is sent: what the service reads of one, for its scores to be those of this process."""
_HEADERS = {"content-type": "application/x-protobuf", "content-encoding": "gzip"}


class ForwardingSink:
    """Sends each run by itself. While the service is away the run stays due in the store, and is sent later.

    Args:
        otlp: The service's address, such as `http://gpu:4318`.
        capture_content: Whether texts are sent, as in `OtelSink`.
    """

    def __init__(self, otlp: str, capture_content: bool | None = None) -> None:
        self.destination, self._authorization = endpoint(otlp)
        """The name by which reports call this sink."""
        content = Content.chosen(capture_content)
        self._whole = content.texts and content.inputs and content.outputs
        if not content.texts:
            NOTICES.warn(
                f"no texts {self.destination}",
                f"what is sent to {self.destination} holds no texts, so that nothing can be scored there: "
                "RagGuard(engine=None, otlp=..., capture_content=True) sends them",
            )
        # Where the whole run stands in one attribute, no span needs texts beside it: a body may have 16 MiB.
        self._ids, self._ended = _SpanIds(), _SpansOfRun()
        limits = SpanLimits(
            max_attributes=_ATTRIBUTES, max_span_attributes=_ATTRIBUTES,
            max_attribute_length=SpanLimits.UNSET, max_span_attribute_length=SpanLimits.UNSET,
        )  # fmt: skip
        provider = TracerProvider(
            ALWAYS_ON, Resource.create({"service.name": "ragguard"}), shutdown_on_exit=False,
            id_generator=self._ids, span_limits=limits,
        )  # fmt: skip
        provider.add_span_processor(self._ended)
        self._spans = OtelSink(
            provider, meter_provider=NoOpMeterProvider(), capture_content=False if self._whole else capture_content,
            max_documents=0 if self._whole else _DOCUMENTS, max_text=_CHARACTERS, max_attributes=_ATTRIBUTES,
        )  # fmt: skip
        self._client = PerProcess(
            lambda: httpx.AsyncClient(headers=_HEADERS | self._authorization, timeout=_SECONDS)
        )

    async def submit(self, scored: ScoredRun) -> None:
        """Sends a run; raises DestinationAway where it may be taken later, ExportError where it never will be."""
        run = scored.run
        self._ids.run, self._ids.count, self._ids.trace = run.id, 0, run.trace.trace_id if run.trace else ""
        # The spans of the application go elsewhere: the service gets a trace that is whole without them.
        steps = [replace(step, trace=None) for step in run.steps]
        sent = replace(run, trace=None, steps=steps)
        self._ended.whole = dump(data_of_run(sent)) if self._whole else ""
        self._spans.write(replace(scored, run=sent))
        body = encode_spans(self._ended.taken()).SerializeToString()
        try:
            reply = await self._client.get().post(
                f"{self.destination}/v1/traces", content=gzip.compress(body, 1)
            )
        except httpx.HTTPError as error:
            raise DestinationAway(f"{self.destination} cannot be reached ({describe(error)})") from error
        if not reply.is_success:
            kind = DestinationAway if reply.status_code in _LATER else ExportError
            raise kind(
                f"{self.destination} answered {reply.status_code} to the run {run.id!r}: {reply.text[:200]}"
            )
        kind_of_reply = reply.headers.get("content-type", "")
        if reply.content and not re.search("protobuf|json", kind_of_reply):
            raise DestinationAway(
                f"{self.destination} answers as no OTLP service does (with {kind_of_reply or 'a text'}): is its "
                "address right?"
            )
        if "protobuf" in kind_of_reply:
            partial = ExportTraceServiceResponse.FromString(reply.content).partial_success
            if partial.rejected_spans:
                raise ExportError(
                    f"{self.destination} refused spans of the run {run.id!r}: {partial.error_message}"
                )

    async def aclose(self) -> None:
        """Closes the connections."""
        if (client := self._client.made) is not None:
            await client.aclose()


class _SpanIds(IdGenerator):
    """Ids made of the run's id and the number of the span, in the application's trace where it has one."""

    run, count, trace = "", 0, ""

    def generate_trace_id(self) -> int:
        return int(self.trace or sha256(self.run.encode("utf-8", "replace")).hexdigest()[:32], 16)

    def generate_span_id(self) -> int:
        self.count += 1
        return int(sha256(f"{self.count} {self.run}".encode("utf-8", "replace")).hexdigest()[:16], 16)


class _SpansOfRun(SpanProcessor):
    """Keeps the spans of one run until they are sent, the run's own with the `whole` run in it."""

    def __init__(self) -> None:
        self.whole = ""
        self._spans: list[ReadableSpan] = []

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        if span.parent is None and self.whole:
            span.set_attribute(RUN_WHOLE, self.whole)

    def on_end(self, span: ReadableSpan) -> None:
        self._spans.append(span)

    def taken(self) -> list[ReadableSpan]:
        """Returns the spans, and forgets them."""
        spans, self._spans = self._spans, []
        return spans
