"""The asyncio event loop of the caller; any other kind of loop is refused in one sentence."""

from __future__ import annotations

import asyncio

from ragguard.errors import WrongEventLoop


def running_loop(call: str) -> asyncio.AbstractEventLoop:
    """Returns the running asyncio loop; raises WrongEventLoop where the caller runs on another one, such as trio's."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        pass
    raise WrongEventLoop(
        f"{call} needs asyncio's event loop, and none runs here: trio's is not supported. Call the sync form in a "
        "thread (await trio.to_thread.run_sync(rg.flush)), or run this call on a loop of its own there "
        "(trio.to_thread.run_sync(lambda: asyncio.run(...)))"
    )
