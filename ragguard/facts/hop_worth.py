"""Decides which number says what each hop of a run was worth: the one answer to "which hop paid?".

Every sentence, bar and table about hops takes its number from here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ragguard.facts.hop_sentence import JOINT_PAYS
from ragguard.facts.verdicts import WORTH_NAMING, is_clear
from ragguard.records import Score

DECIDING = ("joint_gain", "credit", "delta_seper", "delta_likelihood")
"""The scores of a step that may decide, the most trustworthy first. The last two say what a hop added when it came, so
that the last of several needed hops gets it all."""

_LEAST = {"joint_gain": JOINT_PAYS}
"""The values from which a hop paid, if other than `WORTH_NAMING`."""


class HopWorth(NamedTuple):
    """The worth of a hop by the deciding score of its run."""

    value: float
    stderr: float | None
    name: str
    """The name of the score, the same for all hops of the run."""
    support: bool
    """True if the number is about the run's own answer, for want of references."""

    @property
    def paid(self) -> bool:
        """True if the value is worth naming, and more than two standard errors."""
        return self.value >= _LEAST.get(self.name, WORTH_NAMING) and is_clear(self.value, self.stderr)


def worth_of_hops(scores: Iterable[Score]) -> Mapping[str, HopWorth]:
    """Returns what each hop of a run was worth, by the id of its step: by the first of the deciding scores that every
    hop has which has any of them; empty if no hop has any.

    What rests on references is taken before what rests on the run's own answer.
    """
    found: dict[str, dict[str, Score]] = {}
    for score in scores:
        if score.level == "step" and score.name in DECIDING and score.stage == "passages":
            of_name = found.setdefault(score.name, {})
            known = of_name.get(score.step_id)
            if known is None or known.reference_source != "gold" or score.reference_source == "gold":
                of_name[score.step_id] = score
    hops = {step for of_name in found.values() for step in of_name}
    name = next((name for name in DECIDING if hops and found.get(name, {}).keys() == hops), None)
    if name is None:
        return {}
    return {
        step: HopWorth(score.value, score.stderr, name, score.reference_source == "answer")
        for step, score in found[name].items()
    }
