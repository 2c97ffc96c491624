"""Pulls pages of spans from the API of a server that keeps traces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from ragguard.errors import InvalidInput, RagguardError
from ragguard.runtime.faults import describe

_ATTEMPTS = 4
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class PullError(RagguardError):
    """Traces could not be pulled from a server."""


def since_time(given: str) -> datetime:
    """Returns the time that `30m`, `24h`, `7d`, `2w`, or a date or time of ISO 8601 names; raises InvalidInput for
    anything else."""
    try:
        if given[-1:] in _UNITS:
            return datetime.now(UTC) - timedelta(**{_UNITS[given[-1]]: float(given[:-1])})
        at = datetime.fromisoformat(given)
    except (ValueError, OverflowError) as error:
        raise InvalidInput("--since", given, "30m, 24h, 7d, or a time such as 2026-11-25T10:00") from error
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def pages(
    client: httpx.Client,
    path: str,
    asked: Mapping[str, str],
    cursor: Callable[[Any], str | None],
    what_to_do: str,
) -> Iterator[Any]:
    """Yields the pages of a list; raises PullError where the server does not give one.

    Args:
        client: A client of the server.
        path: The path of the list.
        asked: The parameters of each request.
        cursor: Returns the cursor of the next page from a page; None after the last one.
        what_to_do: The end of the error's sentence.
    """
    at: dict[str, str] = {}
    while True:
        page = _page(client, path, {**asked, **at}, what_to_do)
        yield page
        following = cursor(page)
        if not following:
            return
        at = {"cursor": following}


def _page(client: httpx.Client, path: str, asked: Mapping[str, str], what_to_do: str) -> Any:
    problem = ""
    for _ in range(_ATTEMPTS):
        try:
            answer = client.get(path, params=asked)
            if answer.is_success:
                return answer.json()
            problem = f"HTTP {answer.status_code}: {answer.text[:200]}"
            if answer.status_code < 500:
                break
        except (httpx.TransportError, ValueError) as error:
            problem = describe(error)
    raise PullError(f"spans were asked of {client.base_url}{path}; {problem}. {what_to_do}")
