"""Explains a scored run in words: what decided its answer, which hops paid, and which passage states a wrong answer.

Sentences are templates over facts: in which passages the answer and the reference stand word for word, which passages
were judged to answer their hop's query, and which changes of belief exceed two standard errors. No model is asked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ragguard.facts.run_facts import HopFacts, RunFacts, facts_of, findable, mentions, names_in
from ragguard.facts.scores import CountedScores
from ragguard.facts.verdicts import BeliefGain
from ragguard.metrics.answers import is_abstention
from ragguard.records import Run, Score
from ragguard.text.language import normalise
from ragguard.text.secret_filter import strip_control_characters

Cause = Literal[
    "", "right", "unsupported", "nothing_read", "not_found", "dropped", "missing_hop", "misled", "contested",
    "not_used", "needless_abstention",
]  # fmt: skip
"""The cause of an answer. `right`, or right and `unsupported` by passages; otherwise the answer is wrong or an
abstention:

- `nothing_read`: no passage reached the model.
- `not_found`: no passage that was retrieved states the reference.
- `dropped`: only passages that the model did not get state the reference.
- `missing_hop`: the reference was read, but another hop found nothing for its query.
- `misled`: a passage that was judged relevant or harmful states the wrong answer, and none the reference.
- `contested`: one passage states the wrong answer, another one the reference.
- `not_used`: the reference was read, and the answer stands in no passage.
- `needless_abstention`: the reference was read, and no answer given.

