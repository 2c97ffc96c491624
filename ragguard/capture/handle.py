"""The handle that `rg.run(...)` yields: one run that user code reports to, sync or async.

A framework that works inside it joins it: the steps it reports belong to this run, and the
references and name given here hold.
"""

from __future__ import annotations

import time
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Literal, TypeAlias

from ragguard.capture.events import RunEnded, RunNames, StepAmended, StepEnded
from ragguard.capture.open_runs import CapturedRun
from ragguard.capture.plain_steps import CurrentCall, framework_call
from ragguard.capture.recorder import Recorder
from ragguard.capture.snapshot import answer_of, metadata_of, passages_of, text_in, text_of
from ragguard.errors import AdviceError, Closed, InvalidInput
from ragguard.records import Passage, RetrievalStep, Run, Status, new_id
from ragguard.runtime.arguments import references_of, texts_of
from ragguard.runtime.async_twins import twin_of
from ragguard.runtime.faults import describe

Thumb: TypeAlias = Literal["up", "down"]
_handles: ContextVar[tuple[RunHandle, ...]] = ContextVar("ragguard_runs", default=())
"""Each `with rg.run(...)` around the code at hand, the outermost first; some may be closed, in another context."""


_STOPS = ("GraphInterrupt", "BreakpointException")
"""The errors with which LangGraph and Haystack stop a run that somebody resumes."""


