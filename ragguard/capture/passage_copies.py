"""Decides to which of several retrievals that have found the same passage its copies in a model's input belong.

A copy belongs to the retrievals that are nearest to the model call in the tree of calls. Of several that are equally
near, the first copy is that of the first retrieval, and so on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from ragguard.capture.answer_flow import ModelCall
from ragguard.capture.call_paths import CallPath, shared_depth
from ragguard.capture.passage_search import PassageSearch, words


class Found(Protocol):
    """A retrieval that has ended; `ragguard.capture.model_calls.EndedStep` describes it."""

    first: int
    path: CallPath

    @property
    def place(self) -> tuple[int, int]:
        """The turn of the retrieval, and its place in the run."""

    @property
    def request(self) -> str:
        """The id of the tool call in which it was made; '' where it is not known."""


class PassageCopies:
    """The copies of one retrieval's passages in the inputs of model calls."""

    def __init__(
        self, step: Found, search: PassageSearch, others: Sequence[tuple[Found, PassageSearch]]
    ) -> None:
        """Takes the retrieval, the search for its passages, and the run's other retrievals with theirs."""
        self._step, self._search = step, search
        self._rivals = [
            (other, its_search)
            for other, its_search in others
            if other is not step and not search.written.keys().isdisjoint(its_search.written)
        ]

    def of_others(self, call: ModelCall) -> set[int]:
        """Returns the passages of which a call's copies belong to retrievals that are nearer to the call."""
        own = shared_depth(self._step.path, call.path)
        return {
            number
            for other, its_search in self._before(call)
            if shared_depth(other.path, call.path) > own
            for text in its_search.written
            for number in self._search.written.get(text, ())
        }

    def in_order(self, call: ModelCall, whole: Mapping[int, str]) -> dict[int, str]:
        """Returns the passages that stand in a call's input, in the order of the copies that belong to this retrieval;
        in that of the candidates where this cannot be told."""
        own = shared_depth(self._step.path, call.path)
        earlier: Counter[str] = Counter()
        turn, _ = place = self._step.place
        for other, its_search in self._before(call):
            shared = {text for number, text in whole.items() if text in its_search.written}
            if not shared or shared_depth(other.path, call.path) != own:
                continue
            if other.place[0] == turn and (
                not self._step.request or other.request in ("", self._step.request)
            ):
                return dict(sorted(whole.items()))
            if other.place < place:
                for text in shared:
                    earlier[text] += len(its_search.written[text])
        return self._by_copies(call, whole, earlier) if earlier else dict(whole)

    @staticmethod
    def _by_copies(call: ModelCall, whole: Mapping[int, str], earlier: Counter[str]) -> dict[int, str]:
        """Returns passages in the order of their copies, after the `earlier` ones of other retrievals."""
        places = _places(call.input.texts, whole, earlier.copy(), call.copies)
        if places is None:
            by_words: Counter[str] = Counter()
            for text, count in earlier.items():
                by_words[words.of(text)] += count
            forms = {number: words.of(text) for number, text in whole.items()}
            places = _places([*map(words.of, call.input.texts)], forms, by_words, {})
        places = places or {number: number for number in whole}
        return {number: whole[number] for number in sorted(places, key=lambda one: (places[one], one))}

    def _before(self, call: ModelCall) -> list[tuple[Found, PassageSearch]]:
        return [rival for rival in self._rivals if rival[0].first <= call.number]


def _places(
    texts: Sequence[str], sought: Mapping[int, str], earlier: Counter[str], known: dict[str, list[int]]
) -> dict[int, int] | None:
    """Returns the places of passages in these texts, after the `earlier` copies of each; None if one has none. `known`
    remembers the places of all copies."""
    given, places = "", dict[int, int]()
    for number, text in sorted(sought.items()):
        if text not in known:
            given = given or "\n\0\n".join(texts)
            known[text] = [*_copies(text, given)]
        if earlier[text] >= len(known[text]):
            return None
        places[number] = known[text][earlier[text]]
        earlier[text] += 1
    return places


def _copies(text: str, given: str) -> Iterator[int]:
    """Yields the places of a text that begin and end with words."""
    at = given.find(text)
    while at >= 0:
        end = at + len(text)
        if not given[at - 1 : at].isalnum() and not given[end : end + 1].isalnum():
            yield at
        at = given.find(text, end)
