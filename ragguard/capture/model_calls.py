"""Finds which retrieved passages the model read: those whose texts stand in the input of a later model call of the run.

The hook of a model call keeps a reference to the call's input; texts are compared when the event is read, on the
writer's thread. No input is stored.

    calls.retrieved(step_id, event)       # a retrieval has ended
    calls.asked(key, messages, text_of)   # a model is asked: the retrievals that nothing had read before
    calls.replied(key, reply, text_of)
    calls.read(step_id)                   # the passages that count as read, and what is known about it

The call that counts is the one that answers: the last one whose reply is the run's answer, else the last one. A call
before it counts where its reply stands in the input of one that counts, as an agent's messages and notes do. A grader's
verdict does not: a passage that only a grader saw was not read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ragguard.capture.events import Delivered, StepEnded
from ragguard.capture.words import Sought, Words
from ragguard.records import Decision, Passage

DELIVERED = "ragguard.delivered"
"""Metadata key of a step: `unknown` where it cannot be told which of the retrieved texts the model got, so that all of
them count."""
UNKNOWN = "unknown"
JUDGED_ONLY = "ragguard.judged_only"
"""Metadata key of a step: how many of its candidates stood in the input of a model call that did not lead to the
answer, such as a grader's, and in none that did."""
MOST_CALLS = 256
"""The most model calls of an open run whose inputs are kept; beyond it the oldest are forgotten."""
GUARDED_KEPT = 64
"""The number of a run's latest retrievals to which a guard's decision may belong."""
_VERDICTS = frozenset(
    "yes no true false relevant irrelevant partially not none correct incorrect ambiguous sufficient insufficient"
    " supported unsupported grounded useful good bad score binary_score grade rating 0 1 2 3 4 5 6 7 8 9 10".split()
)
"""Words of graders: a reply that consists of them stands in other inputs by chance."""

TextsOf: TypeAlias = Callable[[Any], Sequence[str]]
"""Returns the texts in a model call's input or reply; called when an event is read."""


def notice(metadata: Mapping[str, Any], counted: int) -> str:
    """Returns the notice that a reader of a step's numbers needs where it is unknown what the model read, or where a
    model judged passages that it did not answer from; else ''."""
    if metadata.get(DELIVERED) == UNKNOWN:
        return f"what the model read is unknown: all {counted} candidates are counted"
    judged = metadata.get(JUDGED_ONLY)
    return f"{judged} of the candidates were only judged by a model, and not read" if judged else ""


@dataclass(slots=True, eq=False)
class ModelCall:
    """One call of a model in a run."""

    number: int
    given: Any
    texts_of: TextsOf
    reply: Any = None
    reply_of: TextsOf | None = None


