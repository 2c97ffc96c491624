"""Says in one sentence what the hops of a run did to the belief and which hop led to which, from their numbers.

Each clause is a claim that is true of the numbers; what they do not show is said as that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ragguard.facts.verdicts import BeliefGain
from ragguard.metrics.credit import joint_gain
from ragguard.text.numbers import as_shown

NEEDED = 0.5
"""The least share of the run's gain that is lost without a hop that was needed."""
JOINT_PAYS = 0.25
"""The least `joint_gain` with which a hop paid. On 24 questions of MuSiQue and HotpotQA 21 of 24 useless hops have a
smaller one, and 6 of 52 needed ones (`docs/studies/credit.md`)."""
_SHOWN = 3
"""The most hops that a clause names."""


class JointGain(NamedTuple):
    """How a hop or passage bears on question and answer together, in nats."""

    value: float
    reference: float
    """The reference's part: how much less probable the reference is without it."""

    @classmethod
    def of(cls, question: float, reference: float) -> JointGain:
        """Returns the joint gain of these parts; the question's is counted above the run's usual one."""
        return cls(joint_gain(question, reference), reference)

    def __str__(self) -> str:
        return f"question {self.question:+.2f}, reference {self.reference:+.2f}"

    @property
    def question(self) -> float:
        """The question's part: how much likelier it makes the question than the run's passages do on average."""
        return self.value - self.reference

    @property
    def paid(self) -> bool:
        """True if the hop may be said to have paid."""
        return self.value >= JOINT_PAYS


@dataclass(frozen=True, slots=True)
class HopWork:
    """The work of one hop in its run, as far as it is known."""

    number: int
    """The number of the hop, from 1."""
    read: bool = True
    """False if the model got nothing to read of it."""
    worth: BeliefGain | None = None
    """The credit: its worth among all hops of the run."""
    loss: BeliefGain | None = None
    """The loss of belief without it."""
    added: BeliefGain | None = None
    """The gain when it came, after the hops before it."""
    led_by: Sequence[Sequence[int]] = ()
    """The numbers of the hops from which its query took words; several at one place cannot be told apart."""
    led_from: Sequence[int] = ()
    """The numbers of those without which its query could not have been asked (`ragguard.facts.leads.led_from`)."""
    paid_through: int = 0
    """The number of the hop that paid and to which it led, if it paid by that only; 0 for none."""
    stated: bool = False
    """True if it paid since it brought the first passage that states a reference, not by what the belief did."""
    joint: JointGain | None = None
    """The bearing of the hop on question and answer together; only of runs of several hops."""


