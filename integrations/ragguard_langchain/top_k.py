"""How many documents a retriever of LangChain is asked for. No event of LangChain says so, and the retriever itself is
on the caller's stack while it starts."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any

from langchain_core.retrievers import BaseRetriever

from ragguard.capture.snapshot import top_k_in

_SYNC, _ASYNC = BaseRetriever.invoke.__code__, BaseRetriever.ainvoke.__code__
_USUAL_DEPTHS = (4, 5)
"""How many frames the retriever's `invoke`, and its `ainvoke`, are away from `top_k_of_caller` where no other program
wraps a function in between. Python makes an object of each frame that is visited, so these are looked at first."""
_MOST_FRAMES = 9
"""The most frames between the retriever and `top_k_of_caller`, also where a tracer wraps the functions in between."""


def top_k_of_caller() -> int | None:
    """Returns the `k` of the call that is starting, else `search_kwargs["k"]` or `k` of its retriever; None where there
    is none of these."""
    frame = _frame_of_call()
    if frame is None:
        return None
    there = frame.f_locals
    return _top_k(there.get("kwargs"), getattr(there.get("self"), "__dict__", {}))


def _frame_of_call() -> FrameType | None:
    """Returns the frame of the retriever's `invoke` or `ainvoke` that called the hook at work; None outside of one."""
    try:
        for depth in _USUAL_DEPTHS:
            frame = sys._getframe(depth + 1)
            if (
                frame.f_code is _SYNC or frame.f_code is _ASYNC
            ):  # a set would hash the code, which takes ten times as long
                return frame
    except ValueError:  # fewer frames than that
        return None
    walked = sys._getframe(2).f_back
    for _ in range(_MOST_FRAMES):
        if walked is None or walked.f_code is _SYNC or walked.f_code is _ASYNC:
            return walked
        walked = walked.f_back
    return None


def _top_k(settings: Any, fields: Mapping[str, Any]) -> int | None:
    """Returns the number from the arguments of a call and the fields of its retriever. A field that is not there is not
    looked up as an attribute: pydantic takes microseconds to say so."""
    for given in (settings, fields.get("search_kwargs")):
        if type(given) is dict and "k" in given:
            return top_k_in(given["k"])
    return top_k_in(fields.get("k"))
