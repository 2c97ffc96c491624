"""The calls of frameworks around the code at hand. Each integration registers here how to find its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from ragguard.capture.events import UNNAMED, RunNames
from ragguard.capture.recorder import Recorder
from ragguard.capture.turns import TurnKey


@dataclass(frozen=True, slots=True)
class CurrentCall:
    """The call at work and its run, in which a retrieval of plain code inside the call is recorded."""

    recorder: Recorder
    run_id: str
    tool: str = ""
    turn: TurnKey = ()
    """The parallel branches that the call is in."""
    within: str = ""
    """The id of the retrieval that the call itself is, or that the call is a part of."""
    metadata: Mapping[str, Any] | None = None
    names: RunNames = UNNAMED
    begin: Callable[[str], None] = lambda query: None
    """Opens the run, which frameworks do with the first retrieval; takes the query."""
    ended: Callable[[str], None] = lambda step_id: None
    """Takes in a retrieval that has ended, so that the tool's output is not taken for another one."""


FindCall: TypeAlias = Callable[[], CurrentCall | None]
frameworks: dict[str, FindCall] = {}
"""The function with which each framework's integration finds the call at work, by the framework's name."""


def framework_run() -> str:
    """Returns the id of the run that a framework's call around the caller belongs to; '' outside of any such call."""
    call = framework_call() if frameworks else None
    return "" if call is None else call.run_id


def framework_call() -> CurrentCall | None:
    """Returns the call of a framework around the caller; None outside of any."""
    for find in list(frameworks.values()):
        try:
            call = find()
        except Exception:  # noqa: BLE001 - a framework that has changed inside must not break the host
            continue
        if call is not None:
            return call
    return None
