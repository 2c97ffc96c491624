"""Explains a scored run in words: what decided its answer, which hops paid, and which passage states a wrong answer.

Sentences are templates over facts: in which passages the answer and the reference stand word for word, which passages
were judged to answer their hop's query, and which changes of belief exceed two standard errors. No model is asked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ragguard.facts.blame import LeadPlaces, Place, blamed, is_bridge, leads_of
from ragguard.facts.hop_sentence import first_of, hop_sentence
from ragguard.facts.run_facts import RunFacts, facts_of
from ragguard.facts.scores import CountedScores
from ragguard.records import Run, Score
from ragguard.text.language import normalise
from ragguard.text.secret_filter import strip_control_characters
from ragguard.text.statements.abstention import is_abstention
from ragguard.text.statements.denial import stated_in
from ragguard.text.statements.kinds import DATED
from ragguard.text.statements.names import forms_of, names_in
from ragguard.text.statements.parts import parts_of
from ragguard.text.statements.phrases import findable, mentions

Cause = Literal[
    "", "right", "unsupported", "nothing_read", "not_found", "dropped", "missing_hop", "misled", "contested",
    "not_used", "needless_abstention", "overturned",
]  # fmt: skip
"""The cause of an answer; `CAUSES` in `ragguard.facts.causes` has the meaning of each. Empty: the answer was not
judged, cannot be looked for in texts, or has the reference's words though it was judged wrong."""
_FAILED = frozenset({"not_found", "missing_hop", "misled", "contested", "not_used", "needless_abstention"})
"""The causes of runs that read something and failed."""
BLAMING = ("misled", "overturned", "contested")
"""The causes that blame passages."""
_LONGEST_SHOWN = 80
"""The most characters of a text that is quoted."""


_Claim = tuple[str, Sequence[Place]]
"""A text of the answer, and the passages that state it."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The words about a run, and what they rest on."""

    cause: Cause
    sentences: Sequence[str]
    sources: frozenset[Place] = frozenset()
    """The passages to blame for the wrong answer of a wrong run: those that state it, or led to them."""
    wrong: frozenset[Place] = frozenset()
    """The passages that were read and state the wrong answer of a wrong run."""
    stating: frozenset[Place] = frozenset()
    """The passages that were read and state a reference."""
    answering: frozenset[Place] = frozenset()
    """The passages that were read and state the answer, right or wrong."""
    leads: Sequence[LeadPlaces] = ()
    """The words that the queries of hops took from passages."""

    @property
    def led_astray(self) -> frozenset[Place]:
        """The passages that led to one with the wrong answer, and do not state it."""
        return self.sources - self.wrong

    @property
    def blamed(self) -> frozenset[Place]:
        """The passages with the wrong answer, if the cause of the run is that it was read."""
        return self.wrong if self.cause in BLAMING else frozenset()

    @property
    def text(self) -> str:
        """All sentences in one line; empty where there is nothing to say."""
        return " ".join(self.sentences)

    def as_dict(self) -> dict[str, Any]:
        """Returns plain data for JSON."""
        return {
            "cause": self.cause,
            "explanation": self.text,
            "wrong_passages": [{"hop": hop, "rank": rank} for hop, rank in sorted(self.wrong)],
            "led_astray_by": [{"hop": hop, "rank": rank} for hop, rank in sorted(self.led_astray)],
            "led_by": [
                {"hop": hop, "words": words, "from": [{"hop": at, "rank": rank} for at, rank in places]}
                for hop, words, places in self.leads
            ],
        }


def explain(run: Run, scores: Iterable[Score]) -> Explanation:
    """Explains a run by its scores."""
    return explain_facts(facts_of(run, CountedScores([*scores])))


def explain_facts(facts: RunFacts) -> Explanation:
    """Explains a run by what is known of it."""
    answer = _AnswerEvidence(facts)
    cause, about_answer = answer.explain()
    stating = frozenset(facts.reference_at)
    if cause in _FAILED and facts.overturned and facts.closed_book is not None:
        cause = "overturned"
        about_answer += (
            f" Without passages the model believed in the reference ({facts.closed_book.value:.2f})."
        )
    return Explanation(
        cause,
        [sentence for sentence in (about_answer, hop_sentence(facts.work)) if sentence],
        sources=answer.sources - stating,
        wrong=frozenset(answer.places) - stating if answer.sources else frozenset(),
        stating=stating,
        answering=frozenset(answer.places),
        leads=[*leads_of(facts)],
    )


