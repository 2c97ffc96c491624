"""Pictures of many runs: belief by hop, causes, retrievers side by side, and cost. The page draws them from plain data;
`write_figures` writes them as SVG and PNG, with matplotlib."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, NamedTuple

from ragguard.errors import InvalidInput, MissingDependency
from ragguard.facts.causes import CauseCounts, CauseNote, cause_of, retrievers_of, short_words
from ragguard.facts.run_view import RunView
from ragguard.storage.files.jsonl import writing
from ragguard.storage.sqlite.overview import Overview
from ragguard.text.plain import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BELIEFS: Mapping[str, tuple[str, str]] = {
    "seper": ("seper_closed_book", "Belief in the reference (SePer)"),
    "likelihood": ("likelihood_closed_book", "Likelihood of a word of the reference"),
}
"""The scores of a step that tell the belief after it, each with the score before any retrieval and its words."""
_GROUPS = 8
"""The most retrievers, or names of runs, that are drawn."""


class BeliefPoint(NamedTuple):
    """The mean belief of some runs after a hop; hop 0 is before any retrieval."""

    hop: int
    mean: float
    stderr: float
    runs: int


class Pictures:
    """Counts runs one after the other."""

    def __init__(self) -> None:
        self.counts = CauseCounts()
        self._tokens: defaultdict[int, list[int]] = defaultdict(list)
        self._beliefs: dict[str, defaultdict[int, list[float]]] = {
            name: defaultdict(list) for name in BELIEFS
        }

    def add(self, view: RunView, tokens: int) -> None:
        """Counts a run, and the tokens that its scores took."""
        self.counts.add(CauseNote(cause_of(view), retrievers=retrievers_of(view.run)), view.run.name)
        self._tokens[len(view.run.steps)].append(tokens)
        for name, (before, _) in BELIEFS.items():
            alone = view.find(before)
            if alone is None or alone.reference_source == "answer":
                continue
            self._beliefs[name][0].append(alone.value)
            for hop in view.hops:
                if score := hop.find(name):
                    self._beliefs[name][hop.number].append(score.value)

    def as_data(self) -> dict[str, Any]:
        """Returns plain data for the page."""
        belief, by, groups = self.belief(), *self.groups()
        return {
            "belief": belief and {"title": belief[0], "points": belief[1]},
            "by": by,
            "groups": [[name, right, judged] for name, right, judged in groups[:_GROUPS]],
            "more": len(groups[_GROUPS:]),
            "cost": self.cost(),
        }

    def causes(self) -> list[tuple[str, int]]:
        """Returns how many runs each cause has, in few words."""
        return [(short_words(cause), count) for cause, count in self.counts.rows]

    def belief(self) -> tuple[str, list[BeliefPoint]] | None:
        """Returns what is measured, and its mean after each hop; None if no run has a reference and a belief."""
        name = next((name for name in BELIEFS if self._beliefs[name]), None)
        if name is None:
            return None
        points = [
            BeliefPoint(
                hop,
                fmean(values),
                stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0,
                len(values),
            )
            for hop, values in sorted(self._beliefs[name].items())
        ]
        return BELIEFS[name][1], points

    def groups(self) -> tuple[str, list[tuple[str, int, int]]]:
        """Returns by what runs are put side by side, and of each group its name, its right answers and its judged ones;
        nothing unless there are two groups."""
        counts = self.counts
        for by, groups in (("retriever", counts.by_retriever), ("name of run", counts.by_name)):
            rows = [(name, *_right_of(groups[name])) for name in sorted(groups)]
            judged = [row for row in rows if row[2]]
            if len(judged) > 1:
                return by, judged
        return "", []

    def cost(self) -> list[tuple[int, float, int]]:
        """Returns the hops of runs, and the mean tokens that scoring such a run took, and how many runs these are."""
        return [
            (hops, fmean(tokens), len(tokens)) for hops, tokens in sorted(self._tokens.items()) if any(tokens)
        ]


def _right_of(causes: Counter[str]) -> tuple[int, int]:
    judged = causes.total() - causes["unjudged"] - causes["open"]
    return causes["right"] + causes["unsupported"], judged


def write_figures(runs: Iterable[Overview], folder: Path) -> list[str]:
    """Writes each picture for which there are numbers into a folder, as SVG and PNG, and returns their names."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependency("matplotlib", "--figures", "figures") from error
    pictures, count = Pictures(), 0
    for overview in runs:
        pictures.add(overview.view, overview.usage.prompt_tokens + overview.usage.output_tokens)
        count += 1
    if not count:
        raise InvalidInput("runs", 0, "at least one run; score some first: `ragguard score RUNS.jsonl`")
    names = []
    with writing(folder, "folder"):
        folder.mkdir(parents=True, exist_ok=True)
        for name, draw in _drawings(pictures):
            figure = Figure(figsize=(6.4, 3.6), layout="constrained")
            draw(figure.add_subplot())
            for ending in ("svg", "png"):
                figure.savefig(
                    folder / f"{name}.{ending}", dpi=160, metadata={"Date": None} if ending == "svg" else None
                )
            names.append(name)
    return names


def _drawings(pictures: Pictures) -> Iterator[tuple[str, Callable[[Axes], None]]]:
    if belief := pictures.belief():
        title, points = belief
        yield "belief-by-hop", lambda axes: _draw_belief(axes, title, points)
    causes = pictures.causes()
    yield "causes", lambda axes: _draw_bars(axes, "What decided the answers", causes, "runs")
    by, groups = pictures.groups()
    if groups:
        shares = [
            (f"{name} ({counted(judged, 'run')})", right / judged) for name, right, judged in groups[:_GROUPS]
        ]
        yield (
            "retrievers",
            lambda axes: _draw_bars(axes, f"Right answers by {by}", shares, "share of judged answers"),
        )
    if cost := pictures.cost():
        rows = [(f"{counted(hops, 'hop')} ({counted(runs, 'run')})", tokens) for hops, tokens, runs in cost]
        yield (
            "cost",
            lambda axes: _draw_bars(axes, "Tokens that scoring a run took", rows, "tokens, on average"),
        )


def _draw_belief(axes: Axes, title: str, points: Sequence[BeliefPoint]) -> None:
    axes.errorbar(
        [point.hop for point in points], [point.mean for point in points], [point.stderr for point in points],
        marker="o", capsize=3,
    )  # fmt: skip
    axes.set_xticks(
        [point.hop for point in points],
        [
            f"{f'hop {point.hop}' if point.hop else 'before'}\n{counted(point.runs, 'run')}"
            for point in points
        ],
    )
    axes.set_ylim(0, 1)
    axes.set_title(f"{title}, mean ± 1 standard error", fontsize=10)


def _draw_bars(axes: Axes, title: str, rows: Sequence[tuple[str, float]], unit: str) -> None:
    # Names come from outside: a dollar sign begins no formula.
    bars = axes.barh([label.replace("$", r"\$") for label, _ in rows], [value for _, value in rows])
    axes.bar_label(
        bars,
        [
            f"{value:,.2f}" if isinstance(value, float) and value < 10 else f"{value:,.0f}"
            for _, value in rows
        ],
    )
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlabel(unit)
    axes.set_title(title, fontsize=10)
