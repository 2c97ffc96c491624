"""Scores as Langfuse keeps them: on the trace for those of a run, on the observation for those of a step."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import httpx

from ragguard.errors import InvalidInput, RagguardError
from ragguard.records import ScoredRun
from ragguard.telemetry.attributes import identity, score_name
from ragguard.telemetry.posting import post_json
from ragguard.telemetry.values import identifier, text
from ragguard.text.credentials import checked_key

_PATH = "/api/public/ingestion"
_AT_ONCE = 100
_COMMENT = 2000


class LangfuseError(RagguardError):
    """Langfuse did not take the scores."""


class LangfuseScores:
    """Posts the scores of runs that were read from a Langfuse. A score's id is made of what it is about, so that one
    that is sent again replaces the earlier one. Scores of passages have no place in Langfuse, and are not sent.

    Args:
        url: The server's address. The project's keys are those in LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY.
        transport: An httpx transport in place of the usual one.
    """

    def __init__(self, url: str, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self.url, auth = langfuse_access(url)
        self._client = httpx.AsyncClient(base_url=self.url, timeout=10, transport=transport, auth=auth)

    async def submit(self, scored: ScoredRun) -> None:
        """Posts the scores of a run and its steps."""
        if scored.run.trace is None:
            raise LangfuseError(f"the ids of the run {scored.run.id!r} are not OpenTelemetry's")
        events = list(_events(scored, scored.run.trace.trace_id))
        for start in range(0, len(events), _AT_ONCE):
            answer = await post_json(self._client, _PATH, {"batch": events[start : start + _AT_ONCE]})
            problem = answer if isinstance(answer, str) else answer.json().get("errors")
            if problem:
                raise LangfuseError(f"scores were posted to {self.url}{_PATH}; {str(problem)[:300]}")

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
