"""How much a passage helps the model that reads it, and how much it misleads.

The source is Trappolini et al., "Redefining Retrieval Evaluation in the Era of LLMs" (2025). A passage's
utility comes from the probability that the model abstains when it sees that passage alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ragguard.metrics import arrays
from ragguard.metrics.arrays import Floats, Value
from ragguard.metrics.registry import Metric, declare

SOURCE = "Trappolini et al. 2025"


class Parts(NamedTuple):
    """A passage's utility before gain and harm cancel."""

    gain: Value
    harm: Value


def utility(relevant: ArrayLike, p_abstain: ArrayLike) -> Value:
    """+(1 − p) for a relevant passage, −(1 − p) for another (eq. 2); the expectation where `relevant` is a probability."""
    r, p = _annotated(relevant, p_abstain)
    return arrays.plain((2 * r - 1) * (1 - p))


def utility_parts(relevant: ArrayLike, p_abstain: ArrayLike) -> Parts:
    """Gain r(1 − p) and harm −(1 − r)(1 − p): what an uncertain judge would otherwise cancel to 0."""
    r, p = _annotated(relevant, p_abstain)
    return Parts(arrays.plain(r * (1 - p)), arrays.plain((r - 1) * (1 - p)))


def distracting_effect(p_abstain: ArrayLike) -> Value:
    """The probability that the model answers from the passage (eq. 1)."""
    return arrays.plain(1 - arrays.read("p_abstain", p_abstain, low=0, high=1, axes=0))


def udcg(u: ArrayLike, gamma: float = 1 / 3, mask: ArrayLike | None = None) -> Value:
    """σ(mean of the gains + γ · mean of the harms) of a context's utilities (eq. 4)."""
    utilities = arrays.read("u", u, low=-1, high=1, mask=mask)
    return _udcg(np.maximum(utilities, 0), np.minimum(utilities, 0), gamma, mask)


def udcg_of_parts(
    gain: ArrayLike, harm: ArrayLike, gamma: float = 1 / 3, mask: ArrayLike | None = None
) -> Value:
    """UDCG where gain and harm of a passage stand side by side, as `utility_parts` gives them."""
    gains = arrays.read("gain", gain, low=0, high=1, mask=mask)
    harms = arrays.read("harm", harm, low=-1, high=0, mask=mask)
    arrays.same(gain=gains, harm=harms)
    return _udcg(gains, harms, gamma, mask)


def _udcg(gains: Floats, harms: Floats, gamma: float, mask: ArrayLike | None) -> Value:
    weight = arrays.parameter("gamma", gamma, 0, 1)
    total = np.add.reduce(gains, axis=-1) + weight * np.add.reduce(harms, axis=-1)
    mean = arrays.ratio(total, arrays.lengths(gains, mask))
    return arrays.plain(1 / (1 + np.exp(-mean)))


def _annotated(relevant: ArrayLike, p_abstain: ArrayLike) -> tuple[Floats, Floats]:
    r = arrays.read("relevant", relevant, low=0, high=1, axes=0)
    p = arrays.read("p_abstain", p_abstain, low=0, high=1, axes=0)
    arrays.fit(relevant=r.shape, p_abstain=p.shape)
    return r, p


declare(
    Metric(
        "p_abstain",
        "Abstention",
        "How probably the model would rather not answer, given this passage alone.",
        (0, 1),
        "neither",
        "probability",
        "an engine",
        SOURCE,
        ("passage",),
    )
)
declare(
    Metric(
        "p_relevant",
        "Relevance",
        "How probably the judge finds the answer to the step's query in the passage.",
        (0, 1),
        "higher",
        "probability",
        "a judge",
        SOURCE,
        ("passage",),
    )
)
declare(
    Metric(
        "utility",
        "Utility",
        "How much the passage helps (positive) or misleads (negative) the model that reads it.",
        (-1, 1),
        "higher",
        "",
        "p_relevant, p_abstain",
        f"{SOURCE}, eq. 2",
        ("passage",),
        utility,
    )
)
declare(
    Metric(
        "distracting_effect",
        "Distracting effect",
        "How probably the model answers from a passage that is not relevant.",
        (0, 1),
        "lower",
        "probability",
        "p_abstain",
        f"{SOURCE}, eq. 1",
        ("passage",),
        distracting_effect,
    )
)
declare(
    Metric(
        "udcg",
        "UDCG",
        "How much the step's passages together should help: gains, less a third of the harm.",
        (1 / (1 + np.exp(1)), 1 / (1 + np.exp(-1))),
        "higher",
        "",
        "utilities of the step's passages",
        f"{SOURCE}, eq. 4",
        ("step",),
        udcg,
    )
)
declare(
    Metric(
        "udcg_context",
        "UDCG of the context",
        "UDCG over all passages of the run that the model got.",
        (1 / (1 + np.exp(1)), 1 / (1 + np.exp(-1))),
        "higher",
        "",
        "utilities of the run's passages",
        f"{SOURCE}, eq. 4",
        ("run",),
        udcg,
    )
)
