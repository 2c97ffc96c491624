"""The events of capture, in the order in which they happen; which runs are recorded, and how turns are numbered.

A hook makes an event, which does not change after that, and gives it to an intake: a queue, a store's writer, a list.

The id of a run is made where the run begins, and no other run has it. What the application or a framework calls the
run stands beside it, as its `RunNames`.

Retrievals that did not wait for each other share a turn. What a framework says counts: it names the parallel branches
that a call is in. Retrievals of one branch that overlap in time share a turn as well.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
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


UNNAMED = RunNames()


class Delivered(NamedTuple):
    """The part of a step's passages that the model got."""

    passages: list[Passage] | None
    """The passages; None where they have not changed."""
    metadata: Mapping[str, Any]
    """Entries that are set in the step's metadata; None removes one."""
    moved: int = 0
    """The number of places by which the step moves in its run."""
    of: int | None = None
    """The number of passages that retrieval and guards had left before; None: as many as the step has now."""


@dataclass(slots=True, eq=False)
class RunStarted:
    """Reports that a run began. Its question may still be unknown; it has no steps yet."""

    made: Run | Callable[[], Run]
    """The run as it began, or a function that makes it, since a hook need not do that."""
    names: RunNames = UNNAMED
    """The names of the run, by which the store finds the one that it goes on with."""
    run_id: str = ""
    """The run's id, for readers that must not make the run to know it."""

    @property
    def run(self) -> Run:
        """The run as it began."""
        if not isinstance(self.made, Run):
            self.made = self.made()
        return self.made


@dataclass(slots=True, eq=False)
class StepEnded:
    """Reports that a retrieval ended, with passages or with an error."""

    made: RetrievalStep | Callable[[], RetrievalStep]
    """The step, or a function that makes it: that takes a while, and may call a user's splitter, so an intake reads the
    step after the hook has returned."""
    run_id: str = ""
    """The run's id, for readers that must not make the step to know it."""

    @property
    def step(self) -> RetrievalStep:
        """The retrieval with its passages."""
        if not isinstance(self.made, RetrievalStep):
            self.made = self.made()
        return self.made


class StepAmended:
    """Reports what the model really got of a step that had ended (after a reranker, a guard or a tool's output), or the
    advice that was given after it.

    Passages that are a function, which must not raise, are computed when they are first read, on the intake's side.
    """

    __slots__ = ("_packed", "advice", "decision", "error", "run_id", "step_id")

    def __init__(
        self,
        run_id: str,
        step_id: str,
        passages: list[Passage] | Callable[[], Delivered] | None = None,
        decision: Decision | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        error: str | None = None,
        advice: Advice | None = None,
        moved: int = 0,
    ) -> None:
        self.run_id, self.step_id, self.decision = run_id, step_id, decision
        self.advice = advice
        """The advice that was given after the step; None where none was."""
        self.error = error
        """The cause of a failure after the retrieval, so that the model got none of it; None where there was none."""
        self._packed = passages if callable(passages) else Delivered(passages, metadata or {}, moved)

    @property
    def passages(self) -> list[Passage] | None:
        """The passages that the model got; None where nothing has changed."""
        return self._unpacked().passages

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Entries that are set in the step's metadata; None removes one."""
        return self._unpacked().metadata

    @property
    def moved(self) -> int:
        """The number of places by which the step moves in its run."""
        return self._unpacked().moved

    def applied_to(self, step: RetrievalStep) -> RetrievalStep:
        """Returns the step with what the model got of it."""
        of = self._unpacked().of
        return replace(
            step,
            index=step.index + self.moved,
            passages=step.passages if self.passages is None else self.passages,
            decision=step.decision if self.decision is None else self.decision,
            metadata=_set(step.metadata, self.metadata) if self.metadata else step.metadata,
            k=self.k(
                step.k,
                len(step.passages) if of is None else of,
                0 if step.decision is None else len(step.decision.dropped),
            ),
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


def _set(metadata: Mapping[str, Any], entries: Mapping[str, Any]) -> dict[str, Any]:
    """Returns metadata with these entries, without those that are None."""
    kept = {key: value for key, value in metadata.items() if key not in entries}
    return kept | {key: value for key, value in entries.items() if value is not None}


@dataclass(slots=True, eq=False)
class EarlierStepsRead:
    """Reports, before a resumed run ends, what its models read of the retrievals of earlier invocations, which only the
    store has where these were made in another process."""

    run_id: str
    read: Callable[[Sequence[RetrievalStep]], Mapping[str, Delivered]]
    """Returns what was read of these retrievals, by the ids of those of which it is known now."""


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


Event: TypeAlias = RunStarted | StepEnded | StepAmended | EarlierStepsRead | RunEnded


Branch: TypeAlias = tuple[Hashable, Hashable]
"""A group of parallel calls, and the call among them."""
TurnKey: TypeAlias = tuple[Branch, ...]
"""The parallel branches that a call is in, from the outermost to the innermost; () outside of any."""
BRANCHES_KEPT = 512
"""The number of branches and groups of a run that are remembered; only the latest can still grow."""


class Turns:
    """Numbers the turns of one run.

    The branches of a group begin at the same turn, and what follows the group comes after the longest of them.
    """

    __slots__ = ("_beside", "_next", "following")

    def __init__(self) -> None:
        self.following = 0
        """The turn of a step that starts after all others."""
        self._next: dict[tuple[Hashable, ...], int] = {}
        """The turn of the next step of each branch; and that at which a group begins, by the branches around it and the
        group."""
        self._beside: dict[Hashable, Hashable] = {}
        """The group of each outermost call of a framework that is open in the run."""

    def given(self, turn: int) -> int:
        """Notes a turn that the user gave."""
        self.following = max(self.following, turn + 1)
        return turn

    def next(self, key: TurnKey = (), overlapping: Sequence[tuple[TurnKey, int]] = ()) -> int:
        """Returns the turn of a step of a branch that starts now, while the `overlapping` ones are open."""
        for other, turn in reversed(overlapping):
            if other == key:
                return turn
        turn = self.following
        for depth, (group, _) in enumerate(key):
            turn = self._next.setdefault((*key[:depth], group), turn)
            turn = self._next.get(key[: depth + 1], turn)
        for depth in range(1, len(key) + 1):
            self._next[key[:depth]] = max(turn + 1, self._next.get(key[:depth], 0))
        while len(self._next) > BRANCHES_KEPT:
            del self._next[next(iter(self._next))]
        return self.given(turn)

    def began(self, call: Hashable) -> TurnKey:
        """Returns the branch of an outermost call of a framework: those that are open at the same time are parallel."""
        group = self._beside[call] = next(iter(self._beside.values()), object())
        return ((group, call),)

    def ended(self, call: Hashable) -> None:
        """Notes that an outermost call has ended: what begins from now on may follow it."""
        self._beside.pop(call, None)
