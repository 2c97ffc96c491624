"""How many documents a retriever of LangChain is asked for. No event of LangChain says so, and the retriever itself is
on the caller's stack while it starts."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from langchain_core.retrievers import BaseRetriever

from ragguard.capture.snapshot import top_k_in

_STARTS = {BaseRetriever.invoke.__code__, BaseRetriever.ainvoke.__code__}
_FRAMES_OF_A_START = 8
"""Between a handler and the retriever that is starting there are fewer frames."""


def top_k_of_caller() -> int | None:
    """Returns the `k` of the call that is starting, else `search_kwargs["k"]` or `k` of its retriever; None where there
    is none of these."""
    frame = sys._getframe(1).f_back
    for _ in range(_FRAMES_OF_A_START):
        if frame is None:
            return None
        if frame.f_code in _STARTS:
            there = frame.f_locals
            return _top_k(there.get("self"), there.get("kwargs"))
        frame = frame.f_back
    return None


def _top_k(retriever: Any, settings: Any) -> int | None:
    for given in (settings, getattr(retriever, "search_kwargs", None)):
        if isinstance(given, Mapping) and "k" in given:
            return top_k_in(given["k"])
    return top_k_in(getattr(retriever, "k", None))
