"""An HTTP server in a process of its own with a small model, which is killed and started again on the same port."""

from __future__ import annotations

import subprocess
from contextlib import suppress

from support.program import command, environment

_SERVER = """
import asyncio, sys
from support.fake_model import FakeModel
from support.misbehaving_server import MisbehavingServer

async def serve():
    server = MisbehavingServer(FakeModel().handle, int(sys.argv[1]))
    await server.start()
    print(server.url, flush=True)
    await asyncio.Event().wait()

asyncio.run(serve())
"""


class ModelProcess:
    """The process of a server; `url` is its address, also of the one that is started next."""

    def __init__(self) -> None:
        self.url = ""
        self._process: subprocess.Popen[str] | None = None
        self.start()

    def start(self) -> None:
        """Starts the server; returns once it answers."""
        port = self.url.rpartition(":")[2].removesuffix("/v1") or 0
        process = subprocess.Popen(
            command(_SERVER, port), env=environment(), stdout=subprocess.PIPE, text=True
        )
        self._process = process
        assert process.stdout is not None
        self.url = process.stdout.readline().strip()
        assert self.url, "the server did not start"

    def kill(self) -> None:
        """Kills the server, with all its connections."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            self._process.communicate()
            self._process = None
