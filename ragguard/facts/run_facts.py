"""Collects what is known about a scored run and its hops, for the explanation in words: texts, utilities, gains of
belief.

This file says nothing in words.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import overload

from ragguard.facts.hop_sentence import HopWork, JointGain, RunWork
from ragguard.facts.hop_worth import HopWorth, own_worth, worth_of_hops
from ragguard.facts.leads import led_from, with_leads
from ragguard.facts.repeats import repeats
from ragguard.facts.scores import CountedScores
from ragguard.facts.steps import StepView, numbered, view_step
from ragguard.facts.verdicts import BeliefGain, Verdict, utility_verdict
from ragguard.records import CUT_PASSAGES, Run, Score
from ragguard.text.numbers import KNOWN_DIGITS
from ragguard.text.statements.denial import stated_in
from ragguard.text.statements.names import absent_names
from ragguard.text.statements.parts import parts_of
from ragguard.text.statements.phrases import findable, mentions

SHOWN_INSTEAD = "ragguard.shown_instead"
"""Metadata key of a run that nobody answered: what was shown in place of an answer, such as a quoted sentence."""
GOLD = 4
"""The least grade of a passage of the pool that is right about its part of the question."""
SURE, HALF = 0.8, 0.5
"""The least belief that is called sure, and the belief under which it is turned."""
ANSWERS = 3
"""The least rating, from 0 to 5, with which a passage is said to answer a sub-question."""


@dataclass(slots=True)
class HopFacts:
    """The passages of one hop by rank, and the verdicts on them."""

    number: int
    turn: int
    query: str
    seen: StepView
    """The step with all that was retrieved."""
    verdicts: dict[int, Verdict] = field(default_factory=dict)
    """The verdicts on the judged passages, by rank."""
    texts: Sequence[str] = field(init=False)
    """The passages in the order of their ranks, those that the model did not get included."""
    read: frozenset[int] = field(init=False)
    """The ranks, from 1, of the passages that the model got."""
    dropped: frozenset[int] = field(init=False)
    """The ranks of the passages that a guard dropped."""

    def __post_init__(self) -> None:
        decision = self.seen.step.decision
        self.texts = [passage.text for passage in self.seen.all]
        self.read = frozenset(at + 1 for at in self.seen.got)
        self.dropped = frozenset(drop.position for drop in decision.dropped) if decision else frozenset()

    @property
    def answers_its_query(self) -> bool | None:
        """True where a passage that was read was judged to answer the query; None where not all were judged."""
        if any(self.verdicts.get(rank) == "helps" for rank in self.read):
            return True
        return False if self.read <= self.verdicts.keys() else None


@dataclass(slots=True)
class RunFacts:
    """The question, answer and hops of a run, and what was judged of them."""

    question: str
    answer: str
    references: Sequence[str]
    hops: Sequence[HopFacts]
    verdict: str = ""
    """The label of `answer_correct`; empty where the answer was not judged."""
    by_judge: bool = False
    """True if a model gave it, and not words by themselves."""
    work: RunWork = field(default_factory=RunWork)
    """The work of the hops: their changes of the belief, and which led to which."""
    worth: Mapping[str, HopWorth] = field(default_factory=dict)
    """The worth of each hop, by the id of its step, as far as it is known."""
    closed_book: BeliefGain | None = None
    """The belief before any retrieval."""
    shown_instead: str = ""
    """The text that was shown in place of an answer; "" if there is an answer."""
    gold: Sequence[str] = ()
    """The texts of the run's pool that are graded as right, or not graded."""
    known: bool = field(init=False)
    """False if a passage has no text, as an image, or as in a folder of scored parts, or some were not captured."""
    divided: str = field(init=False)
    """A reference of several parts that no passage states as a whole; "" for none."""
    sought: Sequence[str] = field(init=False)
    """The texts that passages are searched for: the references, or parts of the divided one (`_sought_parts`)."""
    reference_at: Sequence[tuple[int, int]] = field(init=False)
    """The passages that were read and state one of these, by hop and rank."""

    def __post_init__(self) -> None:
        cut = any(CUT_PASSAGES in passage.metadata for hop in self.hops for passage in hop.seen.all)
        self.known = not cut and all(text.strip() for hop in self.hops for text in hop.texts)
        self.reference_at = self.stating(self.references)
        self.divided, self.sought = "", self.references
        if not self.reference_at and not self.stating(self.references, read=False):
            self.divided = next(filter(parts_of, self.references), "")
        if self.divided:
            self.sought = self._sought_parts()
            self.reference_at = self.stating(self.sought)

    def _sought_parts(self) -> Sequence[str]:
        """Returns all parts of the divided reference if the passages that were read state each of them; else the first
        of those that they do not state, a retrieved one before others. What the answer states is left out."""
        parts = parts_of(self.divided)
        left = [part for part in parts if not stated_in(self.answer, part)] or parts
        missing = [part for part in left if not self.stating([part])]
        retrieved = [part for part in missing if self.stating([part], read=False)]
        return (retrieved or missing)[:1] or (left if left == parts else left[:1])

    def stating(self, texts: Sequence[str], *, read: bool = True) -> list[tuple[int, int]]:
        """Returns the passages, read or unread, that state one of the texts word for word, by hop and rank."""
        phrases = findable(texts) if self.known else []
        return [
            (hop.number, rank)
            for hop in self.hops
            for rank, passage in enumerate(hop.texts, 1)
            if (rank in hop.read) == read and mentions(passage, phrases)
        ]

    @property
    def subject_unread(self) -> list[str]:
        """The names of a query that no passage with a reference has of those that were read, but one that was not: what
        was read has the words of the reference about something else."""
        read = [self.hops[hop - 1].texts[rank - 1] for hop, rank in self.reference_at]
        if any(self.hops[hop - 1].verdicts.get(rank) == "helps" for hop, rank in self.reference_at):
            return []
        for hop, rank in self.stating(self.sought, read=False) if read else ():
            query, text = self.hops[hop - 1].query, self.hops[hop - 1].texts[rank - 1]
            if (names := absent_names(query, read)) and not absent_names(query, [text]):
                return names
        return []

    @property
    def reference_came_with(self) -> str:
        """The id of the first step of which a passage states a reference that the question does not; empty for none."""
        new = [one for one in self.references if not mentions(self.question, findable([one]))]
        whole = len(new) == len(self.references) and not self.divided
        places = self.reference_at if whole else self.stating(new)
        return self.hops[places[0][0] - 1].seen.step.id if places else ""

    @property
    def overturned(self) -> bool:
        """True if the model was sure of the reference before it read anything, and what it read turned that."""
        closed, total = self.closed_book, self.work.total
        if closed is None or total is None or self.work.support or not total.significant:
            return False
        sure = closed.value >= SURE and closed.value - 2 * (closed.stderr or 0.0) > HALF
        return sure and closed.value + total.value < HALF


