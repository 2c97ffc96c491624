"""The report's page over the store as it grows, and the events at which a browser loads it anew."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse

from ragguard.analysis.digest import MISLEADS
from ragguard.analysis.page import write_html
from ragguard.storage.sqlite.store import Store

_EVERY = 2.0
"""Seconds between two looks at the store for each page that is open."""
_EMPTY = """<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="2"><title>ragguard</title>
<p>No runs yet. Send spans to /v1/traces or run lines to /v1/runs; this page looks again by itself.</p>"""


class LivePage:
    """The page, written once for each state of the store that somebody looks at."""

    def __init__(self, store: Store, title: str) -> None:
        self._store, self._title = store, title
        self._written = "", ""
        self._writing = asyncio.Lock()

    async def page(self, request: Request) -> Response:
        """Returns the page."""
        async with self._writing:
            state = await asyncio.to_thread(self._state)
            if self._written[0] != state:
                self._written = state, await asyncio.to_thread(self._write, state)
        return HTMLResponse(self._written[1], headers={"cache-control": "no-store"})

    async def events(self, request: Request) -> Response:
        """Sends an event once the store is no longer as it was when the page was written."""
        seen = request.query_params.get("since", "")

        async def changes() -> AsyncIterator[str]:
            while True:
                await asyncio.sleep(_EVERY)
                changed = await asyncio.to_thread(self._state) != seen
                yield "data: changed\n\n" if changed else ": still\n\n"
                if changed:
                    return

        return StreamingResponse(
            changes(), media_type="text/event-stream", headers={"cache-control": "no-store"}
        )

    def _state(self) -> str:
        return f"{self._store.run_count()}-{sum(self._store.counts.values())}"

    def _write(self, state: str) -> str:
        if not self._store.run_count():
            return _EMPTY
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "page.html")
            write_html(self._store.overviews(MISLEADS), path, self._title, events=f"events?since={state}")
            return path.read_text(encoding="utf-8")
