"""Advice as a conditional edge of a LangGraph graph: whether it searches again, or answers with what it has."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Literal

from langchain_core.runnables import RunnableLambda
from langchain_core.runnables.config import ensure_config

from ragguard.advice.loop import MAX_HOPS, MAX_REPHRASES, HopAdvice, LoopAdviser
from ragguard.capture.recorder import BUDGET_MS
from ragguard.errors import InvalidInput
from ragguard.runtime.faults import NOTICES, describe
from ragguard.runtime.per_process import PerProcess

REMEMBERED = 1024
"""How many graph calls are counted at the same time; the oldest go first."""


def advise_edge(
    more: str,
    enough: str,
    *,
    rephrase: str | None = None,
    distrust: str | None = None,
    max_hops: int = MAX_HOPS,
    max_rephrases: int = MAX_REPHRASES,
    hops: Callable[[Any], int] | None = None,
    budget_ms: float = BUDGET_MS,
) -> RunnableLambda[Any, str]:
    """Returns the path of a conditional edge that asks for advice each time it is passed.

        graph.add_conditional_edges("search", advise_edge("search", "answer", max_hops=4))

    It serves sync and async graphs, and stands behind the node in which parallel searches meet. The call must be
    captured by a RagGuard, whose engine judges. Where no advice can be had, the edge leads on to `more`, within
    `max_hops`, and a warning says why.

    Args:
        more: The node, or the key of a path map, that searches again.
        enough: The one that answers: when the advice is `answer`, and after `max_hops` at the latest.
        rephrase: The one that asks in other words, where the last search brought nothing. None: `more`.
        distrust: The one that checks what was read, where it contradicts itself or misleads. None: `more`.
        max_hops: After how many hops the edge leads to `enough`, whatever the advice; 1 or more.
        max_rephrases: After how many hops in a row that brought nothing for their query it leads to `enough`; 1 or
            more.
        hops: A function of the graph's state that returns how many hops it has made, for a graph that keeps count
            itself. None: how often this call of the graph has passed the edge; a call that is resumed counts anew.
        budget_ms: How many milliseconds advice may take. Where that is not enough, the edge leads on.
    """
    ends = {"more": more, "enough": enough, "rephrase": rephrase, "distrust": distrust}
    for name, node in ends.items():
        if not (isinstance(node, str) and node) and not (node is None and name in ("rephrase", "distrust")):
            raise InvalidInput(name, node, "the name of a node")
    if hops is not None and not callable(hops):
        raise InvalidInput("hops", hops, "a function of the graph's state; None: the edge counts")
    adviser, count = LoopAdviser(max_hops, budget_ms, max_rephrases), PerProcess(_PassCount)

    def made(state: Any) -> int:
        if hops is not None:
            try:
                return int(hops(state))
            except Exception as error:  # noqa: BLE001 - the function is the user's
                NOTICES.once(
                    "advise_edge hops", f"hops= of advise_edge failed, so the edge counts: {describe(error)}"
                )
        return count.get().passed()

    def lead(hop: HopAdvice) -> str:
        if hop.enough:
            return enough
        action = "" if hop.advice is None else hop.advice.action
        return {"rephrase": rephrase, "distrust": distrust}.get(action) or more

    def advise(state: Any) -> str:
        return lead(adviser.after(made(state)))

    async def aadvise(state: Any) -> str:
        return lead(await adviser.aafter(made(state)))

    # LangGraph reads from the return type to which nodes an edge may lead.
    advise.__annotations__["return"] = Literal[tuple(dict.fromkeys(one for one in ends.values() if one))]
    return RunnableLambda(advise, aadvise, name="advise_edge")


class _PassCount:
    """Counts in how many of its steps a call of a graph has passed an edge."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: OrderedDict[int, tuple[object, set[object]]] = OrderedDict()
        """Each graph call's own object, as LangGraph makes it, and the call's steps, by the object's identity."""

    def passed(self) -> int:
        """Notes that the current call passes the edge; returns in how many of its steps it has done so."""
        config = ensure_config()
        runtime = config.get("configurable", {}).get("__pregel_runtime")
        call = getattr(runtime, "control", None)
        if call is None:
            return 1
        with self._lock:
            known = self._calls.setdefault(id(call), (call, set()))
            self._calls.move_to_end(id(call))
            known[1].add(config.get("metadata", {}).get("langgraph_step"))
            if len(self._calls) > REMEMBERED:
                self._calls.popitem(last=False)
            return len(known[1])
