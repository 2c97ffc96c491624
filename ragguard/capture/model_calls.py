"""Decides which retrieved passages the model read, by the flow of data: those that stand in the input of a model call
of the run whose output goes into the answer.

The hook of a model call keeps a reference to the call's input; texts are compared when the event is read, on the
writer's thread (`capture/passage_search.py`). No input is stored.

    calls.retrieved(step_id, event)       # a retrieval has ended
    calls.asked(key, given)               # a model is asked: the retrievals that nothing had read before
    calls.replied(key, reply)
    calls.read(step_id)                   # the passages that count as read, and what is known about it

A call counts if its reply is the answer, stands in it, or has it; or if its reply, or one of its requests for tools,
stands in the input of a later call that counts (`capture/answer_flow.py`). A passage that only a grader saw was not
read. What a call was given whose reply is not known is `unknown`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, TypeAlias

from ragguard.capture.answer_flow import NOTHING_GIVEN, Flow, ModelCall, Texts
from ragguard.capture.call_paths import CallPath
from ragguard.capture.events import Delivered, StepEnded
from ragguard.capture.passage_copies import PassageCopies
from ragguard.capture.passage_search import PassageSearch
from ragguard.records import Decision, Passage, RetrievalStep
from ragguard.runtime.faults import NOTICES

DELIVERED = "ragguard.delivered"
"""Metadata key of a step: `unknown` where it cannot be told which of the retrieved texts the model got, so that all of
them count."""
UNKNOWN = "unknown"
TOOL_CALL = "tool_call_id"
"""Metadata key of a step that was made in a tool call: the call's id."""
JUDGED_ONLY = "ragguard.judged_only"
"""Metadata key of a step: how many of its candidates stood in the input of a model call that did not lead to the
answer, such as a grader's, and in none that did."""
MOST_CALLS = 256
"""The most model calls of an open run whose inputs are kept; beyond it the oldest are forgotten."""
STEPS_KEPT = 1024
"""The number of ended steps of an open run that are remembered, so that they can be amended."""
GUARDED_KEPT = 64
"""The number of a run's latest retrievals to which a guard's decision may belong."""
_FORGOTTEN = (
    f"a run asked a model more than {MOST_CALLS} times: its first calls are forgotten. What the model read in them "
    f"is `unknown`, so all candidates of their retrievals count as read. (Logged once)"
)
REWRITTEN = "ragguard.rewritten_by"
"""Metadata key of a passage: the component that put it in after the retrieval, or wrote its text."""
REWRITINGS_KEPT = 64
"""The number of a run's latest rewritings that are remembered."""
Bodies: TypeAlias = Callable[[], dict[str, str]]
"""Returns the texts of candidates without what stands before them there, by the whole texts."""


def notice(metadata: Mapping[str, Any], counted: int) -> str:
    """Returns the notice that a reader of a step's numbers needs where it is unknown what the model read, or where a
    model judged passages that it did not answer from; else ''."""
    if metadata.get(DELIVERED) == UNKNOWN:
        return f"what the model read is unknown: all {counted} candidates count as read"
    judged = metadata.get(JUDGED_ONLY)
    return f"{judged} of the candidates were only judged by a model, and not read" if judged else ""


@dataclass(slots=True, eq=False)
class Rewriting:
    """The work of a component that was given retrieved passages and gave others: windows around sentences, the parents
    or the neighbours of chunks, shortened texts."""

    by: str
    given: frozenset[str]
    """The ids of the passages that it was given."""
    gave: Callable[[], Sequence[Passage]]
    bodies: Bodies
    after: int
    """How many model calls there were before it."""


