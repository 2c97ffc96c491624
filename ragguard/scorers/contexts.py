"""The contexts in which a run's beliefs are measured, and the changes between them.

A change is a sum of beliefs with coefficients, so that sequential and parallel steps share one formula for its value
and its error. All values are plain data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, islice, permutations
from typing import TypeAlias

from ragguard.facts.steps import StepView
from ragguard.metrics.credit import antithetic_orders, shapley_weights
from ragguard.scorers.question import count_tokens, prompt_tokens
from ragguard.scorers.view import View

ALL_ORDERS = 3
"""The most parallel steps for which the change of a step is the mean over all orders."""
_MOST_SETS = 8
"""The most steps of which all sets are looked at."""
_MOST_PAIRS = 50
"""The most pairs of orders over which a credit is the mean."""

Key: TypeAlias = tuple[str, ...]
"""The texts of a context; contexts with equal texts are one context."""
Change: TypeAlias = Mapping[Key, float]
"""A change as the coefficients of the beliefs in it."""

CLOSED_BOOK: Key = ()


@dataclass(frozen=True, slots=True)
class BeliefContext:
    """The passages that the model is given to read."""

    passages: Key
    cut_order: tuple[int, ...] = ()
    """The order in which passages are shortened where the prompt does not fit after all."""
    dropped: int = 0
    """How many passages are left out, as the model's window is too small."""


def single_contexts(texts: Iterable[str]) -> dict[Key, BeliefContext]:
    """Returns the context without a passage, and one for each text by itself."""
    contexts = {CLOSED_BOOK: BeliefContext(CLOSED_BOOK)}
    return contexts | {(text,): BeliefContext((text,), (0,)) for text in texts}


@dataclass(frozen=True, slots=True)
class StepCredit:
    """The worth of one step among all steps of the run."""

    loss: Change | None = field(default_factory=dict)
    """The change from all other steps to all steps; empty where the step brought nothing to read, None where that
    would take more contexts than there may be."""
    shapley: Change | None = field(default_factory=dict)
    """The mean change by the step over all orders of the steps, or over the orders below; empty or None as above."""
    orders: tuple[Change, ...] = ()
    """The change by the step in each of the orders that are counted; empty where all are."""


@dataclass(frozen=True, slots=True)
class StepContexts:
    """The beliefs that one step is about."""

    step: StepView
    now: Change
    """The belief once the step was read."""
    change: Change
    """The change by this step after the earlier ones; empty where it brought nothing to read."""
    alone: Change
    """The change from no retrieval to this step alone; empty where it brought nothing."""
    selection: Change
    """The change from all that the step retrieved to what the model got of it; empty where these are the same."""
    parallel: int
    """How many steps there are in the turn of the step; beyond `ALL_ORDERS` they count in call order."""
    credit: StepCredit | None = None
    """None where no credit is asked for."""


@dataclass(frozen=True, slots=True)
class Layout:
    """All contexts of a run, each once, beginning with no retrieval."""

    contexts: Mapping[Key, BeliefContext]
    steps: tuple[StepContexts, ...]

    @property
    def total(self) -> Change:
        """The change from no retrieval to all retrieval of the run."""
        return _merged([*self.steps[-1].now.items(), (CLOSED_BOOK, -1.0)])


def lay_out(
    steps: Sequence[StepView],
    fit: Callable[[Sequence[StepView]], BeliefContext],
    *,
    selection: bool = False,
    credit: float = 0,
) -> Layout:
    """Returns the contexts of a run's steps. `fit` makes one context from steps; with `selection`, each step whose
    passages are not its candidates gets one with all its candidates, too. With `credit`, each step gets its credit, and
    there are at most so many times as many contexts as without; with 1, none gets any if that takes further ones."""
    contexts: dict[Key, BeliefContext] = {CLOSED_BOOK: BeliefContext(CLOSED_BOOK)}

    def key(*steps: StepView) -> Key:
        if not steps:
            return CLOSED_BOOK
        context = fit(steps)
        return contexts.setdefault(context.passages, context).passages

    found: list[StepContexts] = []
    before: list[StepView] = []
    for _, group in groupby(steps, key=lambda step: step.turn):
        together = list(group)
        # A step of which the model got nothing adds nothing, in any order.
        reading = [step for step in together if step.readable]
        changes = iter(_marginals(before, reading, key))
        for number, step in enumerate(together):
            earlier = [*before, *together[:number]]
            upto, selected = key(*earlier, step), dict[Key, float]()
            if selection and step.changed:
                selected = _merged([(upto, 1.0), (key(*earlier, step.unselected), -1.0)])
            found.append(
                StepContexts(
                    step,
                    {upto: 1.0},
                    change=next(changes) if step.readable else {},
                    alone=_merged([(key(step), 1.0), (CLOSED_BOOK, -1.0)]),
                    selection=selected,
                    parallel=len(reading),
                )
            )
        before += reading
    if credit:

        def fresh(sets: Sequence[Sequence[StepView]]) -> int:
            return len({fit(some).passages for some in sets if some} - contexts.keys())

        spare = int(max(0.0, credit - 1) * len(contexts))
        credits = _credits(before, key, fresh, spare)
        if credit > 1 or all(one.shapley is not None for one in credits):
            each = iter(credits)
            found = [replace(one, credit=next(each) if one.step.readable else StepCredit()) for one in found]
    return Layout(contexts, tuple(found))


