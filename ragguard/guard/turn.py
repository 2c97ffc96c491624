"""Whose turn it is to compute on an event loop.

Hundreds of guards may be called at once on one loop, and each writes prompts for a while before it waits for the
engine. One at a time, and a little at a time, keeps the loop free for what must not be late: the budgets.
"""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary

_TURNS: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


def turn() -> asyncio.Lock:
    """The one turn of the running loop: `async with turn(): …`."""
    return _TURNS.setdefault(asyncio.get_running_loop(), asyncio.Lock())
