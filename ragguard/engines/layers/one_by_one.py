"""OneByOne: each prompt is a call of its own, for servers that take one conversation a request.

So what a layer below does, it does for one prompt: a refused prompt is asked again alone, and the others need not
be paid for twice.
"""

from __future__ import annotations

import time
from functools import partial

from ragguard.engines.base import Engine
from ragguard.engines.requests.base import R, Request
from ragguard.engines.requests.verbs import Layer, put
from ragguard.runtime.parallel import in_parallel


class OneByOne(Layer):
    """Splits requests into single prompts, `at_once` of them in flight together."""

    def __init__(self, engine: Engine, at_once: int = 16) -> None:
        super().__init__(engine)
        self._at_once = at_once

    async def send(self, request: Request[R]) -> R:
        """Sends each prompt by itself."""
        if len(request.prompts) < 2:
            return await put(self._engine, request)
        began = time.monotonic()
        calls = [partial(put, self._engine, request.about([prompt])) for prompt in request.prompts]
        return request.gathered(await in_parallel(calls, self._at_once), time.monotonic() - began)