class _AnswerEvidence:
    """The passages that state the answer of a run, and those that state a reference."""

    def __init__(self, facts: RunFacts) -> None:
        self._facts = facts
        self._reference_findable = facts.known and bool(findable(facts.sought))
        found = (self._claims(texts) for texts in self._parts())
        self.claims: Sequence[_Claim] = next(filter(None, found), [])
        """The answer, or what of it passages have (a reference, its parts, or else a name), and the passages that were
        read and state it."""
        self.places = sorted({place for _, places in self.claims for place in places})
        self._believed = any(facts.hops[hop - 1].verdicts.get(rank) == "helps" for hop, rank in self.places)
        """True if one of these was judged to answer its hop's query."""
        wrong = facts.verdict == "wrong"
        self.sources = blamed(facts, self.places) if wrong else frozenset()
        """The passages to blame for a wrong answer."""

    def _claims(self, texts: Sequence[str]) -> Sequence[_Claim]:
        """Returns which passages state each of some texts of the answer; of a right answer nothing unless each is
        stated."""
        claims = [(text, places) for text in texts if (places := self._stating(text))]
        return claims if self._facts.verdict == "wrong" or len(claims) == len(texts) else []

    def _stating(self, part: str) -> list[Place]:
        """Returns the passages that were read and state a part of the answer as one; of a wrong answer, not what the
        question says itself, nor what only led to another hop."""
        facts = self._facts
        if facts.verdict == "wrong" and (
            mentions(facts.question, findable([part])) or is_bridge(facts, part)
        ):
            return []
        return [place for place in facts.stating([part]) if not self._is_in_date(part, place)]

    def _is_in_date(self, part: str, place: Place) -> bool:
        """Returns whether a number of an answer stands in a passage only as a day of a date, and not so in the answer:
        31 of "31 pence" in "31 March 2026"."""
        facts, (hop, rank) = self._facts, place
        if not part.isdigit() or len(part) > 2 or part == facts.answer:
            return False
        texts = (facts.answer, facts.hops[hop - 1].texts[rank - 1])
        in_answer, in_passage = (mentions(DATED.sub(" ", text), findable([part])) for text in texts)
        return in_answer and not in_passage

    def _parts(self) -> Iterable[Sequence[str]]:
        """Yields the answer, the references that it states, as it spells them, its parts, of a wrong one those that no
        reference has, then its names that neither question, queries nor references have."""
        facts = self._facts
        yield [facts.answer]
        yield from ([text] for one in facts.references if (text := stated_in(facts.answer, one)))
        wrong, right = facts.verdict == "wrong", (*facts.references, *facts.sought)
        parts = parts_of(facts.answer)
        yield [
            part for part in parts if not wrong or not any(mentions(text, findable([part])) for text in right)
        ]
        known = (facts.question, *facts.references, *(hop.query for hop in facts.hops))
        for name in names_in(facts.answer):
            for form in forms_of(name, facts.answer):
                if stated_in(facts.answer, form) and not any(
                    mentions(text, findable([form])) for text in known
                ):
                    yield [form]

    def explain(self) -> tuple[Cause, str]:
        """Returns what decided the answer, and the sentence about it."""
        facts, verdict = self._facts, self._facts.verdict
        if verdict.startswith("correct"):
            return self._right(supported=verdict == "correct")
        if verdict not in ("wrong", "abstained"):
            return "", self._unjudged()
        outcome = "Wrong" if verdict == "wrong" else "Abstained"
        if not any(hop.read for hop in facts.hops):
            retrieved = any(hop.texts for hop in facts.hops)
            why = "none of the passages reached the model" if retrieved else "no passage was retrieved"
            return "nothing_read", f"{outcome}: {why}."
        says = self.places and verdict == "wrong"
        source = f"{_standing(self.claims)}{self._astray()}" if says else ""
        if not self._reference_findable:
            return "", f"{outcome}: {source}." if source else ""
        reference = self._reference()
        if verdict == "wrong" and mentions(facts.answer, findable(facts.sought)):
            return "", f"Judged wrong, though the answer has the words of the {reference}."
        if self._facts.reference_at and not self._facts.subject_unread:
            return self._though_read(outcome, source, reference)
        return self._unread(outcome, source, reference)

    def _right(self, *, supported: bool) -> tuple[Cause, str]:
        facts, quoted = self._facts, _quoted(self._facts.answer)
        right = "Right" if normalise(facts.answer) in map(normalise, facts.references) else "Judged right"
        found = ""
        if self.places:
            found = _standing(self.claims)
        elif self._facts.reference_at:
            found = f"the {self._reference()} is in {_places(self._facts.reference_at)}"
        elif supported and facts.by_judge and facts.known and findable([facts.answer]):
            found = f"{quoted} is in no passage that was read"
        if supported:
            return "right", f"{right}: {found}." if found else f"{right}."
        but = f", but no passage that was read supports {quoted}"
        if found:
            but = f": {found}"
            if facts.by_judge:
                but += ", though the judge calls no passage that was read relevant"
        return "unsupported", f"{right}{but}."

    def _reference(self) -> str:
        """Returns the reference, or the part of it that is looked for, in words."""
        facts = self._facts
        if facts.divided and len(facts.sought) == 1:
            return f"part {_quoted(facts.sought[0])} of the reference"
        return f"reference {_quoted(facts.divided or facts.references[0])}"

    def _unjudged(self) -> str:
        """Returns where the answer stands, and a reference that it does not have."""
        facts, reference = self._facts, ""
        if facts.shown_instead:
            return strip_control_characters(" ".join(facts.shown_instead.split()))
        if not self.places:
            sought = facts.known and facts.hops and findable([facts.answer])
            if not sought or is_abstention(facts.answer):
                return ""
            return f"The answer {_quoted(facts.answer)} is in no passage that was read."
        if self._reference_findable and not mentions(facts.answer, findable(facts.sought)):
            at = (
                _places(self._facts.reference_at).partition(" ")[2]
                if self._facts.reference_at
                else "none that was read"
            )
            reference = f", the {self._reference()} in {at}"
        return f"The answer {_standing(self.claims)}{reference}."

    def _though_read(self, outcome: str, source: str, reference: str) -> tuple[Cause, str]:
        """Explains a wrong answer or an abstention of a model that did read a passage with the reference."""
        at = _places(self._facts.reference_at)
        missing = "" if source and self._believed else self._missing()
        if missing:
            first = f"{source}. The" if source else "the"
            return "missing_hop", f"{outcome}: {first} {reference} is in {at}, but {missing}."
        if source:
            return "contested", f"{outcome}: {source}, the {reference} in {at.partition(' ')[2]}."
        cause: Cause = "not_used" if outcome == "Wrong" else "needless_abstention"
        return cause, f"{outcome}, though the {reference} is in {at}."

    def _unread(self, outcome: str, source: str, reference: str) -> tuple[Cause, str]:
        """Explains a wrong answer or an abstention of a model that read no passage with the reference."""
        facts = self._facts
        if unread := self._facts.stating(facts.sought, read=False):
            hop, rank = unread[0]
            lost = "the guard dropped" if rank in facts.hops[hop - 1].dropped else "the model did not get"
            also = f" {source}." if source else ""
            if names := facts.subject_unread:
                has = "have" if len(facts.reference_at) > 1 else "has"
                read = _places(facts.reference_at).capitalize()
                also += f" {read}, which it got, {has} the words, but not {_quoted(names[0])}."
            return "dropped", f"{outcome}: the {reference} is in {_places(unread)}, which {lost}.{also}"
        # A hop that found what misled is no hop that is missing.
        missing = self._missing(besides={hop for hop, _ in self.places} if source else ())
        more = f" {missing[0].upper()}{missing[1:]}." if missing else ""
        if not source:
            return "not_found", f"{outcome}: the {reference} is in no passage that was read.{more}"
        return "misled", f"{outcome}: {source}, the {reference} in none that was read.{more}"

    def _astray(self) -> str:
        """Returns the clause about passages that led to those which state the wrong answer; "" for none."""
        earlier = sorted(self.sources - {*self.places})
        return f", to which {_places(earlier)} led" if earlier else ""

    def _missing(self, besides: Collection[int] = ()) -> str:
        """Returns the sentence about the hops, besides some, that found nothing for their queries; "" for none."""
        without = [str(hop) for hop in self._without() if hop not in besides]
        if not without:
            return ""
        if len(without) == 1:
            return f"hop {without[0]} found nothing that answers its query"
        return f"hops {first_of(without)} found nothing that answers their queries"

    def _without(self) -> list[int]:
        """Returns the hops that found nothing for their queries. A hop that found the reference found something,
        whatever the judge says of it."""
        facts, stating = self._facts, {hop for hop, _ in self._facts.reference_at}
        answered = {
            normalise(hop.query) for hop in facts.hops if hop.answers_its_query or hop.number in stating
        }
        answered.add(normalise(facts.question) if len(facts.hops) > 1 else "")
        return [
            hop.number
            for hop in facts.hops
            if hop.answers_its_query is False and normalise(hop.query) not in answered
        ]


def _places(places: Sequence[Place]) -> str:
    """Returns passages by hop and rank."""
    shown = [f"{hop}.{rank}" for hop, rank in places]
    return f"passage{'' if len(places) == 1 else 's'} {first_of(shown)}"


def _standing(claims: Sequence[_Claim]) -> str:
    """Returns texts with the passages that state them: “A” is in passage 1.1, “B” in 2.1."""
    (text, places), *others = claims
    more = (f", {_quoted(other)} in {_places(at).partition(' ')[2]}" for other, at in others)
    return f"{_quoted(text)} is in {_places(places)}{''.join(more)}"


def _quoted(text: str) -> str:
    line = strip_control_characters(" ".join(text.split()))
    return f"“{line if len(line) <= _LONGEST_SHOWN else line[: _LONGEST_SHOWN - 1] + '…'}”"
