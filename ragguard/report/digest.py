"""A scored run as the report's page needs it: plain data, each text once, numbers ready to show."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from ragguard.records import Passage, RetrievalStep, Score
from ragguard.sinks.base import ScoredRun

Data = dict[str, Any]
MISLEADS = -0.2
"""A passage with a utility under this is told to mislead; the guard's own default."""


class Texts:
    """Gives each text a number, so that a passage retrieved often is written once."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        """The text's number."""
        return self._numbers.setdefault(text, len(self._numbers))

    def listed(self) -> list[str]:
        """All texts, by number."""
        return list(self._numbers)


def summary(scored: ScoredRun) -> Data:
    """The line of a run in the list: what it is sorted, filtered and searched by."""
    run = scored.run
    said = [score for score in scored.scores if score.level == "run"]
    total, correct = best(said, "delta_seper_total"), best(said, "answer_correct")
    context, covered = best(said, "udcg_context"), best(said, "coverage_total")
    utilities = [score.value for score in scored.scores if score.name == "utility"]
    usage = [score.usage for score in scored.scores]
    return {
        "id": run.id,
        "question": run.question,
        "name": run.name,
        "status": run.status,
        "started": run.started_ns // 1_000_000,
        "hops": len(run.steps),
        "gain": _round(total),
        "source": "" if total is None else total.reference_source,
        "dropped": sum(len(step.decision.dropped) for step in run.steps if step.decision),
        "misleading": sum(value < MISLEADS for value in utilities),
        "worst": round(min(utilities), 4) if utilities else None,
        "udcg": _round(context),
        "coverage": _round(covered),
        "answer": "" if correct is None else correct.label,
        "failures": len(scored.failures),
        "tokens": sum(item.prompt_tokens + item.output_tokens for item in usage),
    }


def detail(scored: ScoredRun, texts: Texts) -> Data:
    """Everything of a run that is shown once it is opened."""
    run = scored.run
    by_step: dict[str, list[Score]] = defaultdict(list)
    for score in scored.scores:
        by_step[score.step_id].append(score)
    usage = [score.usage for score in scored.scores]
    return {
        "id": run.id,
        "references": run.references or [],
        "answer": run.answer,
        "took": max(0, run.ended_ns - run.started_ns) / 1e6 if run.ended_ns else None,
        "scores": [_score(score) for score in by_step[""]],
        "subs": _sub_questions(scored),
        "steps": [_step(step, by_step[step.id], texts, run.started_ns) for step in run.steps],
        "failures": [
            {
                "scorer": f.scorer,
                "error": f.error,
                "message": f.message,
                "step": f.step_id,
                "retry": f.will_retry,
            }
            for f in scored.failures
        ],
        "cost": {
            "requests": sum(item.requests for item in usage),
            "prompt": sum(item.prompt_tokens for item in usage),
            "output": sum(item.output_tokens for item in usage),
            "seconds": round(sum(item.seconds for item in usage), 3),
            "engines": sorted({score.engine for score in scored.scores if score.engine}),
        },
    }


def _step(step: RetrievalStep, scores: list[Score], texts: Texts, began_ns: int) -> Data:
    candidates = step.candidates or step.passages
    kept = _kept(step)
    dropped = {drop.position: drop for drop in step.decision.dropped} if step.decision else {}
    by_place: dict[int, dict[str, Any]] = defaultdict(dict)
    ratings: dict[int, dict[int, float]] = defaultdict(dict)
    for score in scores:
        if score.level == "passage" and score.position is not None:
            if score.sub_question is None:
                by_place[score.position][score.name] = round(score.value, 4)
            else:
                ratings[score.position][score.sub_question] = round(score.value, 2)
    decision = step.decision
    return {
        "id": step.id,
        "query": step.query,
        "tool": step.tool,
        "turn": step.turn,
        "status": step.status,
        "error": step.error,
        "at": max(0, step.started_ns - began_ns) / 1e6 if began_ns and step.started_ns else None,
        "took": max(0, step.ended_ns - step.started_ns) / 1e6 if step.ended_ns else None,
        "scores": [_score(score) for score in scores if score.level == "step"],
        "guard": None if decision is None else {
            "status": decision.status, "reason": decision.reason, "ms": round(decision.elapsed_ms, 2),
        },
        "passages": [
            {
                "text": texts.number(passage.text),
                "id": str(passage.id),
                "score": _finite(passage.score),
                "kept": position in kept and position not in dropped,
                "reason": dropped[position].reason if position in dropped else "",
                "ratings": ratings.get(position, {}),
                **by_place.get(position, {}),
            }
            for position, passage in enumerate(candidates, 1)
        ],
    }  # fmt: skip


def _kept(step: RetrievalStep) -> set[int]:
    """The ranks of the candidates that the model got."""
    candidates = step.candidates or step.passages
    got: dict[tuple[str, str], int] = defaultdict(int)
    for passage in step.passages:
        got[_same(passage)] += 1
    kept = set()
    for position, passage in enumerate(candidates, 1):
        if got[_same(passage)] > 0:
            got[_same(passage)] -= 1
            kept.add(position)
    return kept


def _same(passage: Passage) -> tuple[str, str]:
    return (str(passage.id), passage.text)


def _sub_questions(scored: ScoredRun) -> list[str]:
    if scored.run.sub_questions:
        return list(scored.run.sub_questions)
    for score in scored.scores:
        made = score.metadata.get("sub_questions")
        if isinstance(made, list):
            return [str(question) for question in made]
    return []


def _score(score: Score) -> list[Any]:
    stderr = None if score.stderr is None else round(score.stderr, 4)
    support = score.reference_source == "answer"
    return [score.name, round(score.value, 4), stderr, score.label, support, score.stage]


def best(scores: Iterable[Score], name: str, stage: str = "passages") -> Score | None:
    """The score of that name: against gold rather than against the answer."""
    found = [score for score in scores if score.name == name and score.stage == stage]
    return min(found, key=lambda score: score.reference_source != "gold", default=None)


def _round(score: Score | None) -> float | None:
    return None if score is None else round(score.value, 4)


def _finite(value: float | None) -> float | None:
    """A retriever's score as JSON can say it."""
    return None if value is None or not math.isfinite(value) else float(value)