class ModelCalls:
    """The model calls of one open run, and the retrievals before them."""

    def __init__(self) -> None:
        self._calls: dict[object, ModelCall] = {}
        """The latest calls, by their keys, in the order in which they began."""
        self.asked_so_far = 0
        self._steps: dict[str, tuple[StepEnded, int, Callable[[], Sequence[str]] | None]] = {}
        """Each retrieval that has ended, with the number of the first call that may have read it."""
        self._latest: deque[tuple[str, StepEnded]] = deque(maxlen=GUARDED_KEPT)
        """The latest retrievals, from which a guard may still drop passages."""
        self._decisions: dict[str, Decision] = {}
        self._failed: set[str] = set()
        """The retrievals whose tool failed afterwards: nothing was read from them, whatever else brought the same."""
        self._unread: list[str] = []
        """The retrievals that have ended since a model was last asked."""
        self.answer = ""
        self._words: dict[str, Words] = {}
        """The texts of inputs and replies as they are compared: most of a conversation is in every input."""

    def retrieved(
        self,
        step_id: str,
        event: StepEnded,
        bodies: Callable[[], Sequence[str]] | None = None,
        *,
        followed: bool = True,
    ) -> None:
        """Notes a retrieval that has ended; one that is not `followed` is remembered for guards alone."""
        self._latest.append((step_id, event))
        if not followed:
            return
        self._steps[step_id] = event, self.asked_so_far, bodies
        self._unread.append(step_id)

    def decided(self, step_id: str, decision: Decision) -> None:
        """Notes what a guard has decided about a retrieval: a passage that it dropped and that stands in a prompt came
        there by another retrieval."""
        self._decisions[step_id] = decision

    def failed(self, step_id: str) -> None:
        """Notes that the tool which made a retrieval has failed after it."""
        self._failed.add(step_id)

    def asked(self, key: object, given: Any, texts_of: TextsOf) -> list[str]:
        """Notes that a model is asked; returns the ids of the retrievals that ended since one was asked before."""
        unread, self._unread = self._unread, []
        self._calls[key] = ModelCall(self.asked_so_far, given, texts_of)
        self.asked_so_far += 1
        if len(self._calls) > MOST_CALLS:
            del self._calls[next(iter(self._calls))]
        return unread

    def replied(self, key: object, reply: Any, texts_of: TextsOf) -> None:
        """Notes the reply of a model call."""
        call = self._calls.get(key)
        if call is not None:
            call.reply, call.reply_of = reply, texts_of

    def latest(self) -> list[tuple[StepEnded, Decision | None]]:
        """Returns the latest retrievals, the latest first, each with what the guards behind it have decided."""
        return [(event, self._decisions.get(step_id)) for step_id, event in reversed([*self._latest])]

    def open_questions(self) -> list[str]:
        """Returns the ids of the retrievals of which the end of the run tells more: those after which no model was
        asked, or several times."""
        return [step_id for step_id, (_, first, _) in self._steps.items() if self.asked_so_far - first != 1]

    def read(self, step_id: str) -> Delivered:
        """Returns the passages of a retrieval that count as read, in the order in which the model was given them."""
        if step_id in self._failed:
            return Delivered([], {})
        event, first, bodies = self._steps[step_id]
        decision = self._decisions.get(step_id, event.step.decision)
        gone = () if decision is None else {drop.position for drop in decision.dropped}
        left = [rank for rank in range(1, len(event.step.candidates) + 1) if rank not in gone]
        candidates = [event.step.candidates[rank - 1] for rank in left]
        later = [call for call in list(self._calls.values()) if call.number >= first]
        if not candidates:
            return Delivered(None, {})
        if not later:
            return Delivered(None, {DELIVERED: UNKNOWN})
        counts, sought = (
            self._counting(later),
            Sought(candidates, self._bodies(event, bodies, decision, left)),
        )
        read: dict[int, Passage] = {}
        other: set[int] = set()
        cut = False
        for call in reversed(later):
            there = sought.standing(self._input(call))
            if call in counts:
                cut = cut or there.cut
                read |= {number: one for number, one in there.found if number not in read}
            else:
                other |= {number for number, one in there.found if one.text.strip()}
        about: dict[str, Any] = {}
        if judged := len(other - read.keys()):
            about[JUDGED_ONLY] = judged
        if cut and not any(one.text.strip() for one in read.values()):
            return Delivered(None, {**about, DELIVERED: UNKNOWN})
        return Delivered(list(read.values()), about)

    def _bodies(
        self,
        event: StepEnded,
        bodies: Callable[[], Sequence[str]] | None,
        decision: Decision | None,
        ranks: Sequence[int],
    ) -> list[str]:
        """Returns other texts by which the candidates of these ranks may stand in a prompt: their texts without what
        stands before them, or those that a guard judged."""
        candidates = event.step.candidates
        found = [] if bodies is None else list(bodies())
        if len(found) != len(candidates):
            found = [""] * len(candidates)
        judged = {} if decision is None else {one.id: one.text for one in decision.kept if one.id}
        for rank, one in enumerate(candidates):
            if judged.get(one.id, one.text) != one.text:
                found[rank] = judged[one.id]
        return [found[rank - 1] for rank in ranks]

    def _counting(self, calls: Sequence[ModelCall]) -> list[ModelCall]:
        """Returns the calls that led to the answer, the last one first."""
        answer = Words.of(self.answer).text
        answering = calls[-1]
        if answer:
            may_be = (one for one in reversed(calls) if one.reply_of is None or answer in self._reply(one))
            answering = next(may_be, answering)
        counts, inputs = [answering], [self._input(answering).text]
        for call in reversed(calls[: calls.index(answering)]):
            reply = self._reply(call)
            if set(reply.split()) <= _VERDICTS:
                continue
            if any(f" {reply} " in f" {given} " for given in inputs):
                counts.append(call)
                inputs.append(self._input(call).text)
        return counts

    def _input(self, call: ModelCall) -> Words:
        return self._joined(call.texts_of(call.given))

    def _reply(self, call: ModelCall) -> str:
        return "" if call.reply_of is None else self._joined(call.reply_of(call.reply)).text.strip()

    def _joined(self, texts: Sequence[str]) -> Words:
        for text in texts:
            if text not in self._words:
                self._words[text] = Words.of(text)
        return Words.joined([self._words[text] for text in texts])
