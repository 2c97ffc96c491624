"""Records retrievals of plain code as steps of the run of the call at work; errors become the recorder's faults.

Each framework's integration registers here how to find its own call around the code at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import index
from typing import Any, SupportsIndex, TypeAlias, TypeVar

from ragguard.capture.decisions import Verdict, about
from ragguard.capture.enclosing import is_paused
from ragguard.capture.events import CALLER_ID, UNNAMED, RunNames, TurnKey
from ragguard.capture.recorder import CapturedRun, Recorder
from ragguard.capture.snapshot import metadata_of, passages_of, text_in, text_of
from ragguard.errors import AdviceError
from ragguard.records import Advice, Decision, Status, new_id
from ragguard.runtime.faults import FAULTS, NOTICES

T = TypeVar("T")


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


_LOOKED_AT = 16
"""The number of the latest retrievals of a run among which that of a guard's decision is looked for."""


def record_step(
    call: CurrentCall, query: str, passages: object, *, candidates: object = None, k: object = None, tool: str = "",
    turn: int | None = None, started_ns: int = 0, decision: Decision | None = None,
    metadata: Mapping[str, Any] | None = None, id: str = "",
) -> str:  # fmt: skip
    """Records a retrieval that has ended, and returns the step's id."""
    step_id = start_step(call, query, tool, turn, started_ns=started_ns, id=id)
    end_step(call, step_id, query, passages, candidates=candidates, decision=decision, metadata=metadata, k=k)
    return step_id


def record_failure(
    call: CurrentCall, query: str, error: object, *, status: Status = "error", tool: str = "",
    turn: int | None = None,
) -> str:  # fmt: skip
    """Records a retrieval that gave nothing, and returns the step's id."""
    if not isinstance(error, (BaseException, str)):
        _warn_of_type("error", error, "an exception or a string", "The step has its text as the error")
        error = text_in(error)
    step_id = start_step(call, query, tool, turn)
    call.recorder.step_failed(step_id, error, status)
    return step_id


def start_step(
    call: CurrentCall, query: str, tool: str, turn: int | None = None, *, started_ns: int = 0, id: str = "",
    name: str = "", top_k: int | None = None,
) -> str:  # fmt: skip
    """Opens a step in the run and the turn of the current call; returns the step's id. An `id` that the application
    gives stands beside it, in the step's metadata."""
    step_id, caller_id, metadata = new_id(), text_in(id), call.metadata
    try:
        asked, other_kind = text_of(query)
        if other_kind:
            _warn_of_type("query", query, "a string", "The step has no query, and the run's question counts")
        call.begin(asked)
        if not call.recorder.knows(call.run_id):
            came_late(call, "a retrieval")
            return step_id
        if caller_id:
            metadata = {**(metadata or {}), CALLER_ID: caller_id}
        number = _turn(turn)
        call.recorder.step_started(
            step_id, call.run_id, asked, within=call.within, tool=text_in(tool) or call.tool, name=name,
            turn=call.turn if number is None else number, metadata=metadata,
            started_ns=started_ns if type(started_ns) is int else 0, top_k=top_k,
        )  # fmt: skip
    except FAULTS as error:
        call.recorder.faults.note("retrieved", error)
    return step_id


def end_step(
    call: CurrentCall, step_id: str, query: str, documents: object, *, candidates: object = None,
    decision: Decision | None = None, metadata: Mapping[str, Any] | None = None, k: object = None,
) -> None:  # fmt: skip
    """Closes the step with what was retrieved."""
    recorder = call.recorder
    try:
        if not recorder.wants(step_id):
            return
        if documents is None:
            _warn_of_type("passages", None, "a list of passages", "The step counts as one that found nothing")
        passages = passages_of(documents)
        recorder.step_ended(
            step_id, passages, candidates=None if candidates is None else passages_of(candidates),
            decision=decision, metadata=metadata_of(metadata), k=k,
        )  # fmt: skip
        call.ended(step_id)
    except FAULTS as error:
        recorder.faults.note("retrieved", error)
        recorder.step_failed(step_id, error)


def came_late(call: CurrentCall, what: str) -> None:
    """Counts and warns of what comes after its run's end, unless the run was not sampled or capture is paused."""
    if is_paused() or not call.recorder.sampling.takes(call.run_id, call.names):
        return
    call.recorder.count_late()
    NOTICES.warn(
        "after the end of a run",
        f"run {call.run_id} is not open, so {what} that came now is not recorded, and counts as lost. A run takes what "
        f"happens inside `with rg.run(...)`; to go on with this one: with rg.run(resume={call.run_id!r}) as run",
    )


def advice_of(recorder: Recorder, run: CapturedRun, budget_ms: float, *, sampled: bool) -> Advice:
    """Returns advice about an open run, and stores it with the run's latest step; blocks its caller. Raises AdviceError
    where the run can get no advice."""
    return _kept(recorder, run, _adviser(recorder.advise, run, sampled=sampled)(run, budget_ms))


async def aadvice_of(recorder: Recorder, run: CapturedRun, budget_ms: float, *, sampled: bool) -> Advice:
    """Does what `advice_of` does, without blocking the event loop."""
    return _kept(recorder, run, await _adviser(recorder.aadvise, run, sampled=sampled)(run, budget_ms))


def _adviser(adviser: T | None, run: CapturedRun, *, sampled: bool) -> T:
    if adviser is None:
        raise AdviceError("advice needs the engine of a RagGuard: begin the run with rg.run(...)")
    if not sampled:
        raise AdviceError(
            f"run {run.id} was not sampled, so that nothing is known of it: look at run.sampled first, or raise "
            "RagGuard(sample_rate=...)"
        )
    return adviser


def _kept(recorder: Recorder, run: CapturedRun, advice: Advice) -> Advice:
    ended = recorder.ended_steps(run.id)
    if ended and advice.step_id not in ended:
        advice.step_id = ended[-1]  # redaction has changed the ids in the store
    recorder.step_advised(advice.step_id, run.id, advice)
    return advice


def note_decision(call: CurrentCall, verdict: Verdict) -> None:
    """Makes a guard's decision that of the latest retrieval of the run which had all the passages it was given.

    Where no framework tells what the model reads of that retrieval, it reads what the guard has kept.
    """
    given = {passage.text for passage in verdict.judged}
    for event, _ in call.recorder.retrievals(call.run_id)[:_LOOKED_AT] if given else ():
        step = event.step
        if step.decision is None and given <= {one.text for one in step.candidates}:
            decision = about(verdict, step.candidates)
            call.recorder.step_amended(step.id, call.run_id, decision.kept, decision)
            return


def _turn(value: object) -> int | None:
    """Returns a turn as an integer; None for None, and with a warning for anything else, so that the step gets the next
    one."""
    try:
        if isinstance(value, SupportsIndex):
            return index(value)
    except Exception:  # noqa: BLE001, S110 - a number of the user's may raise anything
        pass
    if value is not None:
        _warn_of_type("turn", value, "a whole number", "The step got the next turn")
    return None


def _warn_of_type(argument: str, value: object, allowed: str, then: str) -> None:
    NOTICES.warn(
        f"a {argument} of another type",
        f"{argument}: got {type(value).__name__}; allowed: {allowed}. {then}",
    )
