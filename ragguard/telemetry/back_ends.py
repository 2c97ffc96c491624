"""Posts scores over REST to back ends for traces, in the form in which each keeps them.

Phoenix takes spans by OTLP but ignores evaluations that stand on them; its score chips come from `/v1/span_annotations`
and `/v1/document_annotations`. An annotation may come before its span, and the same name on the same span replaces the
earlier one, so sending again is harmless.

Phoenix treats every document score as a relevance, computes nDCG, precision and hits from it, and cannot show a page
with a negative one. So only scores that can be read as a relevance are sent as numbers; the others are sent as a word,
with the number in the explanation.

Langfuse keeps scores on the trace for those of a run, and on the observation for those of a step.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import httpx
from opentelemetry.trace import SpanContext, format_span_id

from ragguard.errors import InvalidInput, RagguardError
from ragguard.facts.verdicts import utility_verdict
from ragguard.metrics.registry import METRICS
from ragguard.records import Score, ScoredRun
from ragguard.runtime.circuit_breaker import RetrySchedule
from ragguard.runtime.faults import describe
from ragguard.telemetry.attributes import annotator, identity, score_name
from ragguard.telemetry.names import SKIPPED
from ragguard.telemetry.otel import OtelSink, span_context
from ragguard.telemetry.values import TEXT, Attributes, Content, identifier, text
from ragguard.text.credentials import checked_key, split_credentials
from ragguard.text.secret_filter import without_secrets

RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
ATTEMPTS = RetrySchedule(4, first=0.5, longest=8.0, jitter=(1.0, 1.0))
_INGESTION = "/api/public/ingestion"
_AT_ONCE = 100
_COMMENT = 2000


async def post_json(
    client: httpx.AsyncClient,
    path: str,
    data: Mapping[str, Any],
    params: Mapping[str, str] | None = None,
) -> httpx.Response:
    """Returns the server's answer; raises BackEndError about the last attempt where it took nothing in any."""
    problem = ""
    for attempt in range(ATTEMPTS.attempts):
        if attempt:
            await asyncio.sleep(ATTEMPTS.wait(attempt))
        try:
            answer = await client.post(path, params=params, json=data)
        except httpx.TransportError as error:
            problem = describe(error)
        else:
            if answer.is_success:
                return answer
            problem = f"HTTP {answer.status_code}: {without_secrets(answer.text[:4000])[:200]}"
            if answer.status_code not in RETRIED:
                break
    address = str(client.base_url).rstrip("/")
    raise BackEndError(f"scores were posted to {address}{path}; {problem}. Is the server running there?")


class BackEndError(RagguardError):
    """A back end did not take the scores."""


class PhoenixAnnotations:
    """Posts scores as annotations of the spans that their runs and steps stand on: of runs that were read from
    Phoenix, the spans that are there already. The arguments are those of `PhoenixSink`."""

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.url, access = phoenix_access(url, api_key)
        self._client = httpx.AsyncClient(base_url=self.url, timeout=10, transport=transport, **access)

    async def submit(self, scored: ScoredRun) -> None:
        """Posts the annotations of a run, its steps and their passages."""
        places = {"": scored.run.trace} | {step.id: step.trace for step in scored.run.steps}
        targets = {name: span_context(one) for name, one in places.items() if one is not None}
        await self.post(scored.scores, targets, explained=True)

    async def post(
        self, scores: Iterable[Score], targets: Mapping[str, SpanContext], *, explained: bool
    ) -> None:
        """Posts scores as annotations of the spans of their steps, or, under '', of the run."""
        on_spans, on_documents = [], []
        for score in scores:
            target = targets.get(score.step_id)
            if target is None or not target.trace_flags.sampled or not math.isfinite(score.value):
                continue
            if score.level != "passage":
                annotation = _annotation(score, target, _result(score, explained=explained))
                on_spans.append(annotation | {"identifier": identifier(identity(score))})
            elif score.position is not None and score.sub_question is None:
                annotation = _annotation(score, target, _document_result(score, explained=explained))
                on_documents.append(annotation | {"document_position": int(score.position) - 1})
        await self._post("/v1/span_annotations", on_spans)
        await self._post("/v1/document_annotations", on_documents)

    async def aclose(self) -> None:
        """Closes the connection."""
        await self._client.aclose()

    async def _post(self, path: str, data: Sequence[dict[str, Any]]) -> None:
        if data:
            await post_json(self._client, path, {"data": data}, {"sync": "false"})


