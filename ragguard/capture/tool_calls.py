"""The meaning of a tool call's end, in any framework: it was a retrieval, had retrievals inside, or neither."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ragguard.capture.calls import TOOL
from ragguard.capture.open_runs import Unpack
from ragguard.capture.recorder import Recorder
from ragguard.capture.splitters import Splitter
from ragguard.capture.tool_results import ToolResult
from ragguard.records import Status
from ragguard.runtime.notices import NOTICES

_MOST_NAMES = 1024
"""The most names of tools that have given documents that are remembered."""


@dataclass(slots=True)
class ToolEnd:
    """A call of a tool that ends, and how the framework's adapter records a step of it."""

    name: str
    run_id: str
    begin: Callable[[], str]
    """Begins the call's step, and returns its id."""
    end: Callable[[Any, Unpack | None], None]
    """Ends the step with documents, or with what `Unpack` takes apart."""
    step_id: str = ""
    """The id of the step of a declared tool, which has begun with the call."""
    splitter: Splitter | None = None
    """The splitter of a declared tool."""
    inside: Sequence[str] = ()
    """The ids of the steps that were made in the call."""


def tool_ended(recorder: Recorder, call: ToolEnd, result: ToolResult, status: Status = "error") -> bool:
    """Ends a call of a tool; returns False for one that has nothing to do with a retrieval.

    A declared tool is a retrieval; so is a call that gives documents. An empty list may be anything, and an error as
    well: these are a retrieval where the tool has given documents before. Where a tool fails after a retrieval inside,
    the model got the error and none of the passages. `status` is that of a call which failed.
    """
    split, known = call.splitter, recorder.calls.retrieving
    if split is None and call.inside:
        if result.error is not None and status == "error":
            for step_id in call.inside:
                recorder.step_amended(step_id, call.run_id, error=result.error)
        return True
    if split is None and not result.is_retrieval(known=call.name in known):
        recorder.calls.seen(call.run_id, TOOL, call.name)
        return False
    if result.by_rule:
        NOTICES.once(
            f"tools by rule {call.name}",
            f'tools="auto": what the tool {call.name!r} gave has the shape of a search result, so its calls are '
            f"retrievals. Where they are not, name those that are: tools=[...]. (Logged once a tool)",
        )
    if len(known) < _MOST_NAMES:
        known.add(call.name)
    step_id = call.step_id or call.begin()
    if result.error is not None:
        recorder.step_failed(step_id, result.error, status)
    elif result.documents is not None or split is None:
        call.end(result.documents, None)
    else:
        call.end(result, lambda given: given.split(split))
    return True
