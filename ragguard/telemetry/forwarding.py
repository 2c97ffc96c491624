"""Sends captured runs, as spans, to a service that scores them. Needs OpenTelemetry's protocol buffers.

A run's spans always have the same ids, so that a run that is sent twice is one run there. The first span holds the run
itself as a run line; those of its retrievals say where in the trace their scores belong.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any

import httpx
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from ragguard.errors import InvalidInput
from ragguard.facts.causes import retriever_of
from ragguard.records import Run, ScoredRun
from ragguard.runtime.faults import describe
from ragguard.runtime.per_process import PerProcess
from ragguard.storage.files.runfile import data_of_run
from ragguard.storage.sqlite.layout import dump
from ragguard.telemetry import names as n
from ragguard.telemetry.otlp import ExportError, endpoint, signal_url
from ragguard.telemetry.sink import DestinationAway
from ragguard.telemetry.values import Content, identifier

_SECONDS = 10.0
_LATER = frozenset({401, 403, 404, 408, 429, 500, 502, 503, 504})
"""The statuses of a service that is not ready, or lacks a token: the same spans may be taken later."""
_HEADERS = {"content-type": "application/x-protobuf", "content-encoding": "gzip"}


class ForwardingSink:
    """Sends each run by itself. While the service is away the run stays due in the store, and is sent later.

    Args:
        otlp: The service's address, such as `http://gpu:4318`.
        capture_content: Whether texts are sent, as in `OtelSink`; refused where they are not, or where
            OPENINFERENCE_HIDE_* hides some.
    """

    def __init__(self, otlp: str, capture_content: bool | None = None) -> None:
        content = Content.chosen(capture_content)
        if not (content.inputs and content.outputs):
            raise InvalidInput(
                "capture_content", capture_content, "True with engine=None and otlp=…, and nothing hidden by "
                "OPENINFERENCE_HIDE_*: without its texts a run cannot be scored there; for only spans give "
                "sinks=[OtelSink(otlp=…)]",
            )  # fmt: skip
        self.destination, self._authorization = endpoint(otlp)
        """The name by which reports call this sink."""
        self._client = PerProcess(
            lambda: httpx.AsyncClient(headers=_HEADERS | self._authorization, timeout=_SECONDS)
        )

    async def submit(self, scored: ScoredRun) -> None:
        """Sends a run; raises DestinationAway where it may be taken later, ExportError where it never will be."""
        run = scored.run
        body = gzip.compress(_spans_of(run).SerializeToString(), 1)
        try:
            reply = await self._client.get().post(signal_url(self.destination, "traces"), content=body)
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
        await self._client.get().aclose()


def _spans_of(run: Run) -> ExportTraceServiceRequest:
    """Returns the spans of a run, in the application's trace where it has one, else in one of the run's own."""
    trace = bytes.fromhex(run.trace.trace_id) if run.trace else _digits(run.id)[:16]
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    _add(resource.resource, {"service.name": "ragguard"})
    spans = resource.scope_spans.add().spans
    root = spans.add(
        trace_id=trace, span_id=_digits(f"1 {run.id}")[:8], name=identifier(f"run {run.name}".strip()),
        start_time_unix_nano=run.started_ns,
        end_time_unix_nano=run.ended_ns or max([run.started_ns, *(step.ended_ns for step in run.steps)]),
    )  # fmt: skip
    # The spans of the application go elsewhere: the service gets a trace that is whole without them.
    sent = replace(run, trace=None, steps=[replace(step, trace=None) for step in run.steps])
    _add(root, {n.OI_KIND: "CHAIN", n.RUN_ID: run.id, n.RUN_WHOLE: dump(data_of_run(sent))})
    for number, step in enumerate(run.steps, 2):
        span = spans.add(
            trace_id=trace, span_id=_digits(f"{number} {run.id}")[:8], parent_span_id=root.span_id,
            name=identifier(f"retrieval {retriever_of(step)}".strip()),
            start_time_unix_nano=step.started_ns, end_time_unix_nano=step.ended_ns,
        )  # fmt: skip
        _add(span, {n.OI_KIND: "RETRIEVER", n.RUN_ID: run.id, n.STEP_ID: step.id})
    return request


def _add(holder: Any, attributes: Mapping[str, str]) -> None:
    """Adds attributes to a span or a resource."""
    for name, value in attributes.items():
        holder.attributes.add(key=name).value.string_value = value.encode("utf-8", "replace").decode()


def _digits(text: str) -> bytes:
    return sha256(text.encode("utf-8", "replace")).digest()
