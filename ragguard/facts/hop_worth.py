"""Decides what each hop of a run was worth, which answers "which hop paid?".

Every sentence, bar and table about hops takes its number from here. Three kinds of evidence go into it: what a hop did
to question and answer, by its scores; what it led to, by the words of the queries behind it; and whether it brought the
first passage that states a reference, by its words. A hop that led to a hop that paid has paid.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ragguard.facts.hop_sentence import JOINT_PAYS
from ragguard.facts.leads import led_from
from ragguard.facts.verdicts import WORTH_NAMING, is_clear
from ragguard.records import RetrievalStep, Score

DECIDING = ("joint_gain", "credit", "delta_seper", "delta_likelihood")
"""The scores of a step that may decide, the most trustworthy first. The last two say what a hop added when it came, so
that the last of several needed hops gets it all."""

_LEAST = {"joint_gain": JOINT_PAYS}
"""The values from which a hop paid, if other than `WORTH_NAMING`."""
_ANSWERS_PART = {"joint_gain": "reference_gain"}
"""The scores with the answer's part of a deciding score, if that has another part as well."""


class HopWorth(NamedTuple):
    """The worth of a hop by the deciding score of its run."""

    value: float
    stderr: float | None
    name: str
    """The name of the score, the same for all hops of the run."""
    support: bool
    """True if the number is about the run's own answer, for want of references."""
    question: float = 0.0
    """The question's part of the value; 0 if the score has none."""
    through: str = ""
    """The id of the later step from which the answer's part of the value is, if the hop led to it and it has more."""
    stated: bool = False
    """True if the answer's part is the least with which a hop pays, for the first passage that states a reference."""

    undecided: bool = False
    """True if the run's belief does not tell which hops moved it (`RunWork.undecided`)."""

    @property
    def answer(self) -> float:
        """The answer's part of the value."""
        return self.value - self.question

    @property
    def paid(self) -> bool:
        """True if the value is worth naming, and more than two standard errors; of a run whose belief does not tell
        which hops moved it, if the question's part is."""
        gain = self.question if self.undecided else self.value
        return gain >= self.least and is_clear(gain, self.stderr)

    @property
    def lowered(self) -> bool:
        """True if the hop made the answer less likely by as much."""
        return not self.undecided and self.answer <= -self.least and is_clear(self.answer, self.stderr)

    @property
    def least(self) -> float:
        """The least value with which a hop paid."""
        return _LEAST.get(self.name, WORTH_NAMING)


def worth_of_hops(
    scores: Iterable[Score], steps: Sequence[RetrievalStep], reference_came_with: str = ""
) -> Mapping[str, HopWorth]:
    """Returns what each hop of a run was worth, by the id of its step: by the first of the deciding scores that every
    hop has which has any of them; empty if no hop has any.

    The worth is the value of that score; its answer's part is that of the hop or of a hop to which it led, whichever is
    the largest. What rests on references is taken before what rests on the run's own answer.

    Args:
        scores: The scores of the run.
        steps: The steps of the run, in order, with their leads.
        reference_came_with: The id of the first step of which a passage states a reference; of a run of several hops
            its answer's part is at least that with which a hop pays, unless it lowered the belief.
    """
    worth = dict(own_worth(scores))
    brought = worth.get(reference_came_with) if len(worth) > 1 else None
    # A belief that fell is no payment; the logarithm of a small one falls for nothing.
    fell = brought and brought.lowered and brought.name not in _ANSWERS_PART
    if brought and not brought.support and not fell and brought.answer < brought.least:
        worth[reference_came_with] = brought._replace(
            value=brought.question + brought.least, stderr=None, stated=True
        )
    for step in reversed(steps):  # a later hop is settled before the hops that led to it
        gain = worth.get(step.id)
        for source in led_from(step) if gain else ():
            kept = worth.get(source)
            if kept and gain and gain.answer > max(0.0, kept.answer):
                worth[source] = kept._replace(
                    value=kept.question + gain.answer,
                    stderr=gain.stderr,
                    through=gain.through or step.id,
                    stated=False,
                )
    return worth


def own_worth(scores: Iterable[Score]) -> Mapping[str, HopWorth]:
    """Returns what each hop was worth by itself, whatever it led to."""
    found: dict[str, dict[str, Score]] = {}
    for score in scores:
        if score.level == "step" and score.stage == "passages":
            of_name = found.setdefault(score.name, {})
            known = of_name.get(score.step_id)
            if known is None or known.reference_source != "gold" or score.reference_source == "gold":
                of_name[score.step_id] = score
    hops = {step for name in DECIDING for step in found.get(name, ())}
    name = next((name for name in DECIDING if hops and found.get(name, {}).keys() == hops), None)
    if name is None:
        return {}
    parts = found.get(_ANSWERS_PART.get(name, name), {})
    return {
        step: HopWorth(
            score.value, score.stderr, name, score.reference_source == "answer",
            question=score.value - parts[step].value if step in parts else 0.0,
        )
        for step, score in found[name].items()
    }  # fmt: skip
