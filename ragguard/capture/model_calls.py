"""Finds which retrieved passages the model read: those whose texts stand in the input of a later model call of the run.

The hook of a model call keeps a reference to the call's input; texts are compared when the event is read, on the
writer's thread, by their words: without case, punctuation and white space. A text counts as a whole or not at all. No
input is stored.

    calls.retrieved(step_id, event)       # a retrieval has ended
    calls.asked(key, texts)               # a model is asked: the retrievals that nothing had read before
    calls.replied(key, texts)
    calls.read(step_id)                   # the passages that count as read, and what is known about it

The call that counts is the one that answers: the last one whose reply is the run's answer, else the last one and those
whose replies stand in the answer, as where an answer is put together from several. A call before it counts where its
reply stands in the input of one that counts, as an agent's messages and notes do. A grader's verdict does not: a
passage that only a grader saw was not read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, TypeAlias

from ragguard.capture.events import Delivered, StepEnded
from ragguard.records import Decision, Passage
from ragguard.text.words import running_words

_HEAD_WORDS, _HEAD_LETTERS = 5, 15
"""The least words, and characters of words, at the beginning of a passage that show, without the rest, that it was
cut."""
_ESCAPED = re.compile(r"\\u([0-9a-f]{4})", re.IGNORECASE)


class Sought:
    """Passages that are looked for in texts; what they are compared by is made once."""

    def __init__(self, passages: Sequence[Passage], bodies: Sequence[str] = ()) -> None:
        """Takes the passages, and their texts without what stands before them in there, which count as well."""
        self.passages = passages
        texts = [*((number, one.text) for number, one in enumerate(passages)), *enumerate(bodies)]
        forms = [(number, text.strip(), running_words(text)) for number, text in texts]
        self._forms = sorted((form for form in forms if form[2]), key=lambda form: -len(form[2]))
        with_words = {number for number, _, _ in self._forms}
        self._wordless = {number: one for number, one in enumerate(passages) if number not in with_words}

    def standing(self, words: str) -> tuple[dict[int, Passage], bool]:
        """Returns the passages whose words stand in those of a text, by their indices and in the order of the text, and
        whether the beginning of another one stands there without its end. Passages without words come last, since their
        absence cannot be seen.

        Longer ones are looked for first, and words of the text count once, so that a passage which is a part of another
        one is not found in it.
        """
        left = f" {words} "
        at: dict[int, tuple[int, str]] = {}
        for number, text, its_words in self._forms:
            begin = -1 if number in at else left.find(f" {its_words} ")
            if begin >= 0:
                at[number] = begin, text
                left = left[: begin + 1] + "\0" * len(its_words) + left[begin + 1 + len(its_words) :]
        heads = (_head(its_words) for number, _, its_words in self._forms if number not in at)
        order = sorted(at, key=lambda number: (at[number][0], number))
        found = {}
        for number in order:
            one, text = self.passages[number], at[number][1]
            found[number] = one if one.text.strip() == text else replace(one, text=text)
        return found | self._wordless, any(head and f" {head} " in left for head in heads)


def input_words(text: str) -> str:
    """Returns the words of a model's input or reply, without the notation of JSON."""
    if text.lstrip()[:1] in ("[", "{"):
        try:
            return running_words("\n".join(_strings(json.loads(text))))
        except (ValueError, RecursionError):
            pass
    return running_words(_ESCAPED.sub(lambda found: chr(int(found[1], 16)), text))


def _head(words: str) -> str:
    """Returns the first words of a passage; '' for one that has no more than these."""
    end, counted = 0, 0
    while counted < _HEAD_WORDS or end < _HEAD_LETTERS:
        end, counted = words.find(" ", end + 1), counted + 1
        if end < 0:
            return ""
    return words[:end]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        value = [part for item in value.items() for part in item]
    if isinstance(value, list):
        for inner in value:
            yield from _strings(inner)
    else:
        yield str(value)


DELIVERED = "ragguard.delivered"
"""Metadata key of a step: `unknown` where it cannot be told which of the retrieved texts the model got, so that all of
them count."""
UNKNOWN = "unknown"
JUDGED_ONLY = "ragguard.judged_only"
"""Metadata key of a step: how many of its candidates stood in the input of a model call that did not lead to the
answer, such as a grader's, and in none that did."""
MOST_CALLS = 256
"""The most model calls of an open run whose inputs are kept; beyond it the oldest are forgotten."""
STEPS_KEPT = 1024
"""The number of ended steps of an open run that are remembered, so that they can be amended."""
GUARDED_KEPT = 64
"""The number of a run's latest retrievals to which a guard's decision may belong."""
_VERDICTS = frozenset(
    "yes no true false relevant irrelevant partially not none correct incorrect ambiguous sufficient insufficient"
    " supported unsupported grounded useful good bad score binary_score grade rating 0 1 2 3 4 5 6 7 8 9 10".split()
)
"""Words of graders: a reply that consists of them stands in other inputs by chance."""

Texts: TypeAlias = Callable[[], Sequence[str]]
"""Returns the texts in a model call's input or reply; called when an event is read."""
Bodies: TypeAlias = Callable[[], dict[str, str]]
"""Returns the texts of candidates without what stands before them there, by the whole texts."""


def notice(metadata: Mapping[str, Any], counted: int) -> str:
    """Returns the notice that a reader of a step's numbers needs where it is unknown what the model read, or where a
    model judged passages that it did not answer from; else ''."""
    if metadata.get(DELIVERED) == UNKNOWN:
        return f"what the model read is unknown: all {counted} candidates are counted"
    judged = metadata.get(JUDGED_ONLY)
    return f"{judged} of the candidates were only judged by a model, and not read" if judged else ""


