"""Scores about when a run had read enough: the hop after which the belief is what it is at the end, and how many hops
came after it."""

from __future__ import annotations

from collections.abc import Mapping

from ragguard.facts.repeats import repeats
from ragguard.metrics.credit import enough_after
from ragguard.scorers.contexts import CLOSED_BOOK, Layout
from ragguard.scorers.estimates import Beliefs, Kind, combine
from ragguard.scorers.question import answered
from ragguard.scorers.scorer import ScoreWriter
from ragguard.scorers.target import Target


def add_enough(writer: ScoreWriter, layout: Layout, target: Target, beliefs: Beliefs, kind: Kind) -> None:
    """Adds `enough_after` and `redundant_hops`, by the belief after each hop."""
    steps = [one for one in layout.steps if one.step.scored]
    if not steps or not target.references:
        return
    with writer.failing("enough_after"):
        changes: list[Mapping[tuple[str, ...], float]] = [{CLOSED_BOOK: 1.0}, *(one.now for one in steps)]
        known = {key: answered(beliefs[key]).estimates[kind] for change in changes for key in change}
        values, errors = zip(*(combine(change, known) for change in changes), strict=True)
        enough = enough_after(values, errors)
        numbers = {step.id: number for number, step in enumerate(writer.view.run.steps, 1)}
        hops = [numbers[one.step.step.id] for one in steps]
        rest = ", ".join(map(str, hops[enough:]))
        more = [f"{'hops' if len(hops) - enough > 1 else 'hop'} {rest} changed nothing"] if rest else []
        writer.add("enough_after", hops[enough - 1] if enough else 0, **target.fields)
        repeated = "; ".join([*more, *map(str, repeats(writer.view.run.steps))])
        writer.add("redundant_hops", len(hops) - enough, explanation=repeated, **target.fields)
