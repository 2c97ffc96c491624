"""Closes connections on which no request comes, so that silent clients take no room, and cancels requests that take
long once the server ends."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

IDLE_SECONDS = 30.0
"""The most seconds from a connection, or from the end of a reply, to the end of the next request's head."""

END_SECONDS = 1.0
"""The seconds that requests may still take once the server ends."""


class EndingServer(uvicorn.Server):
    """uvicorn's server, which gives up requests that take long once it ends; the application answers them."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends the server."""
        giving_up = asyncio.get_running_loop().call_later(END_SECONDS, self._give_up)
        await super().shutdown(sockets)
        giving_up.cancel()

    def _give_up(self) -> None:
        for task in self.server_state.tasks:
            task.cancel()


class ImpatientProtocol(H11Protocol):
    """uvicorn's protocol, which by itself waits for the head of a request for ever."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._looking: asyncio.TimerHandle | None = None
        self._answered: object = None
        """The request that was answered when the connection was last looked at; None before the first."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins to look at the connection."""
        super().connection_made(transport)
        self._looking = self.loop.call_later(IDLE_SECONDS, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends looking at the connection."""
        if self._looking is not None:
            self._looking.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        """Closes the connection if no request came since the last look."""
        waits = self.cycle is None or self.cycle.response_complete
        if waits and self.cycle is self._answered:
            self.transport.close()
            return
        self._answered = self.cycle
        self._looking = self.loop.call_later(IDLE_SECONDS, self._look)