@dataclass(slots=True, eq=False)
class ModelCall:
    """One call of a model in a run, with functions that return the texts in its input and in its reply."""

    number: int
    given: Texts
    reply: Texts | None = None


@dataclass(slots=True, eq=False)
class EndedStep:
    """A retrieval of an open run that has ended."""

    event: StepEnded
    first: int
    """The number of the first model call that may have read it."""
    bodies: Bodies | None = None
    is_followed: bool = True
    """True where its passages are sought in the inputs of model calls."""
    has_failed: bool = False
    """True where the tool that made it failed afterwards: nothing of it was read."""
    decision: Decision | None = None
    """The decision of the guards behind it."""


class ModelCalls:
    """The model calls of one open run, and the retrievals before them."""

    def __init__(self) -> None:
        self._calls: dict[object, ModelCall] = {}
        """The latest calls, by their keys, in the order in which they began."""
        self.asked_so_far = 0
        self.steps: dict[str, EndedStep] = {}
        """The latest retrievals that have ended, in the order of their ends."""
        self.answer = ""
        self._words: dict[str, str] = {}
        """The texts of inputs and replies as they are compared: most of a conversation is in every input."""

    def retrieved(
        self, step_id: str, event: StepEnded, bodies: Bodies | None = None, *, followed: bool = True
    ) -> None:
        """Notes a retrieval that has ended; one that is not `followed` is remembered for guards alone."""
        self.steps[step_id] = EndedStep(event, self.asked_so_far, bodies, followed)
        if len(self.steps) > STEPS_KEPT:
            del self.steps[next(iter(self.steps))]

    def asked(self, key: object, given: Texts) -> list[str]:
        """Notes that a model is asked; returns the ids of the retrievals that ended since one was asked before."""
        since = takewhile(lambda item: item[1].first == self.asked_so_far, reversed(self.steps.items()))
        unread = [step_id for step_id, step in since if step.is_followed]
        self._calls[key] = ModelCall(self.asked_so_far, given)
        self.asked_so_far += 1
        if len(self._calls) > MOST_CALLS:
            del self._calls[next(iter(self._calls))]
        return unread[::-1]

    def replied(self, key: object, reply: Texts) -> None:
        """Notes the reply of a model call."""
        if (call := self._calls.get(key)) is not None:
            call.reply = reply

    def latest(self) -> list[tuple[StepEnded, Decision | None]]:
        """Returns the latest retrievals, the latest first, each with what the guards behind it have decided."""
        latest = [step for step in reversed(self.steps.values()) if not step.has_failed][:GUARDED_KEPT]
        return [(step.event, step.decision) for step in latest if step.event.step.status == "ok"]

    def open_questions(self) -> list[str]:
        """Returns the ids of the retrievals of which the end of the run tells more: those after which no model was
        asked, or several times."""
        return [
            step_id
            for step_id, step in self.steps.items()
            if step.is_followed and self.asked_so_far - step.first != 1
        ]

    def read(self, step_id: str) -> Delivered:
        """Returns the passages of a retrieval that count as read, in the order in which the model was given them."""
        ended = self.steps[step_id]
        if ended.has_failed:
            return Delivered([], {})
        event = ended.event
        decision = event.step.decision if ended.decision is None else ended.decision
        candidates = event.step.candidates if decision is None else decision.of(event.step.candidates)
        later = [call for call in list(self._calls.values()) if call.number >= ended.first]
        if not candidates:
            return Delivered(None, {})
        if not later:
            return Delivered(None, {DELIVERED: UNKNOWN})
        # A prompt may hold a text without what stands before it, or as a guard has judged it.
        bodies = {} if ended.bodies is None else ended.bodies()
        kept = {} if decision is None else {one.id: one.text for one in decision.kept if one.id}
        bodies |= {one.text: kept[one.id] for one in candidates if kept.get(one.id, one.text) != one.text}
        others = [bodies.get(one.text, "") for one in candidates]
        counts, sought = self._counting(later), Sought(candidates, others)
        read: dict[int, Passage] = {}
        other: set[int] = set()
        cut = False
        for call in reversed(later):
            found, is_cut = sought.standing(self._input(call))
            if call in counts:
                cut = cut or is_cut
                read |= {number: one for number, one in found.items() if number not in read}
            else:
                other |= {number for number, one in found.items() if one.text.strip()}
        about: dict[str, Any] = {}
        if judged := len(other - read.keys()):
            about[JUDGED_ONLY] = judged
        if cut and not any(one.text.strip() for one in read.values()):
            return Delivered(None, {**about, DELIVERED: UNKNOWN})
        return Delivered(list(read.values()), about)

    def _counting(self, calls: Sequence[ModelCall]) -> list[ModelCall]:
        """Returns the calls that led to the answer, the last one first."""
        answer = input_words(self.answer)
        may_be = (one for one in reversed(calls) if one.reply is None or answer in self._reply(one))
        whole = next(may_be, None)
        answering = whole or calls[-1]
        counts, inputs = [answering], [self._input(answering)]
        if whole is None:
            inputs.append(answer)
        for call in reversed(calls[: calls.index(answering)]):
            reply = self._reply(call)
            if set(reply.split()) <= _VERDICTS:
                continue
            if any(f" {reply} " in f" {given} " for given in inputs):
                counts.append(call)
                inputs.append(self._input(call))
        return counts

    def _input(self, call: ModelCall) -> str:
        return self._joined(call.given())

    def _reply(self, call: ModelCall) -> str:
        return "" if call.reply is None else self._joined(call.reply())

    def _joined(self, texts: Sequence[str]) -> str:
        for text in texts:
            if text not in self._words:
                self._words[text] = input_words(text)
        return " ".join(filter(None, (self._words[text] for text in texts)))
