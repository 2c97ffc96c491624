"""The mean of each series of a run, computed from its records: what the SQL of a store is checked against."""

from __future__ import annotations

from collections import defaultdict

from ragguard.facts.causes import JUDGED, note_of
from ragguard.facts.run_view import RunView
from ragguard.facts.scores import that_count
from ragguard.records import Score, ScoredRun
from ragguard.storage.sqlite.score_rows import RunMeans, Series


def means_of(scored: ScoredRun) -> RunMeans:
    """Returns the means of a run by the scores that count. Where a step was scored with several references, the latest
    of these."""
    steps = scored.run.steps
    found = RunMeans(
        scored.run.question, len(steps), sum(len(step.passages) for step in steps),
        sum(step.places for step in steps), failures=len(scored.failures),
    )  # fmt: skip
    of_series: dict[Series, list[Score]] = defaultdict(list)
    for score in that_count(scored.scores):
        stage = score.stage if score.level != "run" else "passages"
        if not score.provisional:
            of_series[Series(score.name, score.level, score.reference_source == "answer", stage)].append(
                score
            )
    cause = note_of(RunView(scored.run, scored.scores)).cause
    found.cause = cause if cause in JUDGED else ""
    for series, scores in of_series.items():
        latest = [score for score in scores if _origin(score) == _origin(scores[-1])]
        references = {score.step_id: _references(score) for score in latest}
        counted = [score for score in latest if _references(score) == references[score.step_id]]
        found.add(series, _origin(scores[-1]), sum(score.value for score in counted) / len(counted))
    return found


def _origin(score: Score) -> str:
    return f"{score.engine}, {score.prompts}, {score.scorer} {score.version}"


def _references(score: Score) -> tuple[str, str]:
    return score.reference_source, score.references_hash
