"""Blocking work beside an event loop, in threads that a process does not wait for at its end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable


async def in_daemon_thread(work: Callable[[], object]) -> None:
    """Waits for `work` in a thread of its own and raises what it raises; a cancelled wait leaves the thread running.

    The threads of `asyncio.to_thread` are joined when the process ends, which may then take as long as the work.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def finish(error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def run() -> None:
        error: BaseException | None = None
        try:
            work()
        except BaseException as raised:  # noqa: BLE001 - raised where it is awaited
            error = raised
        try:
            loop.call_soon_threadsafe(finish, error)
        except RuntimeError:  # the loop is closed, and nobody waits any more
            return

    threading.Thread(target=run, name="ragguard-blocking", daemon=True).start()
    await done