def facts_of(run: Run, scores: CountedScores) -> RunFacts:
    """Returns what is known of a run by those of its scores that count."""
    run = with_leads(run)
    turns = {step.id: turn for turn, step in numbered(run.steps)}
    hops = [
        HopFacts(
            number, turns[step.id], step.query or run.question, view_step(step, sys.maxsize, turns[step.id])
        )
        for number, step in enumerate(run.steps, 1)
    ]
    by_id = {hop.seen.step.id: hop for hop in hops}
    for score in scores.all:
        if score.name == "utility" and score.position is not None and score.step_id in by_id:
            by_id[score.step_id].verdicts[score.position] = utility_verdict(score.value, score.stderr)
    correct = scores.get("answer_correct")
    facts = RunFacts(
        run.question,
        run.answer or "",
        run.references or (),
        hops,
        verdict="" if correct is None else correct.label,
        by_judge=correct is not None and correct.scorer != "words",
        shown_instead="" if run.answer else str(run.metadata.get(SHOWN_INSTEAD) or ""),
        closed_book=_gain(scores.get("seper_closed_book") or scores.get("likelihood_closed_book")),
        gold=[one.text for one in run.pool or () if one.grade is None or one.grade >= GOLD],
    )
    brought = facts.reference_came_with
    facts.worth = worth_of_hops(scores.all, run.steps, brought)
    facts.work = _work_of(run, hops, scores, facts.worth, brought)
    if facts.work.undecided:
        facts.worth = {step: hop._replace(undecided=True) for step, hop in facts.worth.items()}
    return facts


