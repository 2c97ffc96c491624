"""Finds the LlamaIndex call at work around plain code, so that `ragguard.retrieved` finds its run."""

from __future__ import annotations

from functools import partial

from ragguard.capture.context import CurrentCall, frameworks
from ragguard_llamaindex.calls import Call, note_step
from ragguard_llamaindex.deliveries import about, retrieves
from ragguard_llamaindex.instrumentation import attached
from ragguard_llamaindex.kinds import Kind
from ragguard_llamaindex.spans import Spans


def current_call() -> CurrentCall | None:
    """Returns the innermost captured call around the caller; None outside of any."""
    for handler in attached():
        call = handler.spans.here()
        if call is not None and call.kind is not Kind.IGNORED:
            return CurrentCall(
                handler.spans.recorder, call.run.id, call.tool, call.turn, within=call.step_id, names=call.run.names,
                metadata=about(call), begin=partial(_begin, handler.spans, call), ended=partial(_ended, call),
            )  # fmt: skip
    return None


def _begin(spans: Spans, call: Call, query: str) -> None:
    spans.runs.begin(call.run)
    retrieves(call)


def _ended(call: Call, step_id: str) -> None:
    if not call.step_id:
        note_step(call, step_id)


frameworks["llama-index"] = current_call
