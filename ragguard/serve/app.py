"""The application: which address does what, and who may ask.

/v1/traces            OTLP: spans in protobuf or JSON
/v1/metrics, /v1/logs taken and not kept
/v1/runs              run lines, as `ragguard score` reads them
/v1/prune             a query and passages → which of them to keep
/v1/advise            a run so far → what to do now
/v1/feedback          a thumb and a note on a run
/compute_info_gain    questions, contexts and answers → SePer with the context less SePer without
/                     the report's page, which comes anew with new scores
/healthz, /readyz, /metrics
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from io import BytesIO
from typing import Annotated, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ragguard.capture.handle import Thumb
from ragguard.client import RagGuard
from ragguard.engines.base import Engine
from ragguard.errors import AdviceError, InvalidInput, RagguardError, ScoringError
from ragguard.guard import DistractorGuard
from ragguard.records import FieldRule, Id, Passage, RetrievalStep, Run
from ragguard.runtime.arguments import references_of
from ragguard.runtime.faults import NOTICES, describe
from ragguard.runtime.limiter import Limiter
from ragguard.runtime.threads import TimeSlice
from ragguard.serve.ingest import Ingest
from ragguard.serve.pages import LivePage, PrometheusPage
from ragguard.serve.request_checks import (
    LATER,
    PROTOBUF,
    Door,
    body_of,
    exported,
    failed,
    kind_of,
    sent,
    while_connected,
)
from ragguard.storage.files.jsonl import LONGEST_LINE
from ragguard.storage.files.runfile import Line, line_of, run_of_data
from ragguard.text.plain import without_surrogates
from ragguard.text.secret_filter import logger
from ragguard.traces.spool import BROKEN
from ragguard.traces.trace_spans import packed_json, packed_protobuf

_AT_ONCE = 4
"""The most bodies of spans that are read at once."""
_ITEMS_AT_ONCE = 256
"""The most items of `/compute_info_gain` that are scored at once."""
_LINES, _LINES_BYTES = 128, 2**20
"""The most lines of `/v1/runs`, and the bytes after which no further one is taken, that are read and stored at once."""
_CLOSE_SECONDS = 1.5
"""The seconds for which runs are still scored once the service ends; what is left goes on when it starts again."""
_FIRST = "Who founded Corwell Mills?"
"""The first question and passage, whose judgement loads the models."""
_log = logger("ragguard.serve")
_NEEDED = '{"question": "...", "context": "...", "answers": ["..."]}, none of them empty'
_BELIEFS = ("seper_closed_book", "seper", "delta_seper")


@dataclass
class _Prune:
    """The body of `/v1/prune`."""

    query: Annotated[str, FieldRule.NEEDED] = ""
    passages: Annotated[list[Passage], FieldRule.NEEDED] = field(default_factory=list)


@dataclass
class _Advise:
    """The body of `/v1/advise`."""

    run: Annotated[Mapping[str, Any], FieldRule.NEEDED] = field(default_factory=dict)
    budget_ms: float = 5000.0


@dataclass
class _Feedback:
    """The body of `/v1/feedback`."""

    run: Annotated[Id, FieldRule.NEEDED] = ""
    thumb: Annotated[Thumb, FieldRule.NEEDED] = "up"
    note: str = ""


@dataclass
class InfoGainItem:
    """A question with its right answers, and a context that may add to the belief in them."""

    question: str = ""
    context: str = ""
    answers: list[str] = field(default_factory=list)


@dataclass
class _InfoGains:
    """The body of `/compute_info_gain`."""

    items: Annotated[list[InfoGainItem], FieldRule.NEEDED] = field(default_factory=list)


class InfoGain:
    """Scores items with the belief scorer alone, without storing them."""

    def __init__(self, engine: Engine, judge: Engine | str | None = None) -> None:
        self._rg = RagGuard(engine, judge=judge, scorers=("belief",), store=None, retention=1.0)

    async def of(self, items: Sequence[InfoGainItem]) -> dict[str, list[Any]]:
        """Returns `scores`, `errors` and `details`, one entry an item, in their order; an item that failed has its
        error, and None for the others. Raises HTTPException where all failed: a client that knows scores as numbers
        alone must not take a failure for one."""
        found: list[dict[str, float] | BaseException] = []
        for start in range(0, len(items), _ITEMS_AT_ONCE):
            some = items[start : start + _ITEMS_AT_ONCE]
            found += await asyncio.gather(*map(self._details, some), return_exceptions=True)
        errors = [one if isinstance(one, BaseException) else None for one in found]
        if items and all(errors):
            said = "; ".join(sorted({describe(error) for error in errors if error is not None}))
            incomplete = all(isinstance(error, InvalidInput) for error in errors)
            raise HTTPException(400 if incomplete else 503, f"no item has a known gain: {said}")
        details = [one if isinstance(one, dict) else None for one in found]
        return {
            "scores": [one and one["delta_seper"] for one in details],
            "errors": [error and describe(error) for error in errors],
            "details": details,
        }

    async def _details(self, item: InfoGainItem) -> dict[str, float]:
        given = replace(item, answers=references_of(item.answers) or [])
        if missing := [name for name, value in asdict(given).items() if not value]:
            raise InvalidInput(", ".join(missing), "nothing", _NEEDED)
        passages = [Passage(given.context)]
        step = RetrievalStep(query=given.question, passages=passages, candidates=passages)
        run = Run(question=given.question, references=given.answers, steps=[step])
        scores = await self._rg.score(run)
        found = {one.name: one.value for one in scores if one.name in _BELIEFS}
        if "delta_seper" not in found:
            raise ScoringError(
                "; ".join(f"{one.error}: {one.message}" for one in scores.failures) or "no score"
            )
        return found

    async def aclose(self) -> None:
        """Closes the scorer."""
        await self._rg.aclose(timeout=1.0)


class Endpoints:
    """The endpoints over one RagGuard."""

    def __init__(self, rg: RagGuard, ingest: Ingest, guard: DistractorGuard, info_gain: InfoGain) -> None:
        self.rg, self.ingest, self.guard, self.info_gain = rg, ingest, guard, info_gain
        self.requests: Counter[tuple[str, str]] = Counter()
        """How many requests there were, by address and status."""
        self.lines = Counter({"accepted": 0, "rejected": 0})
        """How many lines of `/v1/runs` there were, by what became of them."""
        self._prometheus = PrometheusPage(rg, ingest, guard, self.requests, self.lines)
        self._limit = Limiter(_AT_ONCE)
        self._loading = True

    async def load(self) -> None:
        """Has the models of this process loaded, so that the first question of an agent is answered in time. A server
        that cannot be asked now is asked again with the first question."""
        try:
            await self.guard.judged(_FIRST, [Passage(_FIRST)])
        except Exception as error:  # noqa: BLE001 - spans and runs are taken all the same
            _log.info("the models did not answer at the start: %s", describe(error))
        self._loading = False

    async def traces(self, request: Request) -> Response:
        """Takes spans: they are on the disk once the reply is sent."""
        kind, broken = kind_of(request), list[InvalidInput]()
        read_body = packed_protobuf if kind == PROTOBUF else packed_json
        body = await body_of(
            request
        )  # before it is admitted: a client that sends slowly keeps nobody else out
        async with self._limit.admitted():
            refused = await self.ingest.take(lambda: read_body(body, broken))
        if broken:
            self.ingest.spool.counts[BROKEN] += len(broken)
            refused[f"{BROKEN}, such as {broken[0]}"] = len(broken)
        reasons = "; ".join(f"{count} spans {reason}" for reason, count in refused.items())
        return exported(kind, refused.total(), reasons)

    async def unused(self, request: Request) -> Response:
        """Takes metrics and logs, which exporters send beside spans, and keeps none of them."""
        await body_of(request)
        return exported(kind_of(request), 0, "")

    async def runs(self, request: Request) -> Response:
        """Takes runs, one a line: they are in the store once the reply is sent."""
        body = await body_of(request)
        return await while_connected(request, self._runs_in(body))

    async def _runs_in(self, body: bytes) -> Response:
        """Stores the runs of a body, some lines at a time, so that others are answered in between."""
        pieces = _pieces(body)
        accepted, problems, refused = 0, list[str](), list[str]()
        while lines := await asyncio.to_thread(next, pieces, None):
            runs = [line.run for line in lines if line.run is not None]
            errors = await self.rg.add_runs(runs)
            problems += [str(line.problem) for line in lines if line.run is None]
            numbers = {line.run.id: line.number for line in lines if line.run is not None}
            refused += [f"line {numbers[id]}, {error}" for id, error in errors.items()]
            accepted += (taken := len(runs) - len(errors))
            self.lines.update({"accepted": taken, "rejected": len(lines) - taken})
        return JSONResponse(
            {"accepted": accepted, "rejected": [*map(without_surrogates, problems + refused)]}
        )

    async def prune(self, request: Request) -> Response:
        """Returns which passages to give to the model: their places in the list, from 0."""
        asked = await sent(_Prune, request)
        decision = await while_connected(request, self.guard.aprune(asked.query, asked.passages))
        dropped = {one.position - 1: one for one in decision.dropped}
        return JSONResponse({
            "kept": [place for place in range(len(asked.passages)) if place not in dropped],
            "dropped": [
                {"place": place, "reason": one.reason, "utility": one.utility} for place, one in dropped.items()
            ],
            "status": decision.status, "reason": decision.reason, "elapsed_ms": decision.elapsed_ms,
        })  # fmt: skip

    async def advise(self, request: Request) -> Response:
        """Returns what to do after the steps of a run so far."""
        asked = await sent(_Advise, request)
        try:
            advice = await self.rg.advice.aadvise(run_of_data(asked.run), asked.budget_ms)
        except InvalidInput as wrong:
            raise InvalidInput(f"run.{wrong.argument}", wrong.value, wrong.allowed) from wrong
        return JSONResponse(asdict(advice))

    async def feedback(self, request: Request) -> Response:
        """Keeps a thumb and a note on a run."""
        asked = await sent(_Feedback, request)
        kept = await asyncio.to_thread(self.rg.feedback, asked.run, asked.thumb, asked.note)
        if kept:
            return JSONResponse({"kept": True})
        message = f"no run has the id {asked.run[:80]!r}; ids are those of GET / or of `ragguard report`"
        return JSONResponse({"kept": False, "message": message}, 404)

    async def compute_info_gain(self, request: Request) -> Response:
        """Returns what each context added to the belief in the answers of its question."""
        asked = await sent(_InfoGains, request)
        return JSONResponse(await while_connected(request, self.info_gain.of(asked.items)))

    async def healthz(self, request: Request) -> Response:
        """Says that the process answers."""
        return JSONResponse({"status": "healthy"})

    async def readyz(self, request: Request) -> Response:
        """Says whether the models are loaded, and what comes now can be stored."""
        self.ingest.spool.check()
        waits = (
            "the models are being loaded"
            if self._loading
            else self.rg.store.outage or self.ingest.spool.outage
        )
        return JSONResponse({"status": waits or "ready"}, 503 if waits else 200)

    async def metrics(self, request: Request) -> Response:
        """Returns the counts in the format of Prometheus."""
        text, kind = await asyncio.to_thread(self._prometheus.text, request.headers.get("accept", ""))
        return Response(text, media_type=kind)


def _pieces(body: bytes) -> Iterator[list[Line]]:
    """Yields the lines of a body, a few at a time; no piece is empty."""
    lines: list[Line] = []
    size = 0
    time_slice = TimeSlice()
    for number, raw in enumerate(BytesIO(body), 1):
        line = line_of(raw, min(len(raw), LONGEST_LINE), number)
        if line is not None:
            lines.append(line)
            size += len(raw)
        if len(lines) >= _LINES or size >= _LINES_BYTES:
            yield lines
            lines, size = [], 0
        time_slice.rest_if_used()
    if lines:
        yield lines


def application(service: Endpoints, token: str = "") -> ASGIApp:
    """Returns the application, which makes runs of traces while it runs, and closes the RagGuard at its end.

    Args:
        service: The endpoints.
        token: The word that requests must bring, as a bearer or as a password; '' where none is needed.
    """

    @asynccontextmanager
    async def life(_: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as closing:
            closing.callback(service.ingest.spool.close)
            closing.push_async_callback(service.rg.aclose, timeout=_CLOSE_SECONDS)
            closing.push_async_callback(service.info_gain.aclose)
            await service.rg.add_runs([])  # starts the service: what an earlier process left is scored now
            tasks = [asyncio.create_task(work) for work in (service.ingest.run(), service.load())]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    live = LivePage(service.rg.store, "ragguard")
    posts = {
        "/v1/traces": service.traces, "/v1/metrics": service.unused, "/v1/logs": service.unused,
        "/v1/runs": service.runs, "/v1/prune": service.prune, "/v1/advise": service.advise,
        "/v1/feedback": service.feedback, "/compute_info_gain": service.compute_info_gain,
    }  # fmt: skip
    gets = {
        "/": live.page, "/events": live.events, "/healthz": service.healthz, "/health": service.healthz,
        "/readyz": service.readyz, "/metrics": service.metrics,
    }  # fmt: skip
    service.requests.update({(path, status): 0 for path in posts for status in ("200", "503")})
    routes = [Route(path, endpoint, methods=["POST"]) for path, endpoint in posts.items()]
    routes += [Route(path, endpoint, methods=["GET"]) for path, endpoint in gets.items()]
    refusals = {RagguardError: _refused, HTTPException: _refused}
    return Door(Starlette(routes=routes, exception_handlers=refusals, lifespan=life), service.requests, token)


async def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        return failed(request, error.status_code, error.detail, error.headers)
    status, headers = (400, None) if isinstance(error, InvalidInput | AdviceError) else (503, LATER)
    if status == 503:
        NOTICES.warn(f"refused: {error}", f"requests are refused: {error}")
    return failed(request, status, str(error), headers)