def _made_of(
    candidates: Sequence[Passage], rewritings: Sequence[Rewriting], retrieved: Set[tuple[str, str]]
) -> list[Passage]:
    """Returns the passages that were made of these candidates, or put in beside them, each with what made it; without
    what was `retrieved` by others, whose passages a component may have joined with these."""
    ids, known = {one.id for one in candidates if one.id}, {*retrieved}
    made: list[Passage] = []
    for rewriting in rewritings:
        if not ids & rewriting.given:
            continue
        new = [one for one in rewriting.gave() if (one.id, one.text) not in known]
        known |= {(one.id, one.text) for one in new}
        ids |= {one.id for one in new if one.id}
        made += [replace(one, metadata={**one.metadata, REWRITTEN: rewriting.by}) for one in new]
    return made


@dataclass(slots=True, eq=False)
class EndedStep:
    """A retrieval of an open run that has ended."""

    event: StepEnded
    first: int
    """The number of the first model call that may have read it."""
    path: CallPath = ()
    bodies: Bodies | None = None
    is_followed: bool = True
    """True if its passages are sought in the inputs of model calls."""
    by_framework: bool = True
    """True for a step whose place in the run depends on the tool calls that a framework reports."""
    has_failed: bool = False
    """True where the tool that made it failed afterwards: nothing of it was read."""
    decision: Decision | None = None
    """The decision of the guards behind it."""
    search: PassageSearch | None = None
    searched: list[Passage] = field(default_factory=list)
    """The candidates that the search looks for."""
    moved: int | None = None
    """The number of places by which the step moves in its run; None until the run has ended."""

    @property
    def place(self) -> tuple[int, int]:
        """The turn, and the place in the run as far as it is known."""
        step = self.event.step
        return step.turn, step.index + (self.moved or 0)

    @property
    def request(self) -> str:
        """The id of the tool call in which the retrieval was made; '' where it is not known."""
        return str(self.event.step.metadata.get(TOOL_CALL, ""))

    @property
    def left(self) -> int:
        """The number of passages that retrieval and guards have left."""
        return len(self.event.step.passages if self.decision is None else self.decision.kept)

    def sought(self, rewritings: Sequence[Rewriting] = (), steps: Iterable[EndedStep] = ()) -> PassageSearch:
        """Returns the search for the passages that guards have left, in every form in which a prompt may hold them, and
        for those that components between the retrieval and the model made of them; `steps` are all of the run."""
        step = self.event.step
        decision = step.decision if self.decision is None else self.decision
        candidates = step.candidates if decision is None else decision.of(step.candidates)
        rewritings = [one for one in rewritings if one.after >= self.first]
        if rewritings:
            retrieved = {(one.id, one.text) for other in steps for one in other.event.step.candidates}
            candidates = [*candidates, *_made_of(candidates, rewritings, retrieved)]
        if self.search is None or candidates != self.searched:
            # A prompt may hold a text without what stands before it, or as a guard has judged it.
            bodies = {} if self.bodies is None else self.bodies()
            for one in rewritings:
                bodies = one.bodies() | bodies
            kept = {} if decision is None else {one.id: one.text for one in decision.kept if one.id}
            forms = [[bodies.get(one.text, ""), kept.get(one.id, "")] for one in candidates]
            self.search, self.searched = PassageSearch(candidates, forms), list(candidates)
        return self.search


