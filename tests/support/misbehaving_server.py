"""An HTTP server on loopback that does exactly what a test tells it, faults included.

A handler sees each request and gives a `Reply`; a script of replies goes first, one for each request.
It can be late, slow, cut off, wrong, or gone: `stop()` and `start()` on the same port are a restart.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Request:
    """A request as it arrived at the server."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""
    query: str = ""

    @property
    def json(self) -> Any:
        """The body, read."""
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    """A reply of the server, and the faults with which it is sent."""

    body: Any = None
    """JSON data, or text or bytes as they stand."""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    wait_s: float = 0.0
    """The wait before the first byte."""
    drip_s: float = 0.0
    """The wait between the pieces of the body, of which there are eight."""
    reset_after: int | None = None
    """Breaks the connection off after so many bytes of the body; −1: before the first byte."""

    @property
    def payload(self) -> bytes:
        """The body's bytes."""
        if isinstance(self.body, bytes):
            return self.body
        return self.body.encode() if isinstance(self.body, str) else json.dumps(self.body).encode()


Handler = Callable[[Request], Reply]


def not_found(request: Request) -> Reply:
    """Returns the reply of a server that has no paths."""
    return Reply({"detail": "Not Found"}, 404)


class MisbehavingServer:
    """`async with MisbehavingServer(handler) as server:` then `server.url`, `server.requests`, `server.script`."""

    def __init__(self, handler: Handler = not_found, port: int = 0) -> None:
        self.handler = handler
        self.requests: list[Request] = []
        self.gate = asyncio.Event()
        """Replies wait while it is not set."""
        self.gate.set()
        self._script: deque[tuple[str, Reply]] = deque()
        self._port = port
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @property
    def url(self) -> str:
        """The base address, `/v1` included."""
        return f"http://127.0.0.1:{self._port}/v1"

    def script(self, replies: Iterable[Reply], path: str = "") -> None:
        """The next requests to a path that ends so get these, one each, before the handler is asked again."""
        self._script.extend((path, reply) for reply in replies)

    def paths(self, ending: str = "") -> list[Request]:
        """The requests to paths that end so, in order."""
        return [request for request in self.requests if request.path.endswith(ending)]

    async def start(self) -> None:
        """Listens; on the same port as before, if there was one."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Goes away at once, with all its connections."""
        if self._server:
            self._server.close()
            serving = list(self._open)
            for task, writer in self._open.items():
                writer.transport.abort()
                task.cancel()
            await asyncio.gather(*serving, return_exceptions=True)
            await self._server.wait_closed()
            self._server = None

    async def __aenter__(self) -> MisbehavingServer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # In a task of our own: asyncio complains of its own ones when they are cancelled.
        task = asyncio.create_task(self._serve(reader, writer))
        self._open[task] = writer
        task.add_done_callback(self._open.pop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while request := await read_request(reader):
                self.requests.append(request)
                if not await self._answer(writer, self._reply(request)):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # The client went away, as some tests want it to.
        finally:
            writer.close()

    def _reply(self, request: Request) -> Reply:
        for index, (path, reply) in enumerate(self._script):
            if request.path.endswith(path):
                del self._script[index]
                return reply
        return self.handler(request)

    async def _answer(self, writer: asyncio.StreamWriter, reply: Reply) -> bool:
        if reply.wait_s:
            await asyncio.sleep(reply.wait_s)
        await self.gate.wait()
        if reply.reset_after == -1:
            writer.transport.abort()
            return False
        payload = reply.payload
        headers = {"content-type": "application/json", "content-length": str(len(payload)), **reply.headers}
        head = f"HTTP/1.1 {reply.status} Status\r\n" + "".join(f"{k}: {v}\r\n" for k, v in headers.items())
        writer.write(head.encode() + b"\r\n")
        if reply.reset_after is not None:
            writer.write(payload[: reply.reset_after])
            await writer.drain()
            writer.transport.abort()
            return False
        size = len(payload) if not reply.drip_s else max(1, len(payload) // 8)
        for start in range(0, len(payload), max(1, size)):
            writer.write(payload[start : start + size])
            await writer.drain()
            if reply.drip_s:
                await asyncio.sleep(reply.drip_s)
        return True


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    """Returns the next request of a connection; None where it ended."""
    line = await reader.readline()
    if not line:
        return None
    method, target, _ = line.decode().split(" ", 2)
    path, _, query = target.partition("?")
    headers = {}
    while (header := (await reader.readline()).decode().strip()) != "":
        name, _, value = header.partition(":")
        headers[name.lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, path, headers, body, query)


@asynccontextmanager
async def engine_on(handler: Handler, make: Callable[..., Any], **settings: Any) -> AsyncIterator[Any]:
    """Yields a server and an engine on it, which `make` makes of the server's address."""
    async with MisbehavingServer(handler) as server, aclosing(make(server.url, **settings)) as engine:
        yield server, engine


@contextmanager
def serving(handler: Handler) -> Iterator[str]:
    """Yields the address of a server that runs in a thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = MisbehavingServer(handler)
    asyncio.run_coroutine_threadsafe(server.start(), loop).result(10)
    try:
        yield server.url
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