class PhoenixSink:
    """Sends a run's spans to a Phoenix server by OTLP, and its scores as annotations over REST. Needs the extra
    `phoenix`.

    Args:
        url: The server's address.
        project: The project's name in Phoenix.
        api_key: The server's key. None: PHOENIX_API_KEY from the environment.
        capture_content: Whether texts are sent, as in `OtelSink`.
        transport: An httpx transport instead of the usual one, such as a proxy or a test's.
    """

    def __init__(
        self,
        url: str = "http://localhost:6006",
        *,
        project: str = "ragguard",
        api_key: str | None = None,
        capture_content: bool | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._annotations = PhoenixAnnotations(url, api_key, transport)
        self.url = self._annotations.url
        spans = OtelSink(otlp=url, project=project, spans_only=True, capture_content=capture_content)
        self._spans, self._explained = spans, Content.chosen(capture_content).texts
        self.watch, self.flush, self.undelivered = spans.watch, spans.flush, spans.undelivered

    async def submit(self, scored: ScoredRun) -> None:
        """Writes the spans, then the annotations of the run, its steps and their passages."""
        targets = self._spans.write(scored)
        await self._annotations.post(scored.scores, targets, explained=self._explained)

    async def aclose(self) -> None:
        """Closes the connection and the spans' exporter."""
        await self._annotations.aclose()
        await self._spans.aclose()


def phoenix_access(url: str, api_key: str | None = None) -> tuple[str, dict[str, Any]]:
    """Returns the bare address of a Phoenix server, and the arguments with which an httpx client gets in; raises
    InvalidInput for anything else. Without a key that of PHOENIX_API_KEY counts, then the user in the address."""
    if not url.startswith(("http://", "https://")):
        raise InvalidInput("url", url, "an http:// or https:// address, such as http://localhost:6006")
    bare, credentials = split_credentials("url", url, "an http:// or https:// address")
    key = checked_key("api_key", api_key or os.environ.get("PHOENIX_API_KEY", ""))
    return bare.rstrip("/"), {"headers": {"authorization": f"Bearer {key}"}} if key else {"auth": credentials}


def _annotation(score: Score, target: SpanContext, result: dict[str, Any]) -> dict[str, Any]:
    about = Attributes()
    about.add("scorer", identity(score))
    for name in ("stderr", "engine", "prompts"):
        about.add(name, getattr(score, name))
    about.add(SKIPPED, about.skipped or None)
    return {
        "span_id": format_span_id(target.span_id),
        "name": identifier(score_name(score)),
        "annotator_kind": annotator(score),
        "result": result,
        "metadata": about.values,
    }


def _result(score: Score, *, explained: bool) -> dict[str, Any]:
    """Returns the number with the score's explanation, or with the description of its metric."""
    metric = METRICS.get(score.name)
    result: dict[str, Any] = {"score": float(score.value)}
    if score.label:
        result["label"] = text(score.label, 256)
    if score.explanation and explained:
        result["explanation"] = text(score.explanation, TEXT)
    elif metric is not None:
        result["explanation"] = metric.description
    return result


def _document_result(score: Score, *, explained: bool) -> dict[str, Any]:
    metric = METRICS.get(score.name)
    result = _result(score, explained=explained)
    low, direction = (0.0, "higher") if metric is None else (metric.range[0], metric.direction)
    if low >= 0 <= score.value and direction == "higher":
        return result
    if low < 0 or score.value < 0:
        label = "positive" if score.value > 0 else "negative" if score.value < 0 else "neither"
        if score.name == "utility":
            label = utility_verdict(score.value, score.stderr)
    else:
        label = result.get("label") or f"{score.value:.2f}"
    number = f"{identifier(score_name(score))} {score.value:.3f}"
    return {"label": label, "explanation": ": ".join(filter(None, (number, result.get("explanation"))))}


class LangfuseScores:
    """Posts the scores of runs that were read from a Langfuse. A score's id is made of what it is about, so that one
    that is sent again replaces the earlier one. Scores of passages have no place in Langfuse, and are not sent.

    Args:
        url: The server's address. The project's keys are those in LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY.
    """

    def __init__(self, url: str) -> None:
        self.url, auth = langfuse_access(url)
        self._client = httpx.AsyncClient(base_url=self.url, timeout=10, auth=auth)

    async def submit(self, scored: ScoredRun) -> None:
        """Posts the scores of a run and its steps."""
        if scored.run.trace is None:
            raise BackEndError(f"the ids of the run {scored.run.id!r} are not OpenTelemetry's")
        events = list(_events(scored, scored.run.trace.trace_id))
        for start in range(0, len(events), _AT_ONCE):
            answer = await post_json(self._client, _INGESTION, {"batch": events[start : start + _AT_ONCE]})
            if refused := answer.json().get("errors"):
                raise BackEndError(f"{self.url} refused scores: {str(refused)[:300]}")

    async def aclose(self) -> None:
        """Closes the connection."""
        await self._client.aclose()


def langfuse_access(url: str) -> tuple[str, tuple[str, str]]:
    """Returns the bare address of a Langfuse server, and the project's keys from the environment."""
    keys = [os.environ.get(f"LANGFUSE_{kind}_KEY", "") for kind in ("PUBLIC", "SECRET")]
    if not all(keys):
        raise InvalidInput(
            "LANGFUSE_PUBLIC_KEY, LANGFUSE_SECRET_KEY", "", "the keys of a project, in the environment"
        )
    public, secret = (checked_key("LANGFUSE_*_KEY", key) for key in keys)
    return url.rstrip("/"), (public, secret)


def _events(scored: ScoredRun, trace: str) -> Iterator[dict[str, Any]]:
    now = datetime.now(UTC).isoformat()
    for score in scored.scores:
        if score.level == "passage" or not math.isfinite(score.value):
            continue
        about = f"{trace} {score.step_id} {score_name(score)} {identity(score)} {score.sub_question}"
        id = hashlib.sha256(about.encode("utf-8", "replace")).hexdigest()[:32]
        body = {
            "id": id, "traceId": trace, "name": identifier(score_name(score)), "value": float(score.value),
            "dataType": "NUMERIC", "comment": text(score.explanation or score.label or "", _COMMENT) or None,
            "metadata": {"scorer": identity(score), "engine": score.engine, "stderr": score.stderr},
        }  # fmt: skip
        if score.step_id:
            body["observationId"] = score.step_id
        yield {"id": f"{id}-{now}", "type": "score-create", "timestamp": now, "body": body}
