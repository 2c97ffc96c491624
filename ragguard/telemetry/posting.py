"""Posts JSON to a server that may be busy for a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx

from ragguard.runtime.circuit_breaker import RetrySchedule
from ragguard.runtime.faults import describe
from ragguard.text.secret_filter import without_secrets

RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
ATTEMPTS = RetrySchedule(4, first=0.5, longest=8.0, jitter=(1.0, 1.0))


async def post_json(
    client: httpx.AsyncClient,
    path: str,
    data: Mapping[str, Any],
    retry: RetrySchedule = ATTEMPTS,
    params: Mapping[str, str] | None = None,
) -> httpx.Response | str:
    """Returns the server's answer, or, where it took nothing in any attempt, a sentence about the last one."""
    problem = ""
    for attempt in range(retry.attempts):
        if attempt:
            await asyncio.sleep(retry.wait(attempt))
        try:
            answer = await client.post(path, params=params, json=data)
        except httpx.TimeoutException:
            problem = "no answer in time"
        except httpx.TransportError as error:
            problem = describe(error)
        else:
            if answer.is_success:
                return answer
            problem = f"HTTP {answer.status_code}: {without_secrets(answer.text[:4000])[:200]}"
            if answer.status_code not in RETRIED:
                break
    return problem
