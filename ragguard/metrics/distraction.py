"""Metrics of how much a passage helps the model that reads it, and how much it misleads.

The source is Trappolini et al., "Redefining Retrieval Evaluation in the Era of LLMs" (2025). A passage's
utility comes from the probability that the model abstains when it sees that passage alone, and from its relevance. A
judge gives relevance as a probability; the paper's is 1 or 0. Where people have labelled it, both forms are one.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from ragguard.errors import InvalidInput, MissingDependency
from ragguard.metrics import arrays
from ragguard.metrics.arrays import Floats, Mask, Value
from ragguard.metrics.registry import Metric, declare
from ragguard.runtime.arguments import one_of

GAMMA = 1 / 3
"""The weight of harm in UDCG where no other was fitted."""
SOURCE = "Trappolini et al. 2025"
UDCG_RANGE = (1 / (1 + np.e), np.e / (1 + np.e))
"""The range of UDCG: from all harm at γ = 1 to all gain. At γ = 1/3 the least value is 0.417."""
Ablation = Literal["rel_only", "binary"]
Relevance = Literal["probability", "binary"]
"""The form in which relevance counts. `probability`: the number that the judge gives, so that utility is expected.
`binary`: 1 from `RELEVANT_FROM` on, else 0, as in the paper."""
RELEVANCES: tuple[Relevance, ...] = ("probability", "binary")
RELEVANT_FROM = 0.5
"""The probability of relevance from which on a passage is called relevant."""


class Parts(NamedTuple):
    """The gain and the harm whose sum is the utility of a passage."""

    gain: Value
    harm: Value


def utility(relevant: ArrayLike, p_abstain: ArrayLike, relevance: Relevance = "probability") -> Value:
    """Returns the utility (2r − 1)(1 − p), r = `relevant` and p = `p_abstain`: the expectation of R (1 − p), where R is
    1 for a relevant passage and −1 for another (eq. 2). With `relevance="binary"` r is first made 1 or 0, as in the
    paper."""
    r, p = _annotated(relevant, p_abstain, relevance)
    return arrays.plain((2 * r - 1) * (1 - p))


def utility_parts(relevant: ArrayLike, p_abstain: ArrayLike, relevance: Relevance = "probability") -> Parts:
    """Returns gain r (1 − p) and harm −(1 − r)(1 − p), the expectations whose sum is `utility`: of an uncertain judge
    both count, while in the sum they cancel."""
    r, p = _annotated(relevant, p_abstain, relevance)
    return Parts(arrays.plain(r * (1 - p)), arrays.plain((r - 1) * (1 - p)))


def distracting_effect(p_abstain: ArrayLike) -> Value:
    """Returns 1 − p, the probability that the model answers from the passage (eq. 1)."""
    return arrays.plain(1 - arrays.read("p_abstain", p_abstain, low=0, high=1, axes=0))


def udcg(u: ArrayLike, gamma: float = GAMMA, mask: Mask = None, k: int | None = None) -> Value:
    """Returns UDCG = σ(Σ u⁺ / k + γ Σ u⁻ / k) of a context's utilities, u⁺ = max(u, 0), u⁻ = min(u, 0) (eq. 4).

    `k` is the number of places in the context (default: the number of utilities). A place that is empty, as a guard
    dropped its passage, counts neither as gain nor as loss: a context of empty places has σ(0) = 0.5.
    """
    utilities = arrays.read("u", u, low=-1, high=1, mask=mask)
    return _udcg(np.maximum(utilities, 0), np.minimum(utilities, 0), gamma, mask, k)


def udcg_of_parts(
    gain: ArrayLike, harm: ArrayLike, gamma: float = GAMMA, mask: Mask = None, k: int | None = None
) -> Value:
    """Returns UDCG = σ(Σ gain / k + γ Σ harm / k), with gain and harm of each passage as `utility_parts` gives them.

    `k` is the number of places in the context; see `udcg`.
    """
    gains = arrays.read("gain", gain, low=0, high=1, mask=mask)
    harms = arrays.read("harm", harm, low=-1, high=0, mask=mask)
    arrays.same(gain=gains, harm=harms)
    return _udcg(gains, harms, gamma, mask, k)


class LearnedUdcg:
    """UDCG with a learned weight for gain and for harm at each of k positions: σ(Σ α_i u_i⁺ + Σ β_i u_i⁻) (eq. 3).

    Contexts are utilities, or the `Parts` of these, whose gain and harm then stand for u⁺ and u⁻. `ablation`
    leaves out harm ("rel_only") and also makes gain 0 or 1 ("binary"), as in the paper's table 4.
    """

    def __init__(self, k: int, ablation: Ablation | None = None) -> None:
        self.k = arrays.count("k", k)
        if ablation is not None:
            one_of("ablation", ablation, ("rel_only", "binary"))
        self.ablation = ablation
        self._weights: Floats | None = None

    def __call__(self, u: ArrayLike | Parts) -> Value:
        """Returns σ of the weighted gains and harms of a context."""
        if self._weights is None:
            raise InvalidInput("LearnedUdcg", "no weights", "a model after `fit` or from `from_dict`")
        total = self._features("u", u) @ self._weights
        # Half the hyperbolic tangent is σ without an exponential that could overflow.
        return arrays.plain((1 + np.tanh(total / 2)) / 2)

    def fit(self, contexts: ArrayLike | Parts, outcome: ArrayLike, groups: ArrayLike, c: float = 1.0) -> Self:
        """Learns from pairs of contexts of one question whose outcomes differ; of two outcomes the larger is the better
        one, such as correct 2, abstained 1, wrong 0.

        `contexts` holds k passages a row, `groups` says whose question a row belongs to;
        `c` is the support vector machine's.
        """
        features = self._features("contexts", contexts)
        grade = arrays.read("outcome", outcome)
        question = np.asarray(groups)
        for argument, array in (("outcome", grade), ("groups", question)):
            if array.shape != features.shape[:1]:
                raise InvalidInput(f"{argument}.shape", array.shape, f"{features.shape[:1]}, one a context")
        members = [np.flatnonzero(question == one) for one in np.unique(question)]
        pairs = np.array([pair for rows in members for pair in combinations(rows, 2)], dtype=np.intp)
        first, second = pairs.reshape(-1, 2).T
        sign = np.sign(grade[first] - grade[second])
        first, second, sign = first[sign != 0], second[sign != 0], sign[sign != 0]
        if not sign.size:
            raise InvalidInput("outcome", outcome, "two contexts of one question with different outcomes")
        cost = arrays.parameter("c", c, 1e-12)
        try:
            from sklearn.svm import LinearSVC
        except ImportError as error:
            raise MissingDependency("scikit-learn", "LearnedUdcg.fit", "analysis") from error
        # Every pair is shown both ways round, as the machine wants two classes.
        better = (features[first] - features[second]) * sign[:, None]
        machine = LinearSVC(C=cost, loss="hinge", fit_intercept=False, max_iter=100_000, random_state=0)
        machine.fit(np.concatenate([better, -better]), np.repeat([1, -1], len(better)))
        self._weights = np.where(self._used(), machine.coef_[0], 0.0)
        return self

    def to_dict(self) -> dict[str, Any]:
        """Returns the weights as plain data for JSON."""
        if self._weights is None:
            raise InvalidInput("LearnedUdcg", "no weights", "a model after `fit`")
        alpha, beta = self._weights[: self.k], self._weights[self.k :]
        return {"k": self.k, "ablation": self.ablation, "alpha": alpha.tolist(), "beta": beta.tolist()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Returns the model from what `to_dict` returned."""
        model = cls(data.get("k", 0), data.get("ablation"))
        parts = [arrays.read(name, data.get(name, ())) for name in ("alpha", "beta")]
        for name, part in zip(("alpha", "beta"), parts, strict=True):
            if part.shape != (model.k,):
                raise InvalidInput(f"{name}.shape", part.shape, f"({model.k},)")
        model._weights = np.concatenate(parts)
        return model

    def _features(self, argument: str, u: ArrayLike | Parts) -> Floats:
        if isinstance(u, Parts):
            gains, harms = (
                arrays.read("gain", u.gain, low=0, high=1),
                arrays.read("harm", u.harm, low=-1, high=0),
            )
            arrays.same(gain=gains, harm=harms)
        else:
            utilities = arrays.read(argument, u, low=-1, high=1)
            gains, harms = np.maximum(utilities, 0), np.minimum(utilities, 0)
        if gains.shape[-1] != self.k:
            allowed = f"contexts of k = {self.k} passages; each k needs its own fit"
            raise InvalidInput(f"{argument}.shape", gains.shape, allowed)
        if self.ablation == "binary":
            gains = (gains + harms > 0).astype(np.float64)
        return np.concatenate([gains, harms], axis=-1) * self._used()

    def _used(self) -> Floats:
        """Returns 1 for each feature that the model has, and 0 for each that the ablation leaves out."""
        return np.repeat([1.0, 0.0 if self.ablation else 1.0], self.k)


