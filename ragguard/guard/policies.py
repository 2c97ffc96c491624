"""Policies, which choose the judged passages to drop, and say why. Several policies apply in order.

Each policy gets the passages that the policies before it kept. A passage without a utility, which the judge could not
judge, is never dropped for its utility.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ragguard.errors import InvalidInput, shown_apart
from ragguard.facts.verdicts import MISLEADS
from ragguard.records import Passage
from ragguard.runtime.arguments import number_between, whole_number


@dataclass(frozen=True, slots=True)
class Judged:
    """A passage with the numbers that the models gave it."""

    passage: Passage
    position: int
    """The 1-based rank among the candidates."""
    utility: float | None = None
    """The utility, from −1 to 1, in the form that the guard's `relevance` says; None if it could not be judged."""
    p_abstain: float | None = None
    p_relevant: float | None = None
    problem: str = ""
    """The reason why the passage has no utility; empty where it has one."""

    @property
    def p_helps(self) -> float | None:
        """The probability that the passage helps, by two witnesses: the judge, who finds it relevant with probability
        r, and the reader, who abstains with probability p. It is r(1−p) / (r(1−p) + (1−r)p), with r and p kept within
        [0.01, 0.99], so that one of them alone cannot outvote the other. None where the passage could not be judged.
        """
        if self.p_relevant is None or self.p_abstain is None:
            return None
        r, p = _within(self.p_relevant), _within(self.p_abstain)
        return r * (1 - p) / (r * (1 - p) + (1 - r) * p)


@runtime_checkable
class Policy(Protocol):
    """Chooses which passages to drop."""

    @property
    def needs_utility(self) -> bool:
        """True where the policy needs utilities, so that the models must be asked first."""
        ...

    def drop(self, judged: Sequence[Judged]) -> Mapping[int, str]:
        """Returns the passages to drop: a reason for each `Judged.position`, which counts from 1. It is called on the
        event loop of the guard's caller, so it compares what it is given and waits for nothing."""
        ...


@dataclass(frozen=True, slots=True)
class UtilityThreshold:
    """Drops passages whose utility is under a threshold."""

    threshold: float = MISLEADS
    """Passages of a lower utility are dropped; from -1 (drops nothing) to 1."""
    needs_utility = True

    def __post_init__(self) -> None:
        number_between("threshold", self.threshold, -1, 1, "a utility in [-1, 1]; -1 drops nothing")

    def drop(self, judged: Sequence[Judged]) -> Mapping[int, str]:
        return _under(self.threshold, "utility", [(item.position, item.utility) for item in judged])


@dataclass(frozen=True, slots=True)
class HelpThreshold:
    """Drops passages that help with less than a probability, by judge and reader together (`Judged.p_helps`).

    The order that `calibrate` takes: a gold passage which the judge misjudges has a utility under that of a passage
    which does nothing, so that a promise about gold leaves a threshold on utility nothing to drop.
    """

    threshold: float
    """Passages that help with a lower probability are dropped; from 0 (drops nothing) to 1."""
    needs_utility = True

    def __post_init__(self) -> None:
        number_between("threshold", self.threshold, 0, 1, "a probability in [0, 1]; 0 drops nothing")

    def drop(self, judged: Sequence[Judged]) -> Mapping[int, str]:
        helps = [(item.position, item.p_helps) for item in judged]
        return _under(self.threshold, "helps with probability", helps)


@dataclass(frozen=True, slots=True)
class TopUtility:
    """Keeps the k passages of the highest utility."""

    k: int
    """How many passages stay, 1 or more. Passages that could not be judged stay as well."""
    needs_utility = True

    def __post_init__(self) -> None:
        whole_number("k", self.k, 1)

    def drop(self, judged: Sequence[Judged]) -> Mapping[int, str]:
        """Drops all passages but the k of the highest utility; equal utilities keep the retriever's order."""
        ranked = sorted(judged, key=lambda item: -2.0 if item.utility is None else -item.utility)
        return {
            item.position: f"not among the {self.k} most useful"
            for item in ranked[self.k :]
            if item.utility is not None
        }


def choose(policies: Sequence[Policy], judged: Sequence[Judged], min_keep: int) -> dict[int, str]:
    """Returns the passages that the policies drop, in order: a reason for each position. Where fewer than `min_keep`
    would be left, some of these stay: first those that could not be judged, then the best ones, by the probability that
    they help where a HelpThreshold is among the policies, else by utility."""
    left, reasons = list(judged), dict[int, str]()
    for policy in policies:
        asked = policy.drop(left)
        if unknown := set(asked) - {item.position for item in left}:
            shown = ", ".join(sorted(map(str, unknown)))
            raise InvalidInput("drop", shown, "positions of the passages it was given, which count from 1")
        reasons |= {item.position: str(asked[item.position]) for item in left if item.position in asked}
        left = [item for item in left if item.position not in asked]
    by_help = any(isinstance(policy, HelpThreshold) for policy in policies)
    gone = [item for item in judged if item.position in reasons]
    values = {item.position: item.p_helps if by_help else item.utility for item in gone}
    best = sorted(values.items(), key=lambda one: -2.0 if one[1] is None else -one[1])
    for position, _ in best[: max(0, min_keep - len(left))]:
        del reasons[position]
    return reasons


def _within(p: float) -> float:
    return min(0.99, max(0.01, p))


def _under(limit: float, what: str, numbers: Sequence[tuple[int, float | None]]) -> dict[int, str]:
    """Returns the positions whose number is under a limit, each with the reason in words."""
    return {
        position: f"{what} {' < '.join(shown_apart(value, limit))}"
        for position, value in numbers
        if value is not None and value < limit
    }
