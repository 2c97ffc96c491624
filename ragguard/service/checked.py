"""What a user hands over at run time, checked before it is used: runs made by hand, timeouts."""

from __future__ import annotations

import math

from ragguard.errors import InvalidInput
from ragguard.records import Passage, RetrievalStep, Run


def checked(run: Run) -> Run:
    """The run, if it can be scored; says what is wrong with it otherwise."""
    if not isinstance(run, Run):
        raise InvalidInput("run", run, "a Run, or what `rg.run(...)` gives")
    if not isinstance(run.question, str):
        raise InvalidInput("run.question", run.question, "a text; '' where there is none")
    if not isinstance(run.steps, list | tuple):
        raise InvalidInput("run.steps", run.steps, "a list of RetrievalSteps")
    for at, step in enumerate(run.steps):
        if not isinstance(step, RetrievalStep):
            raise InvalidInput(f"run.steps[{at}]", step, "a RetrievalStep")
        for name, passages in (("passages", step.passages), ("candidates", step.candidates)):
            _check_passages(f"run.steps[{at}].{name}", passages)
    return run


def _check_passages(where: str, passages: object) -> None:
    if not isinstance(passages, list | tuple):
        raise InvalidInput(where, passages, "a list of Passages")
    for at, passage in enumerate(passages):
        if not isinstance(passage, Passage) or not isinstance(passage.text, str):
            raise InvalidInput(f"{where}[{at}]", passage, "a Passage with a text")


LONGEST = 1e8
"""Seconds, about three years: what the system's own waits can take, and as good as no limit."""


def seconds(name: str, timeout: object) -> float:
    """A time to wait; infinity is allowed and means no limit."""
    if not isinstance(timeout, int | float) or math.isnan(timeout) or timeout < 0:
        raise InvalidInput(name, timeout, 'a number of seconds, 0 or more; float("inf") for no limit')
    return min(float(timeout), LONGEST)
