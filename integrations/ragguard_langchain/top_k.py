"""How many documents a retriever of LangChain is asked for. No event of LangChain says so, and the retriever itself is
on the caller's stack while it starts."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from langchain_core.retrievers import BaseRetriever

from ragguard.capture.snapshot import top_k_in

_SYNC, _ASYNC = BaseRetriever.invoke.__code__, BaseRetriever.ainvoke.__code__
_FRAMES_OF_A_START = 8
"""Between a handler and the retriever that is starting there are fewer frames."""


def top_k_of_caller() -> int | None:
    """Returns the `k` of the call that is starting, else `search_kwargs["k"]` or `k` of its retriever; None where there
    is none of these."""
    frame = sys._getframe(1).f_back
    for _ in range(_FRAMES_OF_A_START):
        if frame is None:
            return None
        code = frame.f_code
        if code is _SYNC or code is _ASYNC:  # a set would hash the code, which takes ten times as long
            there = frame.f_locals
            return _top_k(there.get("kwargs"), getattr(there.get("self"), "__dict__", {}))
        frame = frame.f_back
    return None


def _top_k(settings: Any, fields: Mapping[str, Any]) -> int | None:
    """Returns the number from the arguments of a call and the fields of its retriever. A field that is not there is not
    looked up as an attribute: pydantic takes microseconds to say so."""
    for given in (settings, fields.get("search_kwargs")):
        if type(given) is dict and "k" in given:
            return top_k_in(given["k"])
    return top_k_in(fields.get("k"))
