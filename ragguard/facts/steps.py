"""The facts of a step: what it retrieved, which of that the model got, and K, the number of places in the prompt."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count

from ragguard.records import K_ERROR, Passage, RetrievalStep, Stage


@dataclass(frozen=True, slots=True)
class StepView:
    """A step, with what it retrieved and which of that the model got."""

    step: RetrievalStep
    turn: int
    all: tuple[Passage, ...]
    """The candidates by rank, then passages that the model got and that are no candidates, such as rewritten ones."""
    got: tuple[int, ...]
    """The passages that the model got, in their order, as indices into `all`."""
    judged: frozenset[int]
    """The passages that have a text and are within the cap, as indices into `all`."""
    candidates: int
    """How many of `all` are candidates."""
    places: int
    """K, the number of places in the prompt; 0 where the step's K cannot be right, and a failure says so, and where
    nothing was retrieved and K is not known."""

    @property
    def changed(self) -> bool:
        """True where the model did not get the candidates as they were retrieved."""
        return self.got != tuple(range(self.candidates))

    @property
    def empty(self) -> bool:
        """True where nothing was retrieved."""
        return not self.all

    @property
    def any_k(self) -> bool:
        """True where nothing was retrieved and K is not known: every K gives the same scores."""
        return self.empty and self.step.k is None and K_ERROR not in self.step.metadata

    @property
    def scored(self) -> bool:
        """True where the model read something of the step, or nothing was there to read."""
        return self.empty or self.readable

    @property
    def unselected(self) -> StepView:
        """The same step as if the model had got all candidates in the order in which they were found."""
        return replace(self, got=tuple(range(self.candidates)))

    @property
    def textless(self) -> tuple[int, ...]:
        """The passages without text, such as images, as indices into `all`."""
        return tuple(at for at, passage in enumerate(self.all) if not passage.text.strip())

    @property
    def over_cap(self) -> int:
        """How many passages with a text are not judged."""
        return len(self.all) - len(self.judged) - len(self.textless)

    def listed(self, stage: Stage) -> Sequence[int]:
        """Returns one of the step's two lists, as indices into `all`: what the model got, or what was retrieved."""
        return self.got if stage == "passages" else range(self.candidates)

    def texts(self, positions: Iterable[int] | None = None) -> list[str]:
        """Returns the judged texts at these positions of `all`; None: all judged texts."""
        among = range(len(self.all)) if positions is None else positions
        return [self.all[at].text for at in among if at in self.judged]

    def judged_places(self, stage: Stage) -> int:
        """Returns K for a list of the step, without the places of passages that are not judged; 0 where no K is right.
        Among candidates there was a place for each."""
        if not self.places:
            return int(self.any_k)
        listed = self.listed(stage)
        return max(self.places, len(listed)) - sum(at not in self.judged for at in listed)

    @property
    def readable(self) -> bool:
        """True where the model got a text to read."""
        return any(self.all[at].text.strip() for at in self.got)


def _read_candidates(candidates: Sequence[Hashable], given: Sequence[Hashable]) -> list[int]:
    """Returns for each passage that the model got the index of the candidate that it is, the first with its key that is
    left; an index beyond the candidates for one that is none, such as one that a tool has rewritten.

    Args:
        candidates: The keys of what was retrieved, in the retriever's order.
        given: The keys of what the model got.
    """
    left: dict[Hashable, list[int]] = {}
    for index, key in enumerate(candidates):
        left.setdefault(key, []).append(index)
    beyond = count(len(candidates))
    return [same.pop(0) if (same := left.get(key)) else next(beyond) for key in given]


def view_step(step: RetrievalStep, cap: int, turn: int = 0) -> StepView:
    """Returns the view of a step; finds the model's passages among the candidates by id and text, each once."""
    everything = list(step.retrieved)
    candidates = len(everything)
    got = _read_candidates(
        *([(passage.id, passage.text) for passage in some] for some in (everything, step.passages))
    )
    everything += [passage for passage, at in zip(step.passages, got, strict=True) if at >= candidates]
    order = dict.fromkeys([*got, *range(len(everything))])
    with_text = [index for index in order if everything[index].text.strip()][:cap]
    return StepView(
        step,
        turn,
        tuple(everything),
        tuple(got),
        judged=frozenset(with_text),
        candidates=candidates,
        places=step.places,
    )


def numbered(steps: Sequence[RetrievalStep]) -> list[tuple[int, RetrievalStep]]:
    """Returns steps in order, each with its turn; steps without numbers of their own came one after another."""
    if len({step.index for step in steps}) < len(steps):
        return list(enumerate(steps))
    ordered = sorted(steps, key=lambda step: step.index)
    return [(step.turn, step) for step in ordered]