declare(
    Metric(
        "p_relevant", "Relevance", "How probably the judge finds the answer to the step's query in the passage.",
        unit="probability", needs="a judge", source=SOURCE, levels=("passage",),
    ),
    Metric(
        "utility", "Utility", "How much the passage helps (positive) or misleads (negative) the model that reads it.",
        range=(-1, 1), needs="p_relevant, p_abstain", source=f"{SOURCE}, eq. 2", levels=("passage",), function=utility,
    ),
    Metric(
        "p_abstain", "Abstention", "How probably the model would rather not answer, given only this passage.",
        direction="neither", unit="probability", needs="an engine", source=SOURCE, levels=("passage",),
    ),
    Metric(
        "distracting_effect", "Distracting effect",
        "How probably the model answers from a passage that does not hold the answer.", direction="lower",
        unit="probability", needs="p_abstain of a passage that is not relevant", source=f"{SOURCE}, eq. 1",
        levels=("passage",), function=distracting_effect,
    ),
    Metric(
        "udcg", "UDCG",
        "What the passages should do for the answer: gain minus a third of the harm; 0.42 at worst, or 0.27 by a fit.",
        range=UDCG_RANGE,
        by_places=True, needs="the utilities of the step's passages", source=f"{SOURCE}, eq. 4", levels=("step",),
        function=udcg,
    ),
    Metric(
        "delta_udcg_selection", "UDCG of the selection",
        "UDCG of the passages that the model got minus UDCG of all candidates, both over the candidates' K.",
        range=(UDCG_RANGE[0] - UDCG_RANGE[1], UDCG_RANGE[1] - UDCG_RANGE[0]),
        by_places=True, needs="the utilities of a step of which the model got other passages than its candidates",
        source="ragguard, by the UDCG of Trappolini et al. 2025", levels=("step",), function=udcg,
    ),
    Metric(
        "udcg_context", "UDCG of the context", "UDCG over all passages of the run that the model got.",
        range=UDCG_RANGE,
        by_places=True, needs="the utilities of the run's passages", source=f"{SOURCE}, eq. 4", levels=("run",),
        function=udcg,
    ),
    Metric(
        "learned_udcg", "UDCG with learned weights",
        "UDCG whose weights by position were learned from answers; for contexts of one length.",
        needs="utilities of k passages, a fit on graded answers", source=f"{SOURCE}, eq. 3", levels=("step",),
        function=LearnedUdcg,
    ),
)  # fmt: skip


def _udcg(gains: Floats, harms: Floats, gamma: float, mask: Mask, k: int | None) -> Value:
    weight = arrays.parameter("gamma", gamma, 0, 1)
    total = np.add.reduce(gains, axis=-1) + weight * np.add.reduce(harms, axis=-1)
    places = arrays.lengths(gains, mask)
    if k is not None:
        filled = int(np.max(places, initial=0))
        places = arrays.count("k", k)
        if filled > places:
            raise InvalidInput("k", k, f"at least {filled}, the number of passages")
    return arrays.plain(1 / (1 + np.exp(-arrays.ratio(total, places))))


def _annotated(relevant: ArrayLike, p_abstain: ArrayLike, relevance: Relevance) -> tuple[Floats, Floats]:
    r = arrays.read("relevant", relevant, low=0, high=1, axes=0)
    p = arrays.read("p_abstain", p_abstain, low=0, high=1, axes=0)
    arrays.fit(relevant=r.shape, p_abstain=p.shape)
    if one_of("relevance", relevance, RELEVANCES) == "binary":
        r = (r >= RELEVANT_FROM).astype(np.float64)
    return r, p
