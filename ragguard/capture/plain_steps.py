"""The methods of a run for code that reports retrievals and asks for advice; errors become the recorder's faults.

Each framework's integration registers here how to find its own call around the code at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ragguard.capture.call_paths import CallPath, task_path
from ragguard.capture.decisions import Verdict, decision_about, is_about_passages
from ragguard.capture.events import CALLER_ID, UNNAMED, RunNames, TurnKey
from ragguard.capture.open_runs import BUDGET_MS, CapturedRun, OpenRun
from ragguard.capture.recorder import Recorder, is_paused
from ragguard.capture.snapshot import metadata_of, passages_of, text_in, text_of
from ragguard.errors import AdviceError
from ragguard.records import Advice, Decision, Run, Status, new_id
from ragguard.runtime.async_twins import twin_of
from ragguard.runtime.faults import FAULTS, NOTICES


class CurrentCall:
    """The code at work in a run: a framework's call that plain code is inside of, or `with rg.run(...)` itself."""

    def __init__(
        self, recorder: Recorder, id: str, tool: str = "", turn: TurnKey = (), *, within: str = "",
        about: Mapping[str, Any] | None = None, names: RunNames = UNNAMED,
        begin: Callable[[str], None] = lambda query: None, ended: Callable[[str], None] = lambda step_id: None,
        followed: bool = True, path: CallPath = (),
    ) -> None:  # fmt: skip
        """Takes the run's id, and of the call its tool, the parallel branches that it is in, and the id of the
        retrieval that it is `within`; `path` are the calls around it, and `about` is the metadata of steps that are
        made here. `begin` opens the run, which frameworks do with the first retrieval, and takes the query; `ended`
        takes in the id of a step that has ended, so that the tool's output is not taken for another one. `followed` is
        true where the framework reports model calls, by which it is known what of a retrieval was read; else that is
        what the code at hand reports."""
        self.recorder, self.id, self.names = recorder, id, names
        self.sampled = recorder.takes(id, names)
        self._tool, self._turn, self._within, self._about, self._path = tool, turn, within, about, path
        self._begin, self._ended, self._followed = begin, ended, followed

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
        step_id = self.start(query, tool, turn, started_ns=started_ns, id=id)
        self.end(step_id, passages, candidates=candidates, decision=decision, metadata=metadata, k=k)
        return step_id

    def failed(
        self,
        query: str,
        error: BaseException | str,
        *,
        status: Status = "error",
        tool: str = "",
        turn: int | None = None,
    ) -> str:
        """Records a retrieval that failed or was cancelled, and returns the step's id.

        Args:
            query: What was asked of the retriever.
            error: The exception, or what went wrong in words.
            status: `error`, or `cancelled` if somebody cancelled it.
            tool: The name of the tool or retriever.
            turn: A number that parallel retrievals share. None: that of retrievals under way, else the next one.
        """
        step_id = self.start(query, tool, turn)
        self.recorder.step_failed(step_id, error, status if isinstance(status, str) else "error")
        return step_id

    def answered(self, answer: object) -> None:
        """Records what the pipeline answered, in place of what the framework returns."""
        self._begin("")
        self.recorder.run_answered(self.id, text_of(answer)[0] or None)

    def start(
        self, query: str, tool: str, turn: int | None = None, *, started_ns: int = 0, id: str = "", name: str = "",
        top_k: int | None = None,
    ) -> str:  # fmt: skip
        """Opens a step in the run and the turn of this call; returns the step's id. An `id` that the application gives
        stands beside it, in the step's metadata."""
        step_id, caller_id, metadata = new_id(), text_in(id), self._about
        try:
            asked, other_kind = text_of(query)
            if other_kind:
                _warn_of_type(
                    "query", query, "a string", "The step has no query; the run's question is used instead"
                )
            if turn is not None and type(turn) is not int:
                _warn_of_type("turn", turn, "a whole number", "The step got the next turn")
                turn = None
            self._begin(asked)
            if self.recorder.open_run(self.id) is None:
                self._came_late("a retrieval")
                return step_id
            if caller_id:
                metadata = {**(metadata or {}), CALLER_ID: caller_id}
            self.recorder.step_started(
                step_id, self.id, asked, within=self._within, tool=text_in(tool) or self._tool, name=name,
                turn=self._turn if turn is None else turn, metadata=metadata,
                started_ns=started_ns if type(started_ns) is int else 0, top_k=top_k, followed=self._followed,
                path=self._path or task_path(),
            )  # fmt: skip
        except FAULTS as error:
            self.recorder.faults.note("retrieved", error)
        return step_id

    def end(
        self, step_id: str, documents: object, *, candidates: object = None, decision: object = None,
        metadata: Mapping[str, Any] | None = None, k: object = None,
    ) -> None:  # fmt: skip
        """Closes the step with what was retrieved."""
        recorder = self.recorder
        try:
            run = recorder.open_run(self.id)
            if run is None or not recorder.wants(step_id):
                return
            if documents is None:
                _warn_of_type(
                    "passages", None, "a list of passages", "The step counts as one that found nothing"
                )
            passages = passages_of(documents)
            found = None if candidates is None else passages_of(candidates)
            if found is not None or decision is not None:  # the caller says what the model gets
                recorder.step_is_known(step_id)
            decided = decision if decision is None or is_about_passages(decision) else None
            if decision is not decided:
                _warn_of_type("decision", decision, "what guard.prune returned", "It is left out")
            if found is None and decided is None:
                texts = [passage.text for passage in passages]
                for verdict in run.undecided:
                    if [passage.text for passage in verdict.decision.kept] == texts:
                        found, decided = verdict.judged, verdict.decision
            recorder.step_ended(
                step_id, passages, candidates=found, decision=decided, metadata=metadata_of(metadata), k=k
            )
            for verdict in list(run.undecided):
                if verdict.decision is decided or self._attach(run, verdict):
                    run.undecided.remove(verdict)
            self._ended(step_id)
        except FAULTS as error:
            recorder.faults.note("retrieved", error)
            recorder.step_failed(step_id, error)

    def decided(self, verdict: Verdict) -> None:
        """Keeps what a guard has decided that plain code has asked: with the latest retrieval of the run which had all
        the passages that the guard was given, else with the one that is reported next."""
        try:
            run = self.recorder.open_run(self.id)
            if run is not None and verdict.judged and not self._attach(run, verdict):
                run.undecided.append(verdict)
        except FAULTS as error:
            self.recorder.faults.note("prune", error)

    def _attach(self, run: OpenRun, verdict: Verdict) -> bool:
        """Makes a guard's decision that of a retrieval that has ended; returns False where none had its passages. Where
        no framework tells what the model reads of that retrieval, it reads what the guard has kept."""
        given = {passage.text for passage in verdict.judged}
        for event, _ in run.model_calls.latest():
            step = event.step
            if step.decision is None and given <= {one.text for one in step.candidates}:
                decision = decision_about(verdict, step.candidates)
                self.recorder.step_amended(step.id, self.id, decision.kept, decision)
                return True
        return False

    def _came_late(self, what: str) -> None:
        """Counts and warns of what comes after its run's end, unless the run was not sampled or capture is paused."""
        if is_paused() or not self.sampled:
            return
        self.recorder.count_late()
        NOTICES.warn(
            "after the end of a run",
            f"run {self.id} is not open, so {what} is not recorded and counts as lost. A run records only what "
            f"happens inside `with rg.run(...)`. To add to this one: with rg.run(resume={self.id!r}) as run",
        )

    def advise(self, budget_ms: float = BUDGET_MS) -> Advice:
        """Returns what to do now, after the steps so far: answer, search on, search in other words, or distrust what
        was read. It blocks an event loop that calls it: await `aadvise` there.

        The references are not looked at. Where an engine fails or is late, the action is `continue` and the reason
        says so. Raises AdviceError for a run that has ended, was not sampled, or has no question or no step.

        Args:
            budget_ms: How many milliseconds it may take.
        """
        return self._kept(self.recorder.adviser().advise(self._asked_about(), budget_ms))

    @twin_of(advise)
    async def aadvise(self, budget_ms: float = BUDGET_MS) -> Advice:
        return self._kept(await self.recorder.adviser().aadvise(self._asked_about(), budget_ms))

    def _asked_about(self) -> Run | CapturedRun:
        """Returns the run so far; raises AdviceError where it was not sampled."""
        if not self.sampled:
            raise AdviceError(
                f"run {self.id} was not sampled, so nothing of it was recorded: check run.sampled first, or raise "
                "RagGuard(sample_rate=...)"
            )
        return CapturedRun(self.id)

    def _kept(self, advice: Advice) -> Advice:
        run = self.recorder.open_run(self.id)
        if run is not None and run.model_calls.steps and advice.step_id not in run.model_calls.steps:
            advice.step_id = [*run.model_calls.steps][-1]  # redaction has changed the ids in the store
        self.recorder.step_amended(advice.step_id, self.id, advice=advice)
        return advice


frameworks: dict[str, Callable[[], CurrentCall | None]] = {}
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


def _warn_of_type(argument: str, value: object, allowed: str, then: str) -> None:
    NOTICES.warn(
        f"a {argument} of another type",
        f"{argument}: got {type(value).__name__}; allowed: {allowed}. {then}",
    )
