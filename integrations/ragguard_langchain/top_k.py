"""Finds out how many documents a retriever of LangChain is asked for. No event of LangChain says so, but the
retriever is on the caller's stack while its call starts."""

from __future__ import annotations

import sys
from types import FrameType

from langchain_core.retrievers import BaseRetriever

from ragguard.capture.snapshot import top_k_in

_SYNC, _ASYNC = BaseRetriever.invoke.__code__, BaseRetriever.ainvoke.__code__
_LEAST_FRAMES = 4
"""The fewest frames between the retriever and `top_k_of_caller`: those of `invoke`; `ainvoke` has one more. The search
begins there, since Python makes an object of each frame that is visited."""
_MOST_FRAMES = 9
"""The most frames between the two, where a tracer wraps the functions in between."""


def top_k_of_caller() -> int | None:
    """Returns the `k` of the call that is starting, else `search_kwargs["k"]` or `k` of its retriever; None where there
    is none of these."""
    frame = _frame_of_call()
    if frame is None:
        return None
    there = frame.f_locals
    arguments, fields = there["kwargs"], there["self"].__dict__
    if "k" in arguments:
        return top_k_in(arguments["k"])
    # A field that is not there is not looked up as an attribute: pydantic takes microseconds to say so.
    if type(settings := fields.get("search_kwargs")) is dict and "k" in settings:
        return top_k_in(settings["k"])
    return top_k_in(fields.get("k"))


def _frame_of_call() -> FrameType | None:
    """Returns the frame of the retriever's `invoke` or `ainvoke` that called the hook at work; None outside of one."""
    try:
        frame: FrameType | None = sys._getframe(_LEAST_FRAMES + 1)
    except ValueError:  # the stack has fewer frames
        return None
    for _ in range(_LEAST_FRAMES, _MOST_FRAMES + 1):
        if frame is None or frame.f_code is _SYNC or frame.f_code is _ASYNC:
            return frame
        frame = frame.f_back
    return None