@dataclass(frozen=True, slots=True)
class RunWork:
    """The work of the hops of a run together."""

    hops: Sequence[HopWork] = ()
    total: BeliefGain | None = None
    """The change of the belief by all hops."""
    sampled: BeliefGain | None = None
    """The same by sampled answers, if that is known and has an error."""
    support: bool = False
    """True if the belief is in the run's own answer, for want of references."""
    brought: int = 0
    """The number of the hop with the first passage that states a reference; 0 if none does."""
    repeats: Sequence[str] = ()
    """Clauses about hops that asked what an earlier one had asked."""
    words: str = field(init=False)
    """The belief in words."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", "the belief in this answer" if self.support else "the belief")

    @property
    def undecided(self) -> bool:
        """True if the belief does not tell which hops moved it: its sampled answers show no clear change of the run
        whose hops have credit by likelihood, or another one than the likelihood does."""
        return _is_only_likelier(self) or _is_contradicted(self)


def hop_sentence(run: RunWork) -> str:
    """Returns the sentence about the hops of a run; empty if nothing is known of them."""
    asked = [hop for hop in run.hops if _bears_on_question(hop)]
    clauses = [*_about_belief(run, asked), *map(_about_question, asked[:_SHOWN]), *_about_leads(run)]
    clauses += run.repeats[:_SHOWN]
    if not clauses:
        return ""
    sentence = "; ".join(clauses)
    return f"{sentence[0].upper()}{sentence[1:]}."


def is_measurable(gain: BeliefGain | None) -> bool:
    """Returns whether a change is 0.05 at least and outside its error."""
    return gain is not None and gain.worth_naming


def _bears_on_question(hop: HopWork) -> bool:
    """Returns whether a hop paid by what it does to the question, as a bridge does, and not by what it does to the
    answer."""
    return hop.joint is not None and hop.joint.paid and hop.joint.question > hop.joint.reference


def _about_question(hop: HopWork) -> str:
    assert hop.joint is not None
    parts = f"{as_shown(hop.joint.question):+z.2f} of it by the question"
    return f"hop {hop.number} bears on the question (joint gain {as_shown(hop.joint.value):+z.2f}, {parts})"


def _about_belief(run: RunWork, asked: Sequence[HopWork]) -> Iterable[str]:
    """Yields what the hops did to the belief; nothing if it was not scored. `asked` are hops that paid otherwise."""
    hops = run.hops
    by_credit = any(hop.worth for hop in hops)
    value = {hop.number: hop.worth if by_credit else hop.added for hop in hops}
    scored = [hop for hop in hops if value[hop.number] is not None]
    if not scored:
        return
    if by_credit and _is_only_likelier(run):
        yield f"retrieval changed {run.words} by {run.sampled}, which is no clear change"
        yield from _about_reference(run)
        return
    if by_credit and _is_contradicted(run):
        yield _about_contradiction(run)
        yield from _about_reference(run)
        return
    needed = _needed(hops, scored, run.total)
    moved = [hop for hop in scored if hop not in needed and is_measurable(value[hop.number])]
    missed = [hop for hop in scored if hop not in needed and hop not in moved and is_measurable(hop.loss)]
    if not (needed or moved or missed):
        yield _about_nothing(run, scored)
        yield from _about_reference(run)
        return
    if needed:
        yield _about_needed(needed, run.total)
    raised = [hop for hop in moved if (gain := value[hop.number]) and gain.value > 0]
    when = "" if by_credit else " when it came" if len(raised) == 1 else " when they came"
    if raised:
        replaceable = (
            by_credit and len(raised) > 1 and all(hop.loss and not is_measurable(hop.loss) for hop in raised)
        )
        but = f", though {run.words} stays if any single one of them is left out" if replaceable else ""
        yield f"{_did(raised, value, f'raised {run.words}{when}')}{but}"
    lowered = [hop for hop in moved if hop not in raised]
    if lowered:
        yield _did(lowered, value, f"lowered {run.words}")
    for hop in missed[:_SHOWN]:
        would = "lower" if hop.loss and hop.loss.value > 0 else "higher"
        yield f"without hop {hop.number} {run.words} would be {would} ({_lost(hop)})"
    # A hop that led to another one, or bears on the question, did something, whatever the belief says of it.
    led = {number for hop in (*needed, *raised) for sources in hop.led_by for number in sources}
    named = (*needed, *moved, *missed, *asked, *(hop for hop in hops if hop.paid_through or hop.stated))
    idle = [hop for hop in scored if hop not in named and hop.read and hop.number not in led]
    if idle:
        yield f"{_hops(idle)} added nothing measurable"
    if any(hop.stated for hop in hops if hop not in (*needed, *moved)):
        yield from _about_reference(run)
    if empty := [hop for hop in hops if not hop.read]:
        yield f"{_hops(empty)} gave the model nothing to read"
    if unscored := [hop for hop in hops if hop.read and hop not in scored]:
        yield f"what {_hops(unscored)} did was not measured"


def _about_reference(run: RunWork) -> Iterable[str]:
    """Yields which hop brought the reference, by words; nothing if a clause about leads says it."""
    if len(run.hops) > 1 and run.brought and run.brought not in _paid_through(run):
        yield f"by words, hop {run.brought} brought the reference"


def _paid_through(run: RunWork) -> set[int]:
    """Returns the hops for which an earlier one paid that led to them; none if the belief does not tell who paid."""
    return set() if run.undecided else {hop.paid_through for hop in run.hops}


def _is_only_likelier(run: RunWork) -> bool:
    """Returns whether credit is by likelihood, which has no error, while the sampled answers show no clear change."""
    return _has_both(run) and not is_measurable(run.sampled)


def _is_contradicted(run: RunWork) -> bool:
    """Returns whether the sampled answers show a clear change of the run that its likelihood does not show, or one the
    other way."""
    if not _has_both(run) or not is_measurable(run.sampled) or run.total is None:
        return False
    assert run.sampled is not None
    return not is_measurable(run.total) or (run.total.value > 0) != (run.sampled.value > 0)


def _has_both(run: RunWork) -> bool:
    """Returns whether credit is by likelihood, which has no error, and the run's change is known by sampled answers."""
    exact = any(hop.worth and not hop.worth.stderr for hop in run.hops)
    return exact and run.sampled is not None and bool(run.sampled.stderr)


def _about_contradiction(run: RunWork) -> str:
    return (
        f"retrieval changed {run.words} by {run.sampled} in sampled answers and by {run.total} by likelihood, so no "
        f"hop can be named"
    )


