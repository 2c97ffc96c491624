"""Reads answers on a scale of digits: the most probable digit, and the mean over all digits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ragguard.errors import LowLabelMass
from ragguard.probes.question import LabelAnswer, LabelQuestion
from ragguard.records import Usage

LEAST_MASS = 0.5


def check_mass(answer: LabelAnswer, labels: tuple[str, ...]) -> float:
    """Returns the probability of all labels together; raises LowLabelMass where the judge rather says something
    else."""
    mass = sum(answer.p)
    if mass < LEAST_MASS:
        raise LowLabelMass(
            f"the judge was asked for one of {', '.join(labels)} and puts only {mass:.2f} on them "
            f"(at least {LEAST_MASS} is needed); choose a prompt set it follows, or, "
            "where the model thinks, switch its thinking off"
        )
    return mass


@dataclass(frozen=True, slots=True)
class Rating:
    """A rating on a scale of digits."""

    value: int
    """The most probable grade; of equally probable ones the lowest."""
    expectation: float
    stderr: float | None
    """The standard error of the expectation."""
    remarks: Mapping[str, int | str]
    usage: Usage


def read_rating(question: LabelQuestion, answer: LabelAnswer, grades: Sequence[int] = ()) -> Rating:
    """Returns the rating in the probabilities of labels that are digits, or that stand for the given grades."""
    mass = check_mass(answer, question.labels)
    grades = grades or [int(label) for label in question.labels]
    expectation = sum(grade * p for grade, p in zip(grades, answer.p, strict=True)) / mass
    by_grade: dict[int, float] = dict.fromkeys(grades, 0.0)
    for grade, p in zip(grades, answer.p, strict=True):
        by_grade[grade] += p
    value = max((p, -grade) for grade, p in by_grade.items())[1]
    stderr: float | None = None if answer.bound else 0.0
    if answer.stderr is not None:
        spread = sum(p / mass * (grade - expectation) ** 2 for grade, p in zip(grades, answer.p, strict=True))
        variances = [
            s * s / max(p * (1 - p), 1e-12) for s, p in zip(answer.stderr, answer.p, strict=True) if s > 0
        ]
        # Each p's error is sqrt(p(1 - p)/n): their ratio gives 1/n back, and the mean's error is sqrt(spread/n).
        stderr = (spread * max(variances, default=0.0)) ** 0.5
    return Rating(-value, expectation, stderr, answer.remarks, usage=answer.usage)
