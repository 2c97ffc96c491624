"""Records what a guard decided about retrievals that have ended, in whatever framework they were made."""

from __future__ import annotations

from ragguard.capture.decisions import Verdict, about, concerned, merged
from ragguard.capture.recorder import Recorder

TOOL_CALL = "tool_call_id"
"""Metadata key of a step that was made in a tool call: the call's id."""


def guard_decided(
    recorder: Recorder, run_id: str, verdict: Verdict, *, query: str = "", tool_call: str = ""
) -> bool:
    """Adds a guard's decision to the latest retrievals of an open run that found the passages it judged; returns False
    where none did. A decision about a tool call's result can only be about retrievals of that call."""
    recorder.guard_engines.add(verdict.engine)
    ended = [(event.step, decision) for event, decision in recorder.retrievals(run_id)]
    before = {step.id: decision for step, decision in ended}
    steps = [step for step, _ in ended if not tool_call or step.metadata.get(TOOL_CALL) == tool_call]
    # A tool may have rewritten the passages that were retrieved in it.
    chosen = concerned(steps, verdict.judged, query) or (steps[:1] if tool_call else [])
    for step in chosen:
        further = about(verdict, step.candidates, alone=len(chosen) == 1)
        decision = merged(before[step.id] or step.decision, further)
        recorder.step_amended(step.id, run_id, decision.kept, decision)
    return bool(chosen)
