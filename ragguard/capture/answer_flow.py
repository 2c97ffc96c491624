"""Finds the model calls of a run whose outputs go into its answer, by the texts alone.

A call counts if its reply is the answer; of several equal replies the last one counts, and the last one that was given
a retrieved passage. If no reply is the answer, the last one counts in which the answer stands; else all that stand in
the answer; else the last call. A call before one that counts does so, too, if its reply or one of its requests for
tools stands in the input of that call, where it did not stand before.

A reply of a few words that the call was offered ("yes or no?") stands in other texts by chance: it has to be a text, a
line or a field there of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ragguard.capture.call_paths import CallPath
from ragguard.capture.passage_search import PassageSearch, words
from ragguard.capture.shapes import ModelContent

Texts: TypeAlias = Callable[[], ModelContent]
"""Returns what is in a model call's input or reply; called when an event is read."""
_OFFERED_WORDS = 3
"""The most words of a reply that may be one of the choices in a prompt."""
NOTHING_GIVEN = ModelContent([], [], [])


@dataclass(slots=True, eq=False)
class ModelCall:
    """One call of a model in a run, with functions that return what is in its input and in its reply."""

    number: int
    given: Texts
    path: CallPath = ()
    reply: Texts | None = None
    copies: dict[str, list[int]] = field(default_factory=dict)
    """The places of passages in the input, of those that several retrievals have found."""
    _input: ModelContent | None = None
    _reply: tuple[Texts, ModelContent] | None = None

    @property
    def input(self) -> ModelContent:
        """The content of the call's input."""
        if self._input is None:
            self._input = self.given()
        return self._input

    @property
    def output(self) -> ModelContent:
        """The content of the call's reply; nothing where it is not known."""
        if self.reply is None:
            return NOTHING_GIVEN
        if self._reply is None or self._reply[0] is not self.reply:
            self._reply = self.reply, self.reply()
        return self._reply[1]


class Flow:
    """The model calls of a run by what became of their outputs."""

    def __init__(
        self,
        calls: Sequence[ModelCall],
        answer: str,
        searches: Sequence[tuple[int, PassageSearch]],
        *,
        has_ended: bool,
    ) -> None:
        """Takes the calls in their order, and of each retrieval the number of the first call that may have read it, and
        the search for its passages."""
        self._searches = searches
        self._first_in: dict[str, int] = {}
        for call in calls:
            for text in call.input.texts:
                self._first_in.setdefault(text, call.number)
        self._replies = {call: _joined(call.output.texts) for call in calls}
        self.unknown = {call for call in calls if call.reply is None} if has_ended else set()
        self.counts = self._answering(calls, answer)
        for call in reversed(calls):
            if call not in self.counts and any(
                self._flows(call, other) for other in self.counts if other.number > call.number
            ):
                self.counts.add(call)

    def newest_first(self, call: ModelCall, number: int) -> list[str]:
        """Returns the texts of a call's input: those that no call before this number was given, then the others. An
        earlier retrieval's copy of a passage is no place of a later one."""
        return sorted(call.input.texts, key=lambda text: self._first_in[text] < number)

    def _answering(self, calls: Sequence[ModelCall], answer: str) -> set[ModelCall]:
        known, wanted = [call for call in calls if self._replies[call]], words.of(answer)
        if wanted:
            if equal := [call for call in known if self._replies[call] == wanted]:
                return {equal[-1], self._last_given(equal)}
            if around := [call for call in known if f" {wanted} " in f" {self._replies[call]} "]:
                return {around[-1], self._last_given(around)}
            if inside := {call for call in known if self._stands(call, answer)}:
                return inside
            return {calls[-1]}
        return {calls[-1]} - self.unknown

    def _last_given(self, calls: Sequence[ModelCall]) -> ModelCall:
        """Returns the last of these calls that was given a passage; the last one where none was."""
        if len(calls) == 1:
            return calls[0]
        for call in reversed(calls):
            if any(
                search.places(text).whole
                for first, search in self._searches
                if first <= call.number
                for text in call.input.texts
            ):
                return call
        return calls[-1]

    def _flows(self, call: ModelCall, other: ModelCall) -> bool:
        """True if what a call gave stands in the input of another one."""
        given, own = other.input, call.input
        for request in call.output.calls:
            if request in given.calls and request not in own.calls:
                return True
            if request.id in given.results and not any(one.id == request.id for one in given.calls):
                return True
        texts = [text for text in given.texts if self._first_in[text] > call.number]
        return bool(self._replies[call]) and any(self._stands(call, text) for text in texts)

    def _stands(self, call: ModelCall, text: str) -> bool:
        """True if the reply of a call stands in a text, at the bounds of words."""
        reply = self._replies[call]
        there = words.of(text)
        if f" {reply} " not in f" {there} ":
            return False
        if there == reply or reply.count(" ") >= _OFFERED_WORDS or not self._was_offered(call):
            return True
        raw = "|".join(re.escape(one.strip().rstrip(".!")) for one in call.output.texts if one.strip())
        own = rf"(?:\A|[\n:>|\[{{=])[ \t\"'`*]*(?:{raw})[.!]?[ \t\"'`*]*(?:\Z|[\n|)\]}}<,;])"
        return re.search(own, text, re.IGNORECASE) is not None

    def _was_offered(self, call: ModelCall) -> bool:
        """True if the reply of a call stands in the call's own input, outside of the retrieved passages."""
        reply, searches = (
            self._replies[call],
            [search for first, search in self._searches if first <= call.number],
        )
        for text in call.input.texts:
            left = words.of(text)
            if f" {reply} " not in f" {left} ":
                continue
            for search in searches:
                left = search.left_of(left)
            if f" {reply} " in f" {left} ":
                return True
        return False


def _joined(texts: Sequence[str]) -> str:
    return " ".join(filter(None, map(words.of, texts)))
