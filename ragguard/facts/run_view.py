"""The view of a scored run that every output shows: the terminal, the page, the list of runs, JSON.

A printer decides how a run looks; what is so of it, and in which words, is decided here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ragguard.facts.explanation import Explanation, explain_facts
from ragguard.facts.hop_worth import HopWorth
from ragguard.facts.run_facts import HopFacts, facts_of
from ragguard.facts.scores import CountedScores, Way, remarks_on_ways, ways_of
from ragguard.facts.steps import StepView
from ragguard.facts.verdicts import (
    BRINGS,
    PassageVerdict,
    Tone,
    Verdict,
    passage_verdict,
    tone_of,
    utility_verdict,
)
from ragguard.records import FEEDBACK, Failure, Passage, RetrievalStep, Run, Score, Stage

CONFIRMED = "ragguard.confirmed_cause"
"""Metadata key of a run: the cause of its answer that a counter-test has confirmed (`ragguard try-again`)."""
STATES = {"open": "running", "ok": "", "interrupted": "waits to go on"}
"""The words that are shown for the status of a run; other statuses are shown as they are."""


@dataclass(frozen=True, slots=True)
class PassageView:
    """A passage of a hop, and what it did."""

    rank: int
    passage: Passage
    read: bool
    """True if the model got it."""
    verdict: PassageVerdict
    utility: float | None = None
    """The utility by its score, else by the guard that dropped it; None where neither is known."""
    effect: Verdict | None = None
    """The verdict by the utility, or by whether the passage brings the answer if there is no utility."""
    tone: Tone = ""
    """The colour of the utility."""


@dataclass(frozen=True, slots=True)
class HopView:
    """A hop of a run: its step, what was found, and the numbers that count."""

    number: int
    """The place among the hops, from 1."""
    step: RetrievalStep
    seen: StepView
    passages: Sequence[PassageView]
    scores: Sequence[Score]
    """The scores of the step and its passages that count."""
    counted: CountedScores
    worth: HopWorth | None = None
    """The worth of the hop; None if that is not known."""

    def find(self, name: str, stage: Stage = "passages") -> Score | None:
        """Returns the hop's score of a name; None where there is none."""
        return self.counted.get(name, self.step.id, stage)

    @property
    def misleading(self) -> int:
        """How many passages that the model read mislead."""
        return sum(one.read and one.effect == "misleads" for one in self.passages)


class RunView:
    """A run as it is shown: its answer and what decided it, its hops, its numbers, and what could not be scored."""

    def __init__(
        self,
        run: Run,
        scores: Sequence[Score] = (),
        failures: Sequence[Failure] = (),
        ways: Sequence[Way] | None = None,
    ) -> None:
        """Takes a run with its results. `ways` are the ways in which it was scored, if only the scores of those that
        count are given."""
        self.run = run
        self.failures = failures
        self.counted = CountedScores(scores)
        self._facts = facts_of(run, self.counted)
        self.explanation: Explanation = explain_facts(self._facts)
        if ways is None:
            ways = ways_of(scores) if len(self.counted.all) < len(scores) else ()
        self.remarks = remarks_on_ways(ways)
        """Sentences on how the run was scored that a reader of its numbers has to know."""

    @cached_property
    def hops(self) -> list[HopView]:
        """The hops in their order."""
        of_step, worth = self.counted.by_step(), self._facts.worth
        return [
            _hop_view(
                hop,
                of_step.get(hop.seen.step.id, ()),
                self.explanation,
                self.counted,
                worth.get(hop.seen.step.id),
            )
            for hop in self._facts.hops
        ]

    def find(self, name: str, stage: Stage = "passages") -> Score | None:
        """Returns the score of the run as a whole; None where there is none."""
        return self.counted.get(name, "", stage)

    def feedback(self, name: str) -> str:
        """Returns the thumb or the note that a user gave; empty if the metadata hold something else under that key."""
        feedback = self.run.metadata.get(FEEDBACK)
        return str(feedback.get(name) or "") if isinstance(feedback, dict) else ""

    @property
    def answer_verdict(self) -> str:
        """The label of `answer_correct`; empty where the answer was not judged."""
        correct = self.find("answer_correct")
        return "" if correct is None else correct.label

    @property
    def answer_tone(self) -> Tone:
        """The colour of the verdict on the answer."""
        verdict = self.answer_verdict
        return "good" if verdict == "correct" else "bad" if verdict.startswith("wrong") else ""

    @property
    def state(self) -> str:
        """The status in words; empty for a run that ended well."""
        return STATES.get(self.run.status, self.run.status)

    @property
    def provisional(self) -> bool:
        """True if scores were given while the run was open and may still change."""
        return any(score.provisional for score in self.counted.all)

    @property
    def misleading(self) -> int:
        """How many passages that the model read mislead."""
        return sum(hop.misleading for hop in self.hops)

    @property
    def worst(self) -> float | None:
        """The least utility of a passage that the model read; None where none was judged."""
        known = (one.utility for hop in self.hops for one in hop.passages if one.read)
        return min((utility for utility in known if utility is not None), default=None)


def _hop_view(
    hop: HopFacts,
    scores: Sequence[Score],
    explanation: Explanation,
    counted: CountedScores,
    worth: HopWorth | None,
) -> HopView:
    seen, step = hop.seen, hop.seen.step
    drops = {drop.position: drop for drop in step.decision.dropped} if step.decision else {}
    read_as = {seen.all[at].id: at + 1 for at in seen.got if at >= seen.candidates and seen.all[at].id}
    judged = {one.position: one for one in scores if one.name == "utility"}
    brings = {one.position: one.value for one in scores if one.name == "brings_answer"}
    passages = []
    for rank, passage in enumerate(seen.all, 1):
        drop, score = drops.get(rank), judged.get(rank)
        utility, stderr = (score.value, score.stderr) if score else (drop.utility if drop else None, None)
        verdict = None if utility is None else utility_verdict(utility, stderr)
        if verdict is None and rank in brings:
            verdict = "helps" if brings[rank] >= BRINGS else "does little"
        place = hop.number, rank
        read = rank in hop.read and drop is None
        words = passage_verdict(
            verdict,
            read=read,
            dropped=None if drop is None else drop.reason,
            read_as=0 if read or drop else read_as.get(passage.id, 0),
            states_wrong=place in explanation.wrong,
            led_astray=place in explanation.led_astray,
            states_reference=place in explanation.stating,
        )
        tone = words.tone or ("" if verdict is None else tone_of(verdict))
        passages.append(PassageView(rank, passage, read, words, utility=utility, effect=verdict, tone=tone))
    return HopView(
        hop.number,
        step,
        seen,
        passages,
        scores=scores,
        counted=counted,
        worth=worth,
    )