def _marginals(
    before: Sequence[StepView], together: Sequence[StepView], key: Callable[..., Key]
) -> list[Change]:
    """Returns what each step of a turn adds to what was read before, as a mean over all orders of the turn."""
    indices = range(len(together))
    orders = [tuple(indices)] if len(together) > ALL_ORDERS else list(permutations(indices))
    return _means([_gains(before, together, order, key) for order in orders], len(together))


def _gains(
    before: Sequence[StepView], steps: Sequence[StepView], order: Sequence[int], key: Callable[..., Key]
) -> list[Change]:
    """Returns what each step adds to what was read before it, where the steps count in this order."""
    gains: list[Change] = [{} for _ in steps]
    for position, index in enumerate(order):
        # Steps stand in call order whatever the order they count in: equal sets, equal contexts.
        earlier, with_it = _among(steps, order[:position]), _among(steps, order[: position + 1])
        gains[index] = _merged([(key(*before, *with_it), 1.0), (key(*before, *earlier), -1.0)])
    return gains


def _means(orders: Sequence[Sequence[Change]], steps: int) -> list[Change]:
    """Returns the mean change of each step over the orders."""
    return [
        _merged([(key, value / len(orders)) for gains in orders for key, value in gains[index].items()])
        for index in range(steps)
    ]


def _among(steps: Sequence[StepView], members: Iterable[int]) -> list[StepView]:
    return [steps[index] for index in sorted(members)]


def _credits(
    steps: Sequence[StepView],
    key: Callable[..., Key],
    fresh: Callable[[Sequence[Sequence[StepView]]], int],
    spare: int,
) -> list[StepCredit]:
    """Returns the credit of each step. `fresh` counts the contexts that sets of steps would add, and `spare`
    is how many may be added."""
    number = len(steps)
    others = [_among(steps, {*range(number)} - {index}) for index in range(number)]
    spare -= fresh(others)
    if spare < 0:
        return [StepCredit(None, None)] * number
    losses = [_merged([(key(*steps), 1.0), (key(*some), -1.0)]) for some in others]
    if number <= _MOST_SETS:
        sets = [_among(steps, [i for i in range(number) if one >> i & 1]) for one in range(1 << number)]
        if fresh(sets) <= spare:
            keys = [key(*some) for some in sets]
            weights = shapley_weights(number).tolist()
            exact = [_merged([*zip(keys, row, strict=True)]) for row in weights]
            return [StepCredit(*both) for both in zip(losses, exact, strict=True)]
    orders: list[list[Change]] = []
    for pair in islice(antithetic_orders(number), _MOST_PAIRS):
        spare -= fresh([_among(steps, order[:size]) for order in pair for size in range(1, number)])
        if spare < 0:
            break
        orders += [_gains((), steps, order, key) for order in pair]
    means = _means(orders, number) if orders else [None] * number
    return [StepCredit(losses[i], means[i], tuple(gains[i] for gains in orders)) for i in range(number)]


def _merged(terms: Sequence[tuple[Key, float]]) -> dict[Key, float]:
    merged: dict[Key, float] = {}
    for key, coefficient in terms:
        merged[key] = merged.get(key, 0.0) + coefficient
    return {key: coefficient for key, coefficient in merged.items() if abs(coefficient) > 1e-9}


@dataclass(frozen=True, slots=True)
class Window:
    """Makes contexts that fit a model's window: the lowest-ranked passages of the earliest steps are left out first."""

    tokens: float
    """How many tokens the passages may have together."""
    frame: int
    """How many tokens the prompt puts around each passage."""

    def __call__(self, steps: Sequence[StepView]) -> BeliefContext:
        # A passage that came again belongs to the latest step that brought it.
        owner: dict[str, tuple[int, int]] = {}
        for number, step in enumerate(steps):
            for rank, at in enumerate(step.got):
                if (text := step.all[at].text).strip():
                    owner[text] = max(owner.get(text, (-1, 0)), (number, -rank))
        leaving = sorted(owner, key=owner.__getitem__)
        sizes = {text: count_tokens(text) + self.frame for text in owner}
        total = sum(sizes.values())
        while total > self.tokens and len(leaving) > 1:
            total -= sizes[leaving.pop(0)]
        kept = set(leaving)
        texts = [text for text in owner if text in kept]
        order = {text: index for index, text in enumerate(texts)}
        return BeliefContext(
            tuple(texts), tuple(order[text] for text in leaving), dropped=len(owner) - len(leaving)
        )


def window(view: View) -> Window:
    """Returns the window that the reader's context length leaves for the passages behind the run's question."""
    prompts, context, question = view.setting.prompts, view.setting.engine.context, view.run.question
    if context is None:
        return Window(math.inf, 0)
    empty = prompt_tokens(prompts.render("answer", [], question=question))
    frame = prompt_tokens(prompts.render("answer", [""], question=question)) - empty
    return Window(context - empty - prompts.template("answer").max_tokens, frame)
