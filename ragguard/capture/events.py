"""The four events of capture, in the order in which they happen.

A hook makes an event and gives it to an intake: a queue, a store's writer, a list in a test. An event does
not change after that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from ragguard.records import Decision, Passage, RetrievalStep, Run, Status, TraceContext

if TYPE_CHECKING:
    from ragguard.capture.identity import RunIdentity
    from ragguard.capture.open_runs import WholeRun


class Delivered(NamedTuple):
    """What the model got of a step."""

    passages: list[Passage] | None
    """None where the passages are as they were."""
    metadata: Mapping[str, Any]
    """What is added to the step's metadata."""
    read_as: Sequence[tuple[Passage, Passage]] = ()
    """Candidates as they were retrieved, each with the same one as the model reads it."""


Delivery: TypeAlias = Callable[[], Delivered]
"""Computes what the model got; must not raise."""


class RunStarted:
    """A run began. Its question may still be unknown; it has no steps yet.

    With an `identity` the store finds out whether another run has its id, or which run it continues. `run_id` is the
    run's id, for those who must not build the run to know it.
    """

    __slots__ = ("_packed", "identity", "run_id")

    def __init__(
        self, run: Run | Callable[[], Run], identity: RunIdentity | None = None, run_id: str = ""
    ) -> None:
        self._packed, self.identity, self.run_id = run, identity, run_id

    @property
    def content(self) -> object:
        """What the event holds, built or not; for measuring it."""
        return getattr(self._packed, "args", self._packed)

    @property
    def run(self) -> Run:
        """The run as it began; built when it is first read, since a hook need not do that."""
        if not isinstance(self._packed, Run):
            self._packed = self._packed()
        return self._packed

    def __repr__(self) -> str:
        return f"RunStarted({self._packed!r})"


class StepEnded:
    """Reports that a retrieval ended, with passages or with an error."""

    __slots__ = ("_packed", "run_id")

    def __init__(self, step: RetrievalStep | Callable[[], RetrievalStep], run_id: str = "") -> None:
        """`run_id` is the id of the step's run, for those who must not build the step to know it."""
        self._packed, self.run_id = step, run_id

    @property
    def content(self) -> object:
        """What the event holds, built or not; for measuring it."""
        packed = self._packed
        return packed if isinstance(packed, RetrievalStep) else getattr(packed, "__self__", packed)

    @property
    def step(self) -> RetrievalStep:
        """The retrieval with its passages; built when it is first read.

        So an intake reads it on its own side, after it let the hook go: building takes a while, and
        may run a splitter of the user's.
        """
        if not isinstance(self._packed, RetrievalStep):
            self._packed = self._packed()
        return self._packed

    def __repr__(self) -> str:
        return f"StepEnded({self._packed!r})"


class StepAmended:
    """It became known what the model really got of a step that had ended (a reranker, a guard, a tool's output).

    Passages that are a function are computed when they are first read, on the intake's side.
    """

    __slots__ = ("_packed", "decision", "error", "index", "run_id", "step_id")

    def __init__(
        self,
        run_id: str,
        step_id: str,
        passages: list[Passage] | Delivery | None = None,
        decision: Decision | None = None,
        metadata: Mapping[str, Any] | None = None,
        index: int | None = None,
        read_as: Sequence[tuple[Passage, Passage]] = (),
        error: str | None = None,
    ) -> None:
        self.run_id, self.step_id, self.decision = run_id, step_id, decision
        self.error = error
        """Why the step failed after it had retrieved, so that the model got none of it; None where it did not."""
        self.index = index
        """The step's position in the run, where it turned out to be another one."""
        self._packed = passages if callable(passages) else Delivered(passages, metadata or {}, read_as)

    @property
    def passages(self) -> list[Passage] | None:
        """What the model got; None where that is as it was."""
        return self._unpacked().passages

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What is added to the step's metadata."""
        return self._unpacked().metadata

    @property
    def read_as(self) -> Sequence[tuple[Passage, Passage]]:
        """Candidates as they were retrieved, each with the same one as the model reads it."""
        return self._unpacked().read_as

    def candidates(self, retrieved: list[Passage]) -> list[Passage]:
        """Returns the candidates of the step, those that the model got with their texts as it reads them."""
        read = {(before.id, before.text): after for before, after in self.read_as}
        return [read.get((one.id, one.text), one) for one in retrieved] if read else retrieved

    def _unpacked(self) -> Delivered:
        if callable(self._packed):
            self._packed = self._packed()
        return self._packed

    def __repr__(self) -> str:
        return f"StepAmended({self.run_id!r}, {self.step_id!r}, {self._packed!r}, {self.decision!r})"


@dataclass(slots=True)
class RunEnded:
    """Reports that a run ended. A field that is None or empty leaves what `RunStarted` said."""

    run_id: str
    status: Status = "ok"
    answer: str | None = None
    question: str = ""
    references: list[str] | None = None
    sub_questions: list[str] | None = None
    pool: list[Passage] | None = None
    ended_ns: int = 0
    metadata: Mapping[str, Any] = field(default_factory=dict)
    trace: TraceContext | None = None
    waits_for: str = ""
    """What resumes the run in this or another process, such as LangGraph's thread; '' where nothing does."""


Event: TypeAlias = RunStarted | StepEnded | StepAmended | RunEnded


class EventIntake(Protocol):
    """Takes events. Never raises; returns in microseconds unless the caller asked to wait for the disk.

    A run that is one retrieval comes as one word: the busiest hooks have no time to make three events of it.
    """

    def __call__(self, event: Event | WholeRun) -> None: ...


class Acknowledging(Protocol):
    """Says when what was captured is safe, to code that can wait for it."""

    async def written(self) -> None:
        """Waits until what was captured so far is where the settings want it to be. Never raises."""
        ...

    def not_awaited(self) -> None:
        """Takes note that a run has ended in code that cannot wait."""
        ...