Empty: the answer was not judged, cannot be looked for in texts, or has the reference's words though it was judged
wrong."""
_SHOWN = 3
"""The most hops, and places of passages, that a sentence names."""
_LONGEST_SHOWN = 80
"""The most characters of a text that is quoted."""
Place = tuple[int, int]
"""A passage as its hop and its rank, both from 1."""


@dataclass(frozen=True, slots=True)
class Bridge:
    """A hop whose own gain is small, and on which the gain of a later hop depends."""

    later: HopFacts
    name: str
    """The name that this hop found and the later one asks for; empty where none is known."""

    @property
    def remark(self) -> str:
        """A sentence on what the later hop gains after this hop, and what it gains without it."""
        after, alone = (0.0 if gain is None else gain.value for gain in (self.later.gain, self.later.alone))
        asks = f"; it asks for {_quoted(self.name)}, found here" if self.name else ""
        worth = f"{after:+z.2f} after this hop and {alone:+z.2f} without it"
        return f"bridge: hop {self.later.number} is worth {worth}{asks}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """The words about a run, and what they rest on."""

    cause: Cause
    sentences: Sequence[str]
    sources: frozenset[Place] = frozenset()
    """The passages that state the wrong answer of a wrong run."""
    stating: frozenset[Place] = frozenset()
    """The passages that were read and state a reference."""
    answering: frozenset[Place] = frozenset()
    """The passages that were read and state the answer, right or wrong."""
    bridges: Mapping[int, Bridge] = field(default_factory=dict)
    """The hops that a later one needed, by number."""

    @property
    def text(self) -> str:
        """All sentences in one line; empty where there is nothing to say."""
        return " ".join(self.sentences)

    def as_dict(self) -> dict[str, Any]:
        """Returns plain data for JSON."""
        return {
            "cause": self.cause,
            "explanation": self.text,
            "wrong_passages": [{"hop": hop, "rank": rank} for hop, rank in sorted(self.sources)],
            "bridges": [
                {"hop": hop, "to": bridge.later.number, "name": bridge.name}
                for hop, bridge in sorted(self.bridges.items())
            ],
        }


def explain(run: Run, scores: Iterable[Score]) -> Explanation:
    """Explains a run by its scores."""
    return explain_facts(facts_of(run, CountedScores([*scores])))


def explain_facts(facts: RunFacts) -> Explanation:
    """Explains a run by what is known of it."""
    answer = _AnswerEvidence(facts)
    cause, about_answer = answer.explain()
    bridges = dict(_bridges(facts))
    stating = frozenset(answer.reference_at)
    return Explanation(
        cause,
        [sentence for sentence in (about_answer, _about_hops(facts, bridges)) if sentence],
        sources=frozenset(answer.places) - stating if facts.verdict == "wrong" else frozenset(),
        stating=stating,
        answering=frozenset(answer.places),
        bridges=bridges,
    )


class _AnswerEvidence:
    """The passages that state the answer of a run, and those that state a reference."""

    def __init__(self, facts: RunFacts) -> None:
        self._facts = facts
        self._known = all(text.strip() for hop in facts.hops for text in hop.texts)
        """False where a passage has no text, as an image, or as in a folder of scored parts."""
        self._reference_findable = self._known and bool(findable(facts.references))
        self.reference_at = self._stating(facts.references)
        """The passages that were read and state a reference."""
        found = ((part, self._stating([part])) for part in self._parts())
        self.phrase, self.places = next((one for one in found if one[1]), (facts.answer, []))
        """The answer, or what of it a passage has (a reference, or else a name), and the passages that were read and
        state it."""
        self._verdicts = {facts.hops[hop - 1].verdicts.get(rank) for hop, rank in self.places}
        """The verdicts on the passages that state the answer."""
        self._believed = "helps" in self._verdicts
        """True where one of these was judged to answer its hop's query."""

    def _stating(self, texts: Sequence[str], *, read: bool = True) -> list[Place]:
        """Returns the passages, read or unread, that state one of the texts word for word."""
        phrases = findable(texts) if self._known else []
        return [
            (hop.number, rank)
            for hop in self._facts.hops
            for rank, passage in enumerate(hop.texts, 1)
            if (rank in hop.read) == read and mentions(passage, phrases)
        ]

    def _parts(self) -> Iterable[str]:
        """Yields the answer, the references in it, then its names that neither question, queries nor references
        have."""
        facts = self._facts
        yield facts.answer
        yield from (one for one in facts.references if mentions(facts.answer, findable([one])))
        known = (facts.question, *facts.references, *(hop.query for hop in facts.hops))
        for name in names_in(facts.answer):
            if not any(mentions(text, findable([name])) for text in known):
                yield name

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
        source = f"{_quoted(self.phrase)} is in {_places(self.places)}" if says else ""
        if not self._reference_findable:
            return "", f"{outcome}: {source}." if source else ""
        reference = f"reference {_quoted(facts.references[0])}"
        if verdict == "wrong" and mentions(facts.answer, findable(facts.references)):
            return "", f"Judged wrong, though the answer has the words of the {reference}."
        if self.reference_at:
            return self._though_read(outcome, source, reference)
        return self._unread(outcome, source, reference)

    def _right(self, *, supported: bool) -> tuple[Cause, str]:
        facts, quoted = self._facts, _quoted(self._facts.answer)
        right = "Right" if normalise(facts.answer) in map(normalise, facts.references) else "Judged right"
        found = ""
        if self.places:
            found = f"{_quoted(self.phrase)} is in {_places(self.places)}"
        elif self.reference_at:
            found = f"the reference {_quoted(facts.references[0])} is in {_places(self.reference_at)}"
        elif supported and self._known and findable([facts.answer]):
            found = f"{quoted} is in no passage that was read"
        if supported:
            return "right", f"{right}: {found}." if found else f"{right}."
        but = f", but no passage that was read supports {quoted}"
        if found:
            but = f": {found}, though the judge calls no passage that was read relevant"
        return "unsupported", f"{right}{but}."

    def _unjudged(self) -> str:
        """Returns where the answer stands, and a reference that it does not have."""
        facts, reference = self._facts, ""
        if not self.places:
            sought = self._known and facts.hops and findable([facts.answer])
            if not sought or is_abstention(facts.answer):
                return ""
            return f"The answer {_quoted(facts.answer)} is in no passage that was read."
        if self._reference_findable and not mentions(facts.answer, findable(facts.references)):
            at = _places(self.reference_at).partition(" ")[2] if self.reference_at else "none that was read"
            reference = f", the reference {_quoted(facts.references[0])} in {at}"
        return f"The answer {_quoted(self.phrase)} is in {_places(self.places)}{reference}."

    def _though_read(self, outcome: str, source: str, reference: str) -> tuple[Cause, str]:
        """Explains a wrong answer or an abstention of a model that did read a passage with the reference."""
        at = _places(self.reference_at)
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
        if unread := self._stating(facts.references, read=False):
            hop, rank = unread[0]
            lost = "the guard dropped" if rank in facts.hops[hop - 1].dropped else "the model did not get"
            also = f" {source}." if source else ""
            return "dropped", f"{outcome}: the {reference} is in {_places(unread)}, which {lost}.{also}"
        missing = self._missing()
        more = f" {missing[0].upper()}{missing[1:]}." if missing else ""
        if not source:
            return "not_found", f"{outcome}: the {reference} is in no passage that was read.{more}"
        misled = self._believed or ("misleads" in self._verdicts and not missing)
        said = f"{outcome}: {source}, the {reference} in none that was read.{more}"
        return "misled" if misled else "not_found", said

    def _missing(self) -> str:
        """Returns which hop found nothing for its query; "" for none. A hop that found the reference found something,
        whatever the judge says of it."""
        facts, stating = self._facts, {hop for hop, _ in self.reference_at}
        answered = {
            normalise(hop.query) for hop in facts.hops if hop.answers_its_query or hop.number in stating
        }
        answered.add(normalise(facts.question) if len(facts.hops) > 1 else "")
        without = [
            str(hop.number)
            for hop in facts.hops
            if hop.answers_its_query is False and normalise(hop.query) not in answered
        ]
        if not without:
            return ""
        if len(without) == 1:
            return f"hop {without[0]} found nothing that answers its query"
        return f"hops {_first(without)} found nothing that answers their queries"