def _about_nothing(run: RunWork, scored: Sequence[HopWork]) -> str:
    """Returns what can be said if no hop did anything measurable."""
    total = run.total
    if total is None:
        return f"what the hops did to {run.words} together is not known; none changed it measurably by itself"
    if not is_measurable(total):
        return f"no hop moved {run.words} measurably"
    did = "raised" if total.value > 0 else "lowered"
    unsigned = str(BeliefGain(abs(total.value), total.stderr)).removeprefix("+")
    which = "which of the hops did" if len(scored) > 2 else "which of the two hops did"
    if len(scored) == 1:
        return f"retrieval {did} {run.words} by {unsigned}"
    return f"retrieval {did} {run.words} by {unsigned}; the numbers do not say {which}"


def _is_needed(hop: HopWork, total: BeliefGain | None) -> bool:
    """Returns whether a run that gained loses at least half of the gain without a hop."""
    if hop.loss is None or total is None or not is_measurable(total) or not is_measurable(hop.loss):
        return False
    return total.value > 0 and hop.loss.value >= NEEDED * total.value


def _needed(
    hops: Sequence[HopWork], scored: Sequence[HopWork], total: BeliefGain | None
) -> Sequence[HopWork]:
    """Returns the hops without which the run loses most of its gain, and those without which these could not have been
    asked."""
    # Of a run of one hop, what is lost without the hop is what the run gained.
    needed = {hop.number for hop in scored if len(hops) > 1 and _is_needed(hop, total)}
    for hop in reversed(hops):
        if hop.number in needed:
            needed |= {*hop.led_from}
    return [hop for hop in hops if hop.number in needed]


def _about_needed(hops: Sequence[HopWork], total: BeliefGain | None) -> str:
    if len(hops) == 1:
        return f"hop {hops[0].number} was needed (without it: {_lost(hops[0])})"
    lost = [f"without hop {hop.number}: {_lost(hop)}" for hop in hops if _is_needed(hop, total)]
    without = ", ".join([*lost[:_SHOWN], *(["…"] if len(lost) > _SHOWN else [])])
    return f"{_hops(hops)} were {'both' if len(hops) == 2 else 'all'} needed ({without})"


def _lost(hop: HopWork) -> str:
    assert hop.loss is not None
    return f"{as_shown(-hop.loss.value):+z.2f}"


def _about_leads(run: RunWork) -> list[str]:
    """Returns which hop led to which, a chain as one clause, and for which of them another hop paid."""
    chains: list[list[int]] = []
    ties: list[str] = []
    through = _paid_through(run)
    paid = {
        hop.number: "brought the reference" if hop.stated else "paid"
        for hop in run.hops
        if hop.number in through
    }
    for hop in run.hops:
        for sources in dict.fromkeys(map(tuple, hop.led_by)):
            if len(sources) > 1:
                ties.append(f"{first_of([f'hop {one}' for one in sources], 'or')} led to hop {hop.number}")
            elif chain := next((chain for chain in chains if chain[-1] == sources[0]), None):
                chain.append(hop.number)
            elif [sources[0], hop.number] not in chains:
                chains.append([sources[0], hop.number])
    led = [_chain(chain, paid) for chain in chains] + ties
    return [*led[:_SHOWN], *([f"{len(led) - _SHOWN} more queries took words"] if len(led) > _SHOWN else [])]


def _chain(chain: Sequence[int], paid: Mapping[int, str]) -> str:
    """Returns the clause about hops each of which led to the next; `paid`: what those did for which an earlier hop
    paid."""
    begin, *between, last = chain
    ends = f"hop {last}{f', which {paid[last]}' if last in paid else ''}"
    if len(between) >= _SHOWN:
        by = "".join(f" by hop {number}, which {paid[number]}," for number in between if number in paid)
        return f"hop {begin} led to hop {between[0]}, and so on{by} to {ends}"
    steps = [
        f"hop {number}, which {f'{paid[number]} and ' if number in paid else ''}led to " for number in between
    ]
    return f"hop {begin} led to {''.join(steps)}{ends}"


def _did(hops: Sequence[HopWork], value: dict[int, BeliefGain | None], what: str) -> str:
    """Returns what hops did, each with its number."""
    if len(hops) == 1:
        return f"{_hops(hops)} {what} ({value[hops[0].number]})"
    return f"{_hops(hops, lambda hop: f' ({value[hop.number]})')} {what}"


def _hops(hops: Sequence[HopWork], more: Callable[[HopWork], str] = lambda _: "") -> str:
    return f"hop{'' if len(hops) == 1 else 's'} {first_of([f'{hop.number}{more(hop)}' for hop in hops])}"


def first_of(items: Sequence[str], conjunction: str = "and") -> str:
    """Returns the first items in words, and how many more there are."""
    more = [f"{len(items) - _SHOWN} more"] if len(items) > _SHOWN else []
    *most, last = [*items[:_SHOWN], *more]
    return f"{', '.join(most)} {conjunction} {last}" if most else last