class RunHandle(CurrentCall):
    """A run from its start to its end: `with rg.run(question) as run`, or `async with`.

    With `durability="full"` each call on a thread returns once it is on the disk. On an event loop none of them can
    wait; there the end of `async with` does, for all of the run, and `aretrieved` for a step.
    """

    def __init__(
        self,
        recorder: Recorder,
        question: str = "",
        *,
        references: str | Sequence[str] | None = None,
        id: str = "",
        resume: str = "",
        name: str = "",
        sub_questions: Sequence[str] | None = None,
        pool: Sequence[Passage] | None = None,
        metadata: Mapping[str, Any] | None = None,
        written: Callable[[], Awaitable[None]] | None = None,
        not_awaited: Callable[[], None] = lambda: None,
        feedback: Callable[[Callable[[], str], Thumb, str], object] | None = None,
    ) -> None:
        if not isinstance(resume, str) or (id and resume):
            raise InvalidInput("resume", resume, "the id of an earlier run, and no id= beside it")
        if not isinstance(question, str):
            raise InvalidInput("question", question, "a string")
        # The run's id: the store finds a part that goes on with another run under the part's own id, too. The question
        # and the steps of a run that goes on, only the store has.
        super().__init__(
            recorder, new_id(), names=RunNames(resume or text_in(id), resumes=bool(resume)), followed=False
        )
        self._joined = False
        self.question = question
        self.name = text_in(name)
        self.references = references_of(references)
        self.sub_questions = texts_of("sub_questions", sub_questions)
        self.pool = None if pool is None else passages_of(pool)
        if metadata is not None and not isinstance(metadata, Mapping):
            raise InvalidInput("metadata", metadata, "a mapping")
        self.metadata: dict[str, Any] = metadata_of(metadata)
        self.answer: str | None = None
        self._collected: list[StepEnded | StepAmended] = []
        self.sampled = False
        self.closed = False
        self.inside = ""
        """The id of the run of a framework's call, where this one was entered in such a call."""
        self._opened = False
        self._written, self._not_awaited, self._feedback = written, not_awaited, feedback
        """Wait until the run is stored as `durability` says, or note that its code cannot wait."""
        self._awaits = False
        self._started_ns = 0
        self._status: Status = "open"

    @property
    def steps(self) -> list[RetrievalStep]:
        """Returns the steps that were captured so far, each with its sub-steps."""
        steps: dict[str, RetrievalStep] = {}
        for event in list(self._collected):
            if isinstance(event, StepEnded):
                steps[event.step.id] = event.step
            elif event.step_id in steps:
                steps[event.step_id] = event.applied_to(steps[event.step_id])
        return list(steps.values())

    def __enter__(self) -> RunHandle:
        if self._opened:
            raise Closed(
                f"run {self.id} was already used in a `with`; for another one call rg.run(...) again"
            )
        self._opened = True
        self._started_ns = time.time_ns()
        around, call = innermost(), framework_call()
        self.inside = "" if call is None else call.id
        _handles.set((*_open_handles(), self))
        if around is not None and "parent_run_id" not in self.metadata:
            self.metadata["parent_run_id"] = around.id
        run = self.recorder.named(self.names.caller_id) if self.names.resumes else None
        if run is not None:  # it is open in this process: the code that began it also ends it
            run.collected = self._collected if run.collected is None else run.collected
            self._joined, self._collected = True, run.collected
            self.id, self.sampled = run.id, run.sampled
            return self
        self.sampled = self.recorder.run_started(
            self.id, self.question, name=self.name, references=self.references,
            sub_questions=self.sub_questions, pool=self.pool, metadata=dict(self.metadata),
            started_ns=self._started_ns, collect=self._collected, names=self.names,
        )  # fmt: skip
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # First, so that no fault below leaves the run around the caller.
        self.closed = True
        _handles.set(_open_handles())
        self._status = status_of(error)
        metadata = metadata_of(self.metadata)
        if error is not None:
            metadata["error"] = describe(error)
        end = RunEnded(
            self.id, self._status, answer=text_of(self.answer)[0] or None, question=text_of(self.question)[0],
            references=self._checked("references"), sub_questions=self._checked("sub_questions"), pool=self._pool(),
            metadata=metadata,
        )  # fmt: skip
        if self._joined:
            self.recorder.run_noted(end)
            return
        self.recorder.run_ended(end)
        if not self._awaits:
            self._not_awaited()

    async def __aenter__(self) -> RunHandle:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._awaits = True
        self.__exit__(kind, error, traceback)
        if not isinstance(error, CancelledError):  # a cancelled caller must not wait
            await self._acknowledged()

    async def _acknowledged(self) -> None:
        if self._written is not None and self.sampled:
            with suppress(RuntimeError):  # no loop but asyncio's can wait for an acknowledgement
                await self._written()

    @twin_of(CurrentCall.retrieved, 'With `durability="full"` it returns once the step is on the disk.')
    async def aretrieved(self, query: str, passages: object, **more: Any) -> str:
        step_id = self.retrieved(query, passages, **more)
        await self._acknowledged()
        return step_id

    def answered(self, answer: object) -> None:
        """Records what the pipeline answered; the last call holds.

        Args:
            answer: The answer: a text, a framework's message or response; a mapping, a number or another object is kept
                as JSON.
        """
        text, kind = answer_of(answer)
        self.answer = text or None
        if kind:
            self.metadata["answer_content"] = kind
        if self.closed:
            if self.recorder.open_run(self.id):  # held open by a stream, or by the code that this part joined
                self.recorder.run_answered(self.id, self.answer)
            else:
                self._came_late("an answer")

    def feedback(self, thumb: Thumb, note: str = "") -> None:
        """Keeps what somebody says of the run, during it or afterwards, as `feedback` in its metadata; the last call
        holds. Does not wait for the disk. `rg.feedback(id, …)` does so in another process, such as that of a later
        request.

        Args:
            thumb: `up` or `down`.
            note: What else there is to say.
        """
        if self._feedback is not None and self.sampled:
            self._feedback(lambda: self.id, thumb, note)

    def _asked_about(self) -> Run | CapturedRun:
        if self.closed or not self._opened:
            state = "has ended" if self.closed else "has not begun"
            raise AdviceError(f"run {self.id} {state}: ask for advice inside `with rg.run(...)`")
        super()._asked_about()
        return CapturedRun(self.id, self.record()) if self.names.resumes else self.record()

    def record(self) -> Run:
        """Returns the run as it stands: question, steps, answer, status."""
        return Run(
            self.id, text_of(self.question)[0], self._checked("references"), text_of(self.answer)[0] or None,
            steps=self.steps, status=self._status, metadata=metadata_of(self.metadata),
            sub_questions=self._checked("sub_questions"), pool=self._pool(), name=self.name,
            started_ns=self._started_ns,
        )  # fmt: skip

    def _checked(self, name: Literal["references", "sub_questions"]) -> list[str] | None:
        """Returns the texts in this attribute, which the application may have set; notes a fault for anything else."""
        try:
            return texts_of(name, getattr(self, name))
        except InvalidInput as error:
            self.recorder.faults.note(f"run.{name}", error)
            return None

    def _pool(self) -> list[Passage] | None:
        return None if self.pool is None else passages_of(self.pool)


def _open_handles() -> tuple[RunHandle, ...]:
    return tuple(handle for handle in _handles.get() if not handle.closed)


def status_of(error: BaseException | None) -> Status:
    """Returns the status of a run or a call that ended with this error, or without one. The errors with which
    frameworks stop to be resumed later are known by their names, since no framework need be installed."""
    if error is None:
        return "ok"
    if isinstance(error, (CancelledError, GeneratorExit, KeyboardInterrupt)):
        return "cancelled"
    return "interrupted" if any(kind.__name__ in _STOPS for kind in type(error).__mro__) else "error"


def innermost(recorder: Recorder | None = None) -> RunHandle | None:
    """Returns the innermost open `with rg.run(...)` around the caller, of one recorder or of any; None without."""
    for handle in reversed(_handles.get()):
        if not handle.closed and (recorder is None or handle.recorder is recorder):
            return handle
    return None
