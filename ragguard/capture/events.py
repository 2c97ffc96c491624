"""The events of capture, in the order in which they happen.

A hook makes an event, which does not change after that, and gives it to an intake: a queue, a store's writer, a list.

The id of a run is made where the run begins, and no other run has it. What the application or a framework calls the
run stands beside it, as its `RunNames`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

from ragguard.records import Advice, Decision, Passage, RetrievalStep, Run, Status, TraceContext

CALLER_ID = "ragguard.caller_id"
"""Metadata key of a run, or of a step: the id that the application gave it."""


class RunNames(NamedTuple):
    """The names that an application or a framework gives a run, beside the run's own id."""

    caller_id: str = ""
    """The id that the application gave; several runs may have the same one."""
    thread: str = ""
    """The conversation that the run belongs to, such as LangGraph's thread."""
    resumes: bool = False
    """True where the run goes on with the stored one that waits for this thread, or has this id."""

    @property
    def needs_steps(self) -> bool:
        """True where a run that goes on with no other one is recorded only if it retrieves something."""
        return self.resumes and not self.caller_id


UNNAMED = RunNames()


class Delivered(NamedTuple):
    """The part of a step's passages that the model got."""

    passages: list[Passage] | None
    """The passages; None where they have not changed."""
    metadata: Mapping[str, Any]
    """Entries that are added to the step's metadata."""


Delivery: TypeAlias = Callable[[], Delivered]
"""Computes what the model got; must not raise."""


class RunStarted:
    """Reports that a run began. Its question may still be unknown; it has no steps yet.

    By its `names` the store finds the run that it goes on with. `run_id` is the run's id, for callers that must not
    build the run to know the id.
    """

    __slots__ = ("_packed", "names", "run_id")

    def __init__(self, run: Run | Callable[[], Run], names: RunNames | None = None, run_id: str = "") -> None:
        self._packed, self.names, self.run_id = run, names or UNNAMED, run_id

    @property
    def content(self) -> object:
        """The content of the event, built or not, so that its size can be estimated."""
        return getattr(self._packed, "args", self._packed)

    @property
    def run(self) -> Run:
        """The run as it began; built when it is first read, since a hook need not do that."""
        if not isinstance(self._packed, Run):
            self._packed = self._packed()
        return self._packed


class StepEnded:
    """Reports that a retrieval ended, with passages or with an error."""

    __slots__ = ("_packed", "run_id", "turn_open")

    def __init__(
        self, step: RetrievalStep | Callable[[], RetrievalStep], run_id: str = "", *, turn_open: bool = False
    ) -> None:
        """Takes the step, or a function that makes it; with `run_id` nobody must build the step to know its run."""
        self._packed, self.run_id = step, run_id
        self.turn_open = turn_open
        """True while other steps of its turn are still open."""

    @property
    def content(self) -> object:
        """The content of the event, built or not, so that its size can be estimated."""
        packed = self._packed
        return packed if isinstance(packed, RetrievalStep) else getattr(packed, "__self__", packed)

    @property
    def step(self) -> RetrievalStep:
        """The retrieval with its passages; built when it is first read.

        An intake reads the step after the hook has returned: building takes a while, and may call a user's splitter.
        """
        if not isinstance(self._packed, RetrievalStep):
            self._packed = self._packed()
        return self._packed


class StepAmended:
    """Reports what the model really got of a step that had ended (after a reranker, a guard or a tool's output), or the
    advice that was given after it.

    Passages that are a function are computed when they are first read, on the intake's side.
    """

    __slots__ = ("_packed", "advice", "decision", "error", "run_id", "step_id")

    def __init__(
        self,
        run_id: str,
        step_id: str,
        passages: list[Passage] | Delivery | None = None,
        decision: Decision | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        error: str | None = None,
        advice: Advice | None = None,
    ) -> None:
        self.run_id, self.step_id, self.decision = run_id, step_id, decision
        self.advice = advice
        """The advice that was given after the step; None where none was."""
        self.error = error
        """The cause of a failure after the retrieval, so that the model got none of it; None where there was none."""
        self._packed = passages if callable(passages) else Delivered(passages, metadata or {})

    @property
    def passages(self) -> list[Passage] | None:
        """The passages that the model got; None where nothing has changed."""
        return self._unpacked().passages

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Entries that are added to the step's metadata."""
        return self._unpacked().metadata

    def applied_to(self, step: RetrievalStep) -> RetrievalStep:
        """Returns the step with what the model got of it."""
        return replace(
            step,
            passages=step.passages if self.passages is None else self.passages,
            decision=step.decision if self.decision is None else self.decision,
            metadata={**step.metadata, **self.metadata} if self.metadata else step.metadata,
            k=self.k(step.k, len(step.passages), 0 if step.decision is None else len(step.decision.dropped)),
            status=step.status if self.error is None else "error",
            error=step.error if self.error is None else self.error,
            advice=step.advice if self.advice is None else self.advice,
        )

    def k(self, known: int | None, passages: int, dropped: int) -> int | None:
        """Returns K of the step from what was known of it: its K, how many passages the model got, and how many of them
        a guard had dropped. A reranker or a cut that chose some sets K to their number; a guard never lowers it."""
        chosen = passages
        if self.decision is not None:
            # The passages that this guard was given; the decision also has those that were dropped before.
            chosen = len(self.decision.kept) + len(self.decision.dropped) - dropped
        elif self.passages is not None:
            chosen = len(self.passages)
        if 0 < chosen < passages:
            return chosen
        return known if known is None else max(known, chosen)

    def _unpacked(self) -> Delivered:
        if callable(self._packed):
            self._packed = self._packed()
        return self._packed


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
    """The thread under which the run is resumed, in this or another process; '' where nothing resumes it."""
    void: bool = False
    """True for a run that retrieved nothing and is no run by itself: only one that it goes on with takes its answer."""


class OneStepRun(NamedTuple):
    """Reports a run that was one retrieval and has ended."""

    run: Run
    """The run, without its step."""
    step: RetrievalStep

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self.run.id


Event: TypeAlias = RunStarted | StepEnded | StepAmended | RunEnded | OneStepRun
