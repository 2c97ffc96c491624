"""Failures of capture: the parts of a run that could not be kept as given, so that scores are missing or less exact."""

from __future__ import annotations

from ragguard.records import GRADE_ERROR, K_ERROR, SPLIT_ERROR, Failure, Run


def capture_failures(run: Run) -> list[Failure]:
    """Returns a failure for each step whose K cannot be right, so that no score which needs K is given, for each
    passage whose grade is none, and for each step whose splitter failed, so that scores are about its whole text."""
    found = [(step, "InvalidInput", step.metadata[K_ERROR]) for step in run.steps if K_ERROR in step.metadata]
    found += [
        (step, "InvalidInput", passage.metadata[GRADE_ERROR])
        for step in run.steps
        for passage in step.candidates or step.passages
        if GRADE_ERROR in passage.metadata
    ]
    found += [
        (
            step,
            "SplitterFailed",
            f"what {step.tool or 'the tool'!r} returned could not be taken apart and is judged as one passage: "
            f"{step.metadata[SPLIT_ERROR]}",
        )
        for step in run.steps
        if SPLIT_ERROR in step.metadata
    ]
    return [
        Failure("capture", error, message, run_id=run.id, step_id=step.id) for step, error, message in found
    ]