def _bridges(facts: RunFacts) -> Iterable[tuple[int, Bridge]]:
    """Yields the hops without a gain of their own on which the gain of a later hop depends, by number."""
    for place, later in enumerate(facts.hops):
        if later.gain is None or later.alone is None or not later.gain.significant or later.gain.value < 0:
            continue
        errors = math.hypot(later.gain.stderr or 0.0, later.alone.stderr or 0.0)
        more = later.gain.value - later.alone.value
        if more < 0 or not BeliefGain(more, errors).significant:
            continue
        earlier = [
            hop
            for hop in facts.hops[:place]
            if hop.turn < later.turn and hop.gain is not None and not hop.gain.significant
        ]
        named = [(hop, name) for hop in earlier if (name := _found_name(facts.question, hop, later.query))]
        helpful = [(hop, "") for hop in earlier if hop.answers_its_query]
        for hop, name in named or helpful:
            yield hop.number, Bridge(later, name)


def _found_name(question: str, hop: HopFacts, query: str) -> str:
    """Returns the longest name in a later query that the question does not have and that a passage of the hop has."""
    found = [
        name
        for name in names_in(query)
        if (phrase := findable([name]))
        and not mentions(question, phrase)
        and any(mentions(hop.texts[rank - 1], phrase) for rank in hop.read)
    ]
    return max(found, key=len, default="")


def _about_hops(facts: RunFacts, bridges: Mapping[int, Bridge]) -> str:
    """Returns the sentence about what the hops did to the belief; "" where no gain is known."""
    gains = [(hop, hop.gain) for hop in facts.hops if hop.gain is not None]
    if not gains:
        return ""
    paid = [(hop, gain) for hop, gain in gains if gain.significant and gain.value > 0]
    lost = [(hop, gain) for hop, gain in gains if gain.significant and gain.value < 0]
    in_what = " in this answer" if facts.support else ""
    if not (paid or lost):
        return f"No hop moved the belief{in_what} measurably."
    clauses: list[str] = []
    if paid:
        clauses.append(_hops(paid, f"raised the belief{in_what}" if facts.support else "paid"))
        clauses += [
            f"hop {number} found {_quoted(bridge.name) if bridge.name else 'what'}{', which' if bridge.name else ''} "
            f"hop {bridge.later.number} {'asks for' if bridge.name else 'needed'}"
            for number, bridge in list(bridges.items())[:_SHOWN]
        ]
    if lost:
        clauses.append(_hops(lost, f"lowered the belief{in_what}"))
    sentence = "; ".join(clauses)
    return f"{sentence[0].upper()}{sentence[1:]}."


def _hops(gains: Sequence[tuple[HopFacts, BeliefGain]], did: str) -> str:
    """Returns what hops did, with their gains; the first ones where there are many."""
    if len(gains) == 1:
        return f"hop {gains[0][0].number} {did} ({gains[0][1]})"
    return f"hops {_first([f'{hop.number} ({gain})' for hop, gain in gains])} {did}"


def _first(items: Sequence[str]) -> str:
    """Returns the first items in words, and how many more there are."""
    more = [f"{len(items) - _SHOWN} more"] if len(items) > _SHOWN else []
    *most, last = [*items[:_SHOWN], *more]
    return f"{', '.join(most)} and {last}" if most else last


def _places(places: Sequence[Place]) -> str:
    """Returns passages by hop and rank."""
    shown = [f"{hop}.{rank}" for hop, rank in places]
    return f"passage{'' if len(places) == 1 else 's'} {_first(shown)}"


def _quoted(text: str) -> str:
    line = strip_control_characters(" ".join(text.split()))
    return f"“{line if len(line) <= _LONGEST_SHOWN else line[: _LONGEST_SHOWN - 1] + '…'}”"