class ModelCalls:
    """The model calls of one open run, and the retrievals before them."""

    def __init__(self) -> None:
        self._calls: dict[object, ModelCall] = {}
        """The latest calls, by their keys, in the order in which they began."""
        self._before = ModelCall(-1, lambda: NOTHING_GIVEN)
        """The latest call before the run began: it was given nothing of the run, but may have asked for retrievals."""
        self.asked_so_far = 0
        self.steps: dict[str, EndedStep] = {}
        """The latest retrievals that have ended, in the order of their ends."""
        self._earlier: list[EndedStep] = []
        """The retrievals before the run was resumed, of which another process knew."""
        self.answer = ""
        self.has_ended = False
        """True once the run has ended, so that a reply which has not come is not known."""
        self.rewritings: deque[Rewriting] = deque(maxlen=REWRITINGS_KEPT)
        self._searches: list[tuple[EndedStep, PassageSearch]] = []
        """The searches for the passages of all retrievals, at the last look."""
        self._flow: tuple[tuple[object, ...], Flow] | None = None

    def retrieved(
        self,
        step_id: str,
        event: StepEnded,
        bodies: Bodies | None = None,
        *,
        path: CallPath = (),
        followed: bool = True,
        ok: bool = True,
    ) -> None:
        """Notes a retrieval that has ended, and whether it is `ok`; one that is not `followed` is remembered for guards
        only."""
        self.steps[step_id] = EndedStep(
            event, first=self.asked_so_far, path=path, bodies=bodies, is_followed=followed and ok,
            by_framework=followed,
        )  # fmt: skip
        if len(self.steps) > STEPS_KEPT:
            del self.steps[next(iter(self.steps))]

    def rewritten(
        self, by: str, given: frozenset[str], gave: Callable[[], Sequence[Passage]], bodies: Bodies
    ) -> None:
        """Notes that a component was given passages with these ids, and gave others."""
        self.rewritings.append(
            Rewriting(by=by, given=given, gave=gave, bodies=bodies, after=self.asked_so_far)
        )

    def asked(self, key: object, given: Texts, path: CallPath = ()) -> list[str]:
        """Notes that a model is asked; returns the ids of the retrievals that ended since one was asked before."""
        since = takewhile(lambda item: item[1].first == self.asked_so_far, reversed(self.steps.items()))
        unread = [step_id for step_id, step in since if step.is_followed]
        self._calls[key] = ModelCall(self.asked_so_far, given, path)
        self.asked_so_far += 1
        if len(self._calls) > MOST_CALLS:
            NOTICES.once("more model calls than are kept", _FORGOTTEN)
            del self._calls[next(iter(self._calls))]
        return unread[::-1]

    def replied(self, key: object, reply: Texts) -> None:
        """Notes the reply of a model call; one of a call that is not known came before the run began."""
        if (call := self._calls.get(key)) is not None:
            call.reply = reply
        elif not self.asked_so_far:
            self._before.reply = reply

    def ended(self, answer: str) -> list[str]:
        """Notes the end of the run; returns the ids of the retrievals of which the end tells what was read, or where
        they stand."""
        self.answer, self.has_ended = answer, True
        return [step_id for step_id, step in self.steps.items() if step.by_framework]

    def latest(self) -> list[tuple[StepEnded, Decision | None]]:
        """Returns the latest retrievals, the latest first, each with what the guards behind it have decided."""
        latest = [step for step in reversed(self.steps.values()) if not step.has_failed][:GUARDED_KEPT]
        return [(step.event, step.decision) for step in latest if step.event.step.status == "ok"]

    def read(self, step_id: str) -> Delivered:
        """Returns the passages of a retrieval that count as read: in the order in which the first call that counts was
        given them, then in that of the calls."""
        return self._read(self.steps[step_id])

    def read_before(self, steps: Sequence[RetrievalStep]) -> dict[str, Delivered]:
        """Returns what was read of these retrievals, which ended in another process before the run was resumed, by
        their ids; without those of which nothing was read, since a call of that process may have read them."""
        earlier = [
            EndedStep(StepEnded(replace(step, decision=None, candidates=step.passages), step.run_id), first=0)
            for step in steps
            if step.id not in self.steps
        ]
        self._earlier = earlier
        read = {ended.event.step.id: self._read(ended) for ended in earlier}
        return {step_id: delivered for step_id, delivered in read.items() if delivered.passages}

    def _read(self, ended: EndedStep) -> Delivered:
        if ended.has_failed:
            return _delivered([])
        search = ended.sought(self.rewritings, self._all_steps())
        if not search.passages:
            return _delivered(None)
        calls = list(self._calls.values())
        later = [call for call in calls if call.number >= ended.first]
        if not later:
            return _delivered(None, is_unknown=True)
        flow = self._flow_of(calls)
        copies = PassageCopies(ended, search, self._searches)
        read: dict[int, str] = {}
        begun: set[int] = set()
        for call in (one for one in later if one in flow.counts):
            places = search.places_in(flow.newest_first(call, ended.first))
            foreign = copies.of_others(call)
            begun |= places.begun - foreign
            whole = {number: text for number, text in places.whole.items() if number not in foreign}
            read |= {
                number: text for number, text in copies.in_order(call, whole).items() if number not in read
            }
            if len(read) == len(search.with_words):
                break
        missing = search.with_words - read.keys()
        texts = (
            [text for call in later if call in flow.counts for text in call.input.texts]
            if missing & begun
            else []
        )
        pieced = {number for number in missing & begun if search.in_pieces(number, texts)}
        read |= {number: search.passages[number].text.strip() for number in sorted(pieced)}
        missing -= pieced
        judged: set[int] = set()
        unknown = bool(missing & begun) or (bool(missing) and ended.first < calls[0].number)
        for call in later if missing else ():
            if call in flow.counts:
                continue
            there = search.places_in(call.input.texts).whole.keys() & missing - copies.of_others(call)
            if call in flow.unknown:
                unknown = unknown or bool(there)
            else:
                judged |= there
        if unknown:
            return _delivered(None, is_unknown=True)
        passages = [search.passage(number, text) for number, text in read.items()]
        wordless = [one for number, one in enumerate(search.passages) if number not in search.with_words]
        return _delivered([*passages, *wordless], len(judged))._replace(of=ended.left)

    def read_at_end(self, step_id: str) -> Delivered:
        """Returns what `read` does once the run has ended, and by how many places the step moves: steps come in the
        order of their turns, and in a turn those of one message's tool calls in the message's order."""
        ended = self.steps[step_id]
        if ended.moved is None:
            self._order(ended.event.run_id)
        read = self.read(step_id) if ended.is_followed else _delivered(None)
        return read._replace(moved=ended.moved or 0)

    def _order(self, run_id: str) -> None:
        """Decides by how many places each step of one invocation moves."""
        places = {
            request.id: (call.number, place)
            for call in (self._before, *self._calls.values())
            for place, request in enumerate(call.output.calls)
        }
        waiting = [one for one in self.steps.values() if one.event.run_id == run_id and one.by_framework]
        waiting.sort(key=lambda ended: ended.event.step.index)
        messages: dict[tuple[int, int], int] = {}
        order: list[tuple[int, int, int, int]] = []
        for at, step in enumerate(ended.event.step for ended in waiting):
            message, place = places.get(step.metadata.get(TOOL_CALL, ""), (None, 0))
            first = at if message is None else messages.setdefault((step.turn, message), at)
            order.append((step.turn, first, place, at))
        indices = [ended.event.step.index for ended in waiting]
        for index, (*_, at) in zip(indices, sorted(order), strict=True):
            waiting[at].moved = index - indices[at]

    def _all_steps(self) -> list[EndedStep]:
        return [*self._earlier, *self.steps.values()]

    def _flow_of(self, calls: Sequence[ModelCall]) -> Flow:
        replies = sum(call.reply is not None for call in calls)
        steps = self._all_steps()
        state = (self.asked_so_far, replies, len(steps), self.answer, self.has_ended)
        if self._flow is None or self._flow[0] != state:
            self._searches = [(step, step.sought(self.rewritings, steps)) for step in steps]
            searches = [(step.first, search) for step, search in self._searches]
            self._flow = state, Flow(calls, self.answer, searches, has_ended=self.has_ended)
        return self._flow[1]


def _delivered(passages: list[Passage] | None, judged: int = 0, *, is_unknown: bool = False) -> Delivered:
    """Returns what was read with the notes of this look, which take the place of an earlier look's."""
    return Delivered(passages, {DELIVERED: UNKNOWN if is_unknown else None, JUDGED_ONLY: judged or None})
