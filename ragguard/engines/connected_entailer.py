"""`connect_entailer`: makes an entailer ready for many callers, given a word, an address or an Entailer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from ragguard.engines.base import EngineInfo
from ragguard.engines.entailer import Entailer, Entailments, Known, Pair, entail_distinct
from ragguard.engines.foreign import ForeignCalls
from ragguard.engines.layers.budget import Account
from ragguard.errors import InvalidInput, UnknownName
from ragguard.runtime.per_process import PerProcess
from ragguard.text.secret_filter import without_secrets

T = TypeVar("T")

MOST_PAIRS = 20_000
"""The pairs that are remembered; beyond them all are forgotten."""
SCHEMES = (
    "http(s)://HOST:PORT/v1[#MODEL] (vLLM's /classify), hf:MODEL_OR_FOLDER (a cross-encoder), or an Entailer"
)


def connect_entailer(entailer: str | Entailer, account: Account | None = None) -> ConnectedEntailer:
    """Returns an NLI model to compare answers with. Nothing is asked or loaded before its first use.

    Args:
        entailer: The address of a vLLM server (`http://HOST:PORT/v1`, optionally with `#MODEL`), `hf:MODEL` or
            `hf:FOLDER`, or an Entailer.
        account: What it may spend, shared with engines. None: no limit.
    """
    return ConnectedEntailer(entailer, account)


def open_entailer(entailer: str | Entailer) -> Entailer:
    """Returns the entailer alone."""
    if not isinstance(entailer, str):
        if not isinstance(entailer, Entailer):
            raise InvalidInput("entailer", entailer, SCHEMES)
        return entailer
    from ragguard.engines.nli_models import ClassifyEntailer, CrossEncoder

    scheme, _, rest = entailer.strip().partition(":")
    if scheme in ("http", "https"):
        return ClassifyEntailer(entailer)
    if scheme == "hf" and rest:
        return CrossEncoder(rest)
    raise UnknownName("entailer", without_secrets(entailer), SCHEMES)


class ConnectedEntailer:
    """A wrapper around an entailer, with the arguments of `connect_entailer`: asks about each pair once, and refuses to
    once what may be spent is spent. Opens the other entailer anew in each process, and calls one of a user's own on a
    thread of its own.
    """

    def __init__(self, entailer: str | Entailer, account: Account | None = None) -> None:
        self._entailer = PerProcess(lambda: open_entailer(entailer))
        kind = type(self._entailer.get())
        self._calls = PerProcess(lambda: ForeignCalls(f"the entailer {kind.__name__}"))
        self._is_foreign = kind.__module__.partition(".")[0] != "ragguard"
        self._known = PerProcess[dict[Pair, Known]](dict)
        self._account = account or Account()

    async def entail(
        self, pairs: Sequence[Pair], *, deadline: float | None = None, priority: int = 0
    ) -> Entailments:
        """Returns one row for each pair; asks about those that are not known. Raises `BudgetExceeded` where a
        limit is reached."""
        known = self._known.get()
        if len(known) > MOST_PAIRS:
            known.clear()
        return await entail_distinct(pairs, partial(self._ask, deadline=deadline, priority=priority), known)

    async def info(self) -> EngineInfo:
        """Returns the description of the entailer; the requests for it are counted."""
        with self._account.calling(0):
            return await self._called(lambda entailer: entailer.info())

    async def aclose(self) -> None:
        """Closes the entailer, and ends its thread."""
        await self._called(lambda entailer: entailer.aclose())
        if self._is_foreign:
            self._calls.get().stop()

    async def _called(self, call: Callable[[Entailer], Awaitable[T]]) -> T:
        """Returns the result of a call of the entailer, made on the thread of one of a user's own."""
        entailer = self._entailer.get()
        return await (
            self._calls.get().result(lambda: call(entailer)) if self._is_foreign else call(entailer)
        )

    async def _ask(self, pairs: Sequence[Pair], *, deadline: float | None, priority: int) -> Entailments:
        texts = "".join(pair.question * 2 + pair.premise + pair.hypothesis for pair in pairs)
        with self._account.calling() as call:
            reply = await self._called(
                lambda entailer: entailer.entail(pairs, deadline=deadline, priority=priority)
            )
            call.settle(reply.usage, len(texts.encode("utf-8", "replace")))
            return reply
