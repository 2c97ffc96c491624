"""The rule that decides which of several scores about the same thing counts, for reports, comparisons and labels.

A run may be scored more than once: with another judge, other settings, other references. A scorer with its settings,
models and prompts is a *way* of scoring; its version says which. Of each scorer one way counts in a run: the newest of
those that judged the most passages and steps, so that numbers of two judges are never mixed in one run. Of this way's
scores of one thing those against given references come before those against the run's own answer, the newest first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ragguard.records import Score, Stage


@dataclass(frozen=True, slots=True)
class Way:
    """One way in which a run was scored."""

    scorer: str
    version: str
    """The scorer's version with the digest of its settings, models and prompts."""
    engines: tuple[str, ...]
    """The models that gave the scores."""
    judged: int
    """How many passages and steps were judged; the run as a whole is one as well."""
    newest: int
    """The place of the newest score among all scores of the run."""


def ways_that_count(ways: Iterable[Way]) -> dict[str, Way]:
    """Returns the way that counts of each scorer: the newest of those that judged the most."""
    counted: dict[str, Way] = {}
    for way in ways:
        known = counted.get(way.scorer)
        if known is None or (way.judged, way.newest) > (known.judged, known.newest):
            counted[way.scorer] = way
    return counted


def ways_of(scores: Iterable[Score]) -> list[Way]:
    """Returns the ways in which scores, in the order in which they were given, were made."""
    groups: defaultdict[tuple[str, str], list[tuple[int, Score]]] = defaultdict(list)
    for at, score in enumerate(scores):
        groups[score.scorer, score.version].append((at, score))
    return [
        Way(
            scorer,
            version,
            tuple(dict.fromkeys(score.engine for _, score in group)),
            judged=len({(score.step_id, score.position, score.stage) for _, score in group}),
            newest=group[-1][0],
        )
        for (scorer, version), group in groups.items()
    ]


def that_count(scores: Sequence[Score]) -> Sequence[Score]:
    """Returns the scores of the ways that count, in their order."""
    if len({(score.scorer, score.version) for score in scores}) == len({score.scorer for score in scores}):
        return scores
    counted = ways_that_count(ways_of(scores))
    return [score for score in scores if counted[score.scorer].version == score.version]


def remarks_on_ways(ways: Sequence[Way]) -> list[str]:
    """Returns a sentence for each scorer that scored a run in several ways: which numbers are shown, and why."""
    remarks = []
    for scorer, shown in ways_that_count(ways).items():
        others = [way for way in ways if way.scorer == scorer and way is not shown]
        if not others:
            continue
        more = max((way.judged for way in others if way.newest > shown.newest), default=0)
        why = (
            f"since it judged {shown.judged} passages and steps and a newer one {more}"
            if more
            else "the newest"
        )
        remarks.append(
            f"{scorer or 'a scorer'} scored this run in {len(others) + 1} ways; its numbers here are by {_by(shown)}, "
            f"{why}, not by {', '.join(map(_by, others))}"
        )
    return remarks


def _by(way: Way) -> str:
    """Returns the name of a way: its models, and its settings as a digest."""
    return f"{', '.join(filter(None, way.engines)) or 'no model'} ({way.version or 'no version'})"


def preferred(known: Score | None, score: Score) -> Score:
    """Returns which of two scores of one thing counts, the second of which is newer."""
    if known is not None and known.reference_source == "gold" != score.reference_source:
        return known
    return score


class CountedScores:
    """The scores of a run that count, found by what they are about."""

    __slots__ = ("_by_name", "all")

    def __init__(self, scores: Sequence[Score]) -> None:
        self.all = that_count(scores)
        """The scores of the ways that count, of every level."""
        self._by_name: dict[tuple[str, str, str], Score] = {}
        for score in self.all:
            if score.position is None:
                key = score.step_id, score.name, score.stage
                self._by_name[key] = preferred(self._by_name.get(key), score)

    def get(self, name: str, step_id: str = "", stage: Stage = "passages") -> Score | None:
        """Returns the score of a step, or with no step that of the run; None where there is none."""
        return self._by_name.get((step_id, name, stage))

    def by_step(self) -> Mapping[str, list[Score]]:
        """Returns the scores by the id of their step; those of the run under ""."""
        found: defaultdict[str, list[Score]] = defaultdict(list)
        for score in self.all:
            found[score.step_id].append(score)
        return found
