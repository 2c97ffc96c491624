"""Retrievals of plain code, recorded as steps of the run of the call at work; errors become the recorder's faults.

Each framework's integration registers here how to find its own call around the code at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import index
from typing import Any, SupportsIndex, TypeAlias, TypeVar

from ragguard.capture.decisions import Verdict, about, concerned, is_about_passages, merged
from ragguard.capture.enclosing import is_paused
from ragguard.capture.events import CALLER_ID, UNNAMED, RunNames, TurnKey
from ragguard.capture.open_runs import BUDGET_MS, CapturedRun
from ragguard.capture.recorder import Recorder
from ragguard.capture.snapshot import metadata_of, passages_of, text_in, text_of
from ragguard.errors import AdviceError
from ragguard.records import Advice, Decision, Passage, Status, new_id
from ragguard.runtime.faults import FAULTS, NOTICES

T = TypeVar("T")
_LOOKED_AT = 16
"""The number of the latest retrievals of a run among which that of a guard's decision is looked for."""


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

    def record(
        self, query: str, passages: object, *, candidates: object = None, k: object = None, tool: str = "",
        turn: int | None = None, started_ns: int = 0, decision: Decision | None = None,
        metadata: Mapping[str, Any] | None = None, id: str = "",
    ) -> str:  # fmt: skip
        """Records a retrieval that has ended, and returns the step's id."""
        step_id = self.start(query, tool, turn, started_ns=started_ns, id=id)
        self.end(step_id, passages, candidates=candidates, decision=decision, metadata=metadata, k=k)
        return step_id

    def start(
        self, query: str, tool: str, turn: int | None = None, *, started_ns: int = 0, id: str = "", name: str = "",
        top_k: int | None = None,
    ) -> str:  # fmt: skip
        """Opens a step in the run and the turn of this call; returns the step's id. An `id` that the application gives
        stands beside it, in the step's metadata."""
        step_id, caller_id, metadata = new_id(), text_in(id), self.metadata
        try:
            asked, other_kind = text_of(query)
            if other_kind:
                _warn_of_type(
                    "query", query, "a string", "The step has no query, and the run's question counts"
                )
            self.begin(asked)
            if not self.recorder.knows(self.run_id):
                self.came_late("a retrieval")
                return step_id
            if caller_id:
                metadata = {**(metadata or {}), CALLER_ID: caller_id}
            number = _turn(turn)
            self.recorder.step_started(
                step_id, self.run_id, asked, within=self.within, tool=text_in(tool) or self.tool, name=name,
                turn=self.turn if number is None else number, metadata=metadata,
                started_ns=started_ns if type(started_ns) is int else 0, top_k=top_k,
            )  # fmt: skip
        except FAULTS as error:
            self.recorder.faults.note("retrieved", error)
        return step_id

    def end(
        self, step_id: str, documents: object, *, candidates: object = None, decision: Decision | None = None,
        metadata: Mapping[str, Any] | None = None, k: object = None,
    ) -> None:  # fmt: skip
        """Closes the step with what was retrieved."""
        recorder = self.recorder
        try:
            if not recorder.wants(step_id):
                return
            if documents is None:
                _warn_of_type(
                    "passages", None, "a list of passages", "The step counts as one that found nothing"
                )
            passages = passages_of(documents)
            found = None if candidates is None else passages_of(candidates)
            if decision is not None and not is_about_passages(decision):
                _warn_of_type("decision", decision, "what guard.prune returned", "It is left out")
                decision = None
            waiting = recorder.undecided(self.run_id)
            if waiting and found is None and decision is None:
                found, decision = _decided_before(waiting, passages)
            waiting[:] = [verdict for verdict in waiting if verdict.decision is not decision]
            recorder.step_ended(
                step_id, passages, candidates=found, decision=decision, metadata=metadata_of(metadata), k=k
            )
            for verdict in [*waiting]:
                if self._attach(verdict):
                    waiting.remove(verdict)
            self.ended(step_id)
        except FAULTS as error:
            recorder.faults.note("retrieved", error)
            recorder.step_failed(step_id, error)

    def decided(self, verdict: Verdict) -> None:
        """Keeps what a guard has decided that plain code has asked: with the latest retrieval of the run which had all
        the passages that the guard was given, else with the one that is reported next."""
        try:
            if verdict.judged and not self._attach(verdict):
                self.recorder.keep_undecided(self.run_id, verdict)
        except FAULTS as error:
            self.recorder.faults.note("prune", error)

    def _attach(self, verdict: Verdict) -> bool:
        """Makes a guard's decision that of a retrieval that has ended; returns False where none had its passages. Where
        no framework tells what the model reads of that retrieval, it reads what the guard has kept."""
        given = {passage.text for passage in verdict.judged}
        for event, _ in self.recorder.retrievals(self.run_id)[:_LOOKED_AT]:
            step = event.step
            if step.decision is None and given <= {one.text for one in step.candidates}:
                decision = about(verdict, step.candidates)
                self.recorder.step_amended(step.id, self.run_id, decision.kept, decision)
                return True
        return False

    def came_late(self, what: str) -> None:
        """Counts and warns of what comes after its run's end, unless the run was not sampled or capture is paused."""
        if is_paused() or not self.recorder.sampling.takes(self.run_id, self.names):
            return
        self.recorder.count_late()
        NOTICES.warn(
            "after the end of a run",
            f"run {self.run_id} is not open, so {what} that came now is not recorded, and counts as lost. A run takes "
            "what happens inside `with rg.run(...)`; to go on with this one: "
            f"with rg.run(resume={self.run_id!r}) as run",
        )


