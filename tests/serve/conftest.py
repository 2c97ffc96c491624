"""The application in this process, with a clock of the test's."""

from __future__ import annotations

from contextlib import asynccontextmanager

import httpx
import pytest

from ragguard import DistractorGuard, RagGuard
from ragguard.serve.app import Endpoints, InfoGain, application
from ragguard.serve.ingest import Ingest
from ragguard.traces.spool import Spool


@pytest.fixture
def client():
    """Makes a client of an application; `client.ingest` makes runs of traces when the test says so."""

    @asynccontextmanager
    async def made(token="", scorers=("utility",)):
        async with RagGuard("nano", store=None, scorers=scorers) as rg:
            clock = [1000.0]
            ingest = Ingest(rg, Spool(), settle=5, quiet=60, live=bool(scorers), clock=lambda: clock[0])
            gain = InfoGain(rg.engine)
            endpoints = Endpoints(rg, ingest, DistractorGuard(rg.engine, budget_ms=60_000), gain)
            transport = httpx.ASGITransport(application(endpoints, token))
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as asked:
                asked.rg, asked.ingest, asked.clock, asked.endpoints = rg, ingest, clock, endpoints
                yield asked
            await gain.aclose()
            ingest.spool.close()  # the client starts no lifespan, in which the application would do it

    return made
