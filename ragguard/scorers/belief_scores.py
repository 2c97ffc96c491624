"""The scores that follow from the beliefs in a run's contexts: which there are, and how each is written, with its error
and its explanation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ragguard.errors import CapExceeded
from ragguard.facts.repeats import repeats
from ragguard.metrics.credit import enough_after, shapley_of_orders
from ragguard.records import CUT_TOKENS, LEFT_OUT
from ragguard.scorers.contexts import ALL_ORDERS, CLOSED_BOOK, Change, Key, Layout, StepContexts
from ragguard.scorers.estimates import Beliefs, Estimate, Kind, combine, in_words
from ragguard.scorers.question import answered
from ragguard.scorers.scorer import ScoreWriter
from ragguard.scorers.target import Target

_OVER_CREDIT = (
    "the credit of so many hops takes more contexts than are allowed for it; raise "
    "Belief(credit=...), or measure belief by likelihood, which is cheaper"
)


class Wanted(NamedTuple):
    """A score to give: a change between contexts, of one kind of estimate."""

    name: str
    change: Change | None
    """None: its contexts are more than may be read."""
    contexts: StepContexts | None = None
    """The contexts of the step that the score is about; None for the run."""
    kind: Kind = "soft"
    orders: tuple[Change, ...] = ()
    """The changes of which `change` is the mean, where they are some of many: their spread adds to the error."""


def credit_scores(layout: Layout, kind: Kind) -> Iterator[Wanted]:
    """Yields the scores of what each step is worth among all steps."""
    for contexts in layout.steps:
        if contexts.step.scored and (credit := contexts.credit):
            yield Wanted("loss_without", credit.loss, contexts, kind=kind)
            yield Wanted("credit", credit.shapley, contexts, kind=kind, orders=credit.orders)


def likelihood_scores(layout: Layout) -> Iterator[Wanted]:
    """Yields the scores of likelihood, in order."""
    yield Wanted("likelihood_closed_book", {CLOSED_BOOK: 1.0}, kind="per_token")
    for contexts in layout.steps:
        if contexts.step.scored:
            yield Wanted("likelihood", contexts.now, contexts, "per_token")
            yield Wanted("likelihood_total", contexts.now, contexts, "total")
            yield Wanted("delta_likelihood", contexts.change, contexts, "per_token")
            yield Wanted("delta_likelihood_alone", contexts.alone, contexts, "per_token")
            yield Wanted("log_gain", contexts.change, contexts, "mean_logprob")
    yield Wanted("delta_likelihood_total", layout.total, kind="per_token")
    yield from credit_scores(layout, "per_token")


def reference_gain(
    target: Target, likely: Beliefs, contexts: StepContexts
) -> tuple[float, Mapping[str, Any]]:
    """Returns how much less probable the target is without a step, as a logarithm, with the fields of its scores."""
    change = (contexts.credit.loss if contexts.credit else None) or {}
    estimates = {key: answered(likely[key]).estimates["mean_logprob"] for key in change}
    value, stderr = combine(change, estimates)
    return value, {"stderr": stderr, **target.fields}


def write_scores(
    writer: ScoreWriter,
    layout: Layout,
    target: Target,
    beliefs: Beliefs,
    scores: Iterable[Wanted],
    *,
    more: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Adds the scores, or the failures for which they cannot be given. A score is the weighted sum, over the contexts
    of a change, of one kind of estimate."""
    for name, change, contexts, kind, orders in scores:
        step, of = contexts.step if contexts else None, Target() if kind == "entropy" else target
        with writer.failing(name, step):
            if change is None:
                raise CapExceeded(_OVER_CREDIT)
            known = {key: answered(beliefs[key]) for key in change}
            estimates = {key: one.estimates[kind] for key, one in known.items()}
            value, stderr = combine(change, estimates)
            facts: dict[str, Any] = dict(more)
            if orders:
                _, spread = shapley_of_orders([combine(gain, estimates).value for gain in orders])
                stderr, facts["orders"] = math.hypot(stderr, spread), len(orders)
            for one in known.values():
                facts |= one.metadata
            if kind == "total" and not all(one.ended for one in known.values()):
                facts["bound"] = "upper"
            if cut := max((one.metadata.get(CUT_TOKENS, 0) for one in known.values()), default=0):
                facts[CUT_TOKENS] = cut
            if dropped := max((layout.contexts[key].dropped for key in known), default=0):
                facts[LEFT_OUT] = dropped
            if contexts and contexts.parallel > 1:
                facts["parallel"] = contexts.parallel
                facts["order"] = "tool calls" if contexts.parallel > ALL_ORDERS else "mean over all"
            if contexts is None and writer.view.steps_over_cap:
                facts["steps_not_scored"] = len(writer.view.steps_over_cap)
            if of.references != of.given:
                facts["condensed"] = of.references[0]
            explained = _explained(change, estimates, falls=kind == "entropy")
            writer.add(
                name, value, step=step, stderr=stderr, explanation=explained, metadata=facts, **of.fields
            )


def _explained(change: Change, estimates: Mapping[Key, Estimate], *, falls: bool) -> str:
    """Describes a change between two contexts as "before → after"; with `falls`, a decrease counts as a gain."""
    if not change:
        return "no passage that was not there before"
    if len(change) != 2:
        return ""
    before, after = sorted(change, key=lambda key: change[key], reverse=falls)
    return in_words(estimates[before].value, estimates[after].value)


def add_enough(writer: ScoreWriter, layout: Layout, target: Target, beliefs: Beliefs, kind: Kind) -> None:
    """Adds `enough_after` and `redundant_hops`, by the belief after each hop."""
    steps = [contexts for contexts in layout.steps if contexts.step.scored]
    if not steps or not target.references:
        return
    with writer.failing("enough_after"):
        changes: list[Change] = [{CLOSED_BOOK: 1.0}, *(contexts.now for contexts in steps)]
        known = {key: answered(beliefs[key]).estimates[kind] for change in changes for key in change}
        values, errors = zip(*(combine(change, known) for change in changes), strict=True)
        enough = enough_after(values, errors)
        numbers = {step.id: number for number, step in enumerate(writer.view.run.steps, 1)}
        hops = [numbers[contexts.step.step.id] for contexts in steps]
        rest = ", ".join(map(str, hops[enough:]))
        more = [f"{'hops' if len(hops) - enough > 1 else 'hop'} {rest} changed nothing"] if rest else []
        writer.add("enough_after", hops[enough - 1] if enough else 0, **target.fields)
        repeated = "; ".join([*more, *map(str, repeats(writer.view.run.steps))])
        writer.add("redundant_hops", len(hops) - enough, explanation=repeated, **target.fields)