TOOL_CALL = "tool_call_id"
"""Metadata key of a step that was made in a tool call: the call's id."""


def guard_decided(
    recorder: Recorder, run_id: str, verdict: Verdict, *, query: str = "", tool_call: str = ""
) -> bool:
    """Adds a guard's decision to the latest retrievals of an open run that found the passages it judged; returns False
    where none did. A decision about a tool call's result can only be about retrievals of that call."""
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


class CodeInRun:
    """A run, as the code inside of it reports retrievals to it and asks for advice."""

    @property
    def call(self) -> CurrentCall:
        """The call at work in the run."""
        raise NotImplementedError

    def _asked_about(self) -> tuple[CapturedRun, bool]:
        """Returns the run so far, and whether it was sampled; raises AdviceError where it is not open."""
        raise NotImplementedError

    def retrieved(
        self,
        query: str,
        passages: object,
        *,
        candidates: object = None,
        k: int | None = None,
        tool: str = "",
        turn: int | None = None,
        started_ns: int = 0,
        decision: Decision | None = None,
        metadata: Mapping[str, Any] | None = None,
        id: str = "",
    ) -> str:
        """Records one retrieval and returns the step's id. Never raises for what it is given.

        Args:
            query: What was asked of the retriever.
            passages: What the model gets: documents or nodes of a framework, (document, score) pairs, Passages, texts,
                mappings with a `text`, or what holds them (`{"documents": [...]}`). Ids and scores are kept.
            candidates: What was retrieved before a reranker or a guard. None: the same as `passages`.
            k: For how many passages there is a place in the prompt, at least as many as came; a guard does not lower
                it. None: as many as there were before a guard dropped some.
            tool: The name of the tool or retriever.
            turn: A number that parallel retrievals share. None: that of retrievals under way, else the next one.
            started_ns: When it began, in nanoseconds since 1970. 0: now.
            decision: What a guard decided about the passages, as `guard.prune` returns it.
            metadata: Anything that JSON can hold, kept with the step.
            id: An id of your own, such as that of a tool call; it is kept with the step, beside the step's id.
        """
        return self.call.record(
            query, passages, candidates=candidates, k=k, tool=tool, turn=turn, started_ns=started_ns,
            decision=decision, metadata=metadata, id=id,
        )  # fmt: skip

    def failed(
        self,
        query: str,
        error: BaseException | str,
        *,
        status: Status = "error",
        tool: str = "",
        turn: int | None = None,
    ) -> str:
        """Records a retrieval that gave nothing and returns the step's id.

        Args:
            query: What was asked of the retriever.
            error: The exception, or what went wrong in words.
            status: `error`, or `cancelled` where somebody broke it off.
            tool: The name of the tool or retriever.
            turn: A number that parallel retrievals share. None: that of retrievals under way, else the next one.
        """
        step_id = self.call.start(query, tool, turn)
        self.call.recorder.step_failed(step_id, _error(error), status)
        return step_id

    def advise(self, budget_ms: float = BUDGET_MS) -> Advice:
        """Returns what to do now, after the steps so far: answer, search on, search in other words, or distrust what
        was read. An event loop that calls it stands still meanwhile; there `aadvise` is the one to await.

        The references are not looked at. Where an engine fails or is late, the action is `continue` and the reason
        says so. Raises AdviceError for a run that has ended, was not sampled, or has no question or no step.

        Args:
            budget_ms: How many milliseconds it may take.
        """
        run, sampled = self._asked_about()
        return self._kept(_adviser(self.call.recorder.advise, run, sampled=sampled)(run, budget_ms))

    async def aadvise(self, budget_ms: float = BUDGET_MS) -> Advice:
        """Does what `advise` does, without blocking the event loop."""
        run, sampled = self._asked_about()
        return self._kept(await _adviser(self.call.recorder.aadvise, run, sampled=sampled)(run, budget_ms))

    def _kept(self, advice: Advice) -> Advice:
        call = self.call
        ended = call.recorder.ended_steps(call.run_id)
        if ended and advice.step_id not in ended:
            advice.step_id = ended[-1]  # redaction has changed the ids in the store
        call.recorder.step_advised(advice.step_id, call.run_id, advice)
        return advice


def _adviser(adviser: T | None, run: CapturedRun, *, sampled: bool) -> T:
    if adviser is None:
        raise AdviceError("advice needs the engine of a RagGuard: begin the run with rg.run(...)")
    if not sampled:
        raise AdviceError(
            f"run {run.id} was not sampled, so that nothing is known of it: look at run.sampled first, or raise "
            "RagGuard(sample_rate=...)"
        )
    return adviser


FindCall: TypeAlias = Callable[[], CurrentCall | None]
frameworks: dict[str, FindCall] = {}
"""The function with which each framework's integration finds the call at work, by the framework's name."""


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


def _decided_before(
    waiting: list[Verdict], passages: list[Passage]
) -> tuple[list[Passage] | None, Decision | None]:
    """Returns what a guard was given, and its decision, where it was asked before the retrieval was reported with what
    it has kept."""
    texts = [passage.text for passage in passages]
    for verdict in reversed(waiting):
        if [passage.text for passage in verdict.decision.kept] == texts:
            return verdict.judged, verdict.decision
    return None, None


def _error(value: object) -> BaseException | str:
    if isinstance(value, (BaseException, str)):
        return value
    _warn_of_type("error", value, "an exception or a string", "The step has its text as the error")
    return text_in(value)


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
