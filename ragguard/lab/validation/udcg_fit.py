"""Fits UDCG to graded answers: the weight of harm (γ), and weights for gain and harm by place (UDCG_θ).

Both are fitted on pairs of contexts of one question whose outcomes differ. What a fit is worth is told on questions
that it has not seen: every context gets its value from a fit on other questions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ragguard.errors import CalibrationError
from ragguard.lab.validation.contexts import Scored
from ragguard.metrics.agreement import Correlation, Difference, correlate, paired_bootstrap
from ragguard.metrics.arrays import Booleans, Floats, Integers
from ragguard.metrics.distraction import GAMMA, LearnedUdcg, Parts, Relevance, udcg_of_parts, utility_parts
from ragguard.storage.files.calibration import save_calibration

UDCG, FITTED_GAMMA, LEARNED = "udcg", "udcg, fitted γ", "learned_udcg"
FEW = 5
"""The fewest questions with different outcomes on which a fit is made, and into how many parts they are put to test
it."""
_GAMMAS = np.append(np.linspace(0, 1, 21), GAMMA)
_TOLERANCE = 1e-12


@dataclass(frozen=True, slots=True)
class UdcgFit:
    """The weights of UDCG that order graded answers best, and how they do on questions they were not fitted on."""

    utility: Mapping[str, Any]
    """The settings of the scorer `Utility`: `relevance`, `gamma`, and `theta` if enough contexts had one length."""
    contexts: int
    questions: int
    """The number of questions whose contexts had different outcomes."""
    held_out: Mapping[str, Correlation]
    """The share of held-out pairs in the right order less that in the wrong order (Somers' d), by metric."""
    gains: Mapping[str, Difference]
    """The differences to UDCG with the usual γ, by metric."""
    engine: str = ""
    judge: str = ""

    def save(self, path: str | Path) -> None:
        """Writes the fit as JSON, which `Utility.fitted` reads."""
        save_calibration(self, path, kind="udcg", format=1)


class _Contexts:
    """The gains and harms of the passages of contexts as columns."""

    def __init__(self, scored: Sequence[Scored]) -> None:
        known = []
        for at, one in enumerate(scored):
            r, p = one.of_passages("p_relevant"), one.of_passages("p_abstain")
            if one.context.outcome is not None and "udcg" in one.values and None not in (*r, *p):
                judged = np.array([r, p], dtype=np.float64)
                known.append((at, one.context, utility_parts(judged[0], judged[1], one.relevance)))
        self.relevance: Relevance = scored[0].relevance if scored else "probability"
        self.rows = np.array([at for at, _, _ in known], dtype=np.intp)
        self.outcome = np.array([context.outcome for _, context, _ in known], dtype=np.float64)
        numbers: dict[str, int] = {}
        self.question = np.array(
            [numbers.setdefault(context.question_id, len(numbers)) for _, context, _ in known], dtype=np.intp
        )
        counts = [np.size(parts.gain) for *_, parts in known]
        self.places = np.array(
            [context.k or count or 1 for (_, context, _), count in zip(known, counts, strict=True)],
            dtype=np.intp,
        )
        self.gains, self.harms = np.zeros((2, len(known), int(self.places.max(initial=0))))
        for row, (*_, parts) in enumerate(known):
            self.gains[row, : counts[row]], self.harms[row, : counts[row]] = parts
        self.differing = sorted(varied(self.question, self.outcome))
        """The questions whose contexts have different outcomes."""
        self.varied = np.isin(self.question, self.differing)
        lengths = Counter(self.places[self.varied].tolist())
        self.length = max(lengths, key=lambda one: (lengths[one], one), default=0)
        """The commonest number of places."""
        self.same = self.places == self.length

    def gamma(self, chosen: Booleans) -> float:
        """Returns the weight of harm that orders most pairs of these contexts, every question counting alike; among
        equals the one next to the usual one."""
        first, second, weights = _pairs(self.question, self.outcome, chosen & self.varied)
        gain, harm = self.gains.sum(axis=1) / self.places, self.harms.sum(axis=1) / self.places
        gaps = (gain[first] - gain[second])[:, None] + (harm[first] - harm[second])[:, None] * _GAMMAS
        rightly = np.where(np.abs(gaps) > _TOLERANCE, np.sign(gaps), 0.0).T @ weights
        best = np.flatnonzero(rightly >= rightly.max() - _TOLERANCE)
        return float(min(_GAMMAS[best], key=lambda one: abs(one - GAMMA)))

    def theta(self, chosen: Booleans) -> LearnedUdcg:
        """Returns the weights by place that are learnt from those of these contexts that have the commonest length."""
        rows = chosen & self.varied & self.same
        return LearnedUdcg(self.length).fit(self.parts(rows), self.outcome[rows], self.question[rows])

    def parts(self, rows: Booleans) -> Parts:
        """Returns gain and harm of these contexts, which have the commonest length."""
        return Parts(self.gains[rows, : self.length], self.harms[rows, : self.length])

    def udcg(self, chosen: Booleans, gamma: float) -> list[float]:
        """Returns UDCG of these contexts."""
        rows = np.flatnonzero(chosen)
        return [
            float(udcg_of_parts(self.gains[at, :k], self.harms[at, :k], gamma))
            for at, k in zip(rows, self.places[rows], strict=True)
        ]


def held_out_values(scored: Sequence[Scored]) -> dict[str, Floats]:
    """Returns UDCG with a fitted γ and UDCG_θ for each context, from fits on other questions; nan where there is none.

    Empty where fewer than `FEW` questions with known utilities have contexts with different outcomes.
    """
    contexts = _Contexts(scored)
    if len(contexts.differing) < FEW:
        return {}
    same = contexts.same
    learnt_from = sorted(varied(contexts.question[same], contexts.outcome[same]))
    learnable = len(learnt_from) >= FEW
    # Each part is left with as many questions to learn from as there can be.
    order = {question: at for at, question in enumerate(learnt_from if learnable else contexts.differing)}
    part = np.array([order.get(question, question) % FEW for question in contexts.question])
    names = (FITTED_GAMMA, LEARNED) if learnable else (FITTED_GAMMA,)
    columns = {name: np.full(len(scored), np.nan) for name in names}
    for number in range(FEW):
        here, others = part == number, part != number
        columns[FITTED_GAMMA][contexts.rows[here]] = contexts.udcg(here, contexts.gamma(others))
        if learnable:
            parts = contexts.parts(here & same)
            columns[LEARNED][contexts.rows[here & same]] = contexts.theta(others)(parts)
    return columns


def fit_udcg(scored: Sequence[Scored], engine: str = "", judge: str = "") -> UdcgFit:
    """Returns the γ and the weights by place that are fitted on all contexts, and their worth on held-out questions."""
    contexts = _Contexts(scored)
    fitted = held_out_values(scored)
    if not fitted:
        raise CalibrationError(
            f"{len(contexts.differing)} questions have contexts with known utilities and different outcomes; to fit "
            f"UDCG at least {FEW} are needed: give several contexts a question, some that lead to the right answer and "
            "some that do not"
        )
    everywhere = np.ones(len(contexts.rows), dtype=bool)
    usual, outcome = np.full(len(scored), np.nan), np.full(len(scored), np.nan)
    usual[contexts.rows] = contexts.udcg(everywhere, GAMMA)
    outcome[contexts.rows] = contexts.outcome
    groups = [one.context.question_id for one in scored]
    held_out = {
        name: correlate(values, outcome, "somers_d", groups, flat=0.0)
        for name, values in {UDCG: usual, **fitted}.items()
    }
    gains = {
        name: paired_bootstrap(values, usual, groups, outcome, "somers_d", flat=0.0)
        for name, values in fitted.items()
    }
    theta = contexts.theta(everywhere).to_dict() if LEARNED in fitted else None
    weights = {"relevance": contexts.relevance, "gamma": contexts.gamma(everywhere), "theta": theta}
    questions = len(contexts.differing)
    return UdcgFit(weights, len(contexts.rows), questions, held_out, gains=gains, engine=engine, judge=judge)


def varied(questions: Sequence[Any] | Integers, outcome: Floats) -> set[Any]:
    """Returns the questions whose contexts have different outcomes."""
    found: dict[Any, set[float]] = {}
    for question, value in zip(questions, outcome, strict=True):
        found.setdefault(question, set()).add(float(value))
    return {question for question, values in found.items() if len(values) > 1}


def _pairs(question: Integers, outcome: Floats, chosen: Booleans) -> tuple[Integers, Integers, Floats]:
    """Returns the pairs of chosen contexts of one question, the better one first, and weights by which every question
    counts alike."""
    better, worse, weights = [], [], []
    for one in np.unique(question[chosen]):
        rows = np.flatnonzero(chosen & (question == one))
        first, second = np.nonzero(outcome[rows][:, None] > outcome[rows][None, :])
        better.append(rows[first])
        worse.append(rows[second])
        weights.append(np.full(len(first), 1 / max(len(first), 1)))
    return np.concatenate(better), np.concatenate(worse), np.concatenate(weights)