def _paid_through(scores: CountedScores, worth: Mapping[str, HopWorth]) -> Mapping[str, str]:
    """Returns for each step that paid only by leading to one that paid the id of the latter."""
    own = own_worth(scores.all)
    return {
        step: hop.through
        for step, hop in worth.items()
        if hop.through and hop.paid and not own[step].paid and worth[hop.through].paid
    }


def _work_of(
    run: Run, hops: Sequence[HopFacts], scores: CountedScores, worth: Mapping[str, HopWorth], brought: str
) -> RunWork:
    """Returns what the hops did to the belief, by the scores of beliefs and likelihoods."""
    numbers = {hop.seen.step.id: hop.number for hop in hops}
    paid_through = _paid_through(scores, worth)
    work: list[HopWork] = []
    credits: list[Score] = []
    used: list[Score | None] = []
    for hop in hops:
        step = hop.seen.step

        def score_of(*names: str, step_id: str = step.id) -> Score | None:
            return next((score for name in names if (score := scores.get(name, step_id))), None)

        credit, loss = score_of("credit"), score_of("loss_without")
        added, joint = score_of("delta_seper", "delta_likelihood"), score_of("joint_gain")
        reference = score_of("reference_gain")
        credits += [credit] if credit else []
        used += [credit, loss, added]
        work.append(
            HopWork(
                hop.number, hop.seen.readable, worth=_gain(credit), loss=_gain(loss), added=_gain(added),
                paid_through=numbers.get(paid_through.get(step.id, ""), 0),
                stated=step.id in worth and worth[step.id].stated,
                joint=JointGain(joint.value, reference.value) if joint and reference else None,
                led_by=[
                    sources
                    for lead in step.led_by or ()
                    if (sources := [numbers[id] for id in lead.steps if id in numbers])
                ],
                led_from=[numbers[id] for id in led_from(step) if id in numbers],
            )
        )  # fmt: skip
    sampled, likely = scores.get("delta_seper_total"), scores.get("delta_likelihood_total")
    used += [sampled, likely]
    total = _gain(likely or sampled if credits else sampled or likely)
    if credits and likely is None and not any(_gain(credit).stderr for credit in credits):
        # Credits by likelihood beside sampled answers: they sum to the total of their own kind.
        whole = len(credits) == sum(hop.seen.scored for hop in hops)
        total = BeliefGain(_known(math.fsum(credit.value for credit in credits)), None) if whole else None
    return RunWork(
        work, total, sampled=_gain(sampled),
        support=any(score.reference_source == "answer" for score in used if score),
        repeats=[*map(str, repeats(run.steps))], brought=numbers.get(brought, 0),
    )  # fmt: skip


@overload
def _gain(score: Score) -> BeliefGain: ...
@overload
def _gain(score: Score | None) -> BeliefGain | None: ...
def _gain(score: Score | None) -> BeliefGain | None:
    """Returns the value of a score with its error. A likelihood is exact: an error that rounds to nothing is none."""
    if score is None:
        return None
    error = score.stderr if score.stderr is not None and score.stderr >= 0.005 else None
    return BeliefGain(_known(score.value), None if error is None else _known(error))


def _known(value: float) -> float:
    return round(value, KNOWN_DIGITS)
