"""The consequences of failed examinations for a run's scores: probes that are not used, and their stand-ins."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from ragguard.engines.base import EngineInfo
from ragguard.engines.prompts import PromptSet
from ragguard.errors import ProbeFailed
from ragguard.scorers.exam.record import ExamRecord, known_record

SWITCH = "RAGGUARD_EXAM"
"""The environment variable that, set to `off`, has no model examined unasked and no examination heeded."""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The probes in which a run's models failed, each with a sentence about it."""

    failed: Mapping[str, str] = field(default_factory=dict)
    log_odds: tuple[float, float] | None = None
    """The intercept and slope by which the judge's query gain becomes relevance; None where that is not known."""
    relevance_by_likelihood: bool = False
    """True where relevance is told by the likelihood of the query, since the judge's labels failed and this passed."""

    spread: Mapping[str, float] = field(default_factory=dict)
    """The standard deviation of repeated answers, by probe, where these differ."""

    @property
    def identity(self) -> list[object]:
        """The part of the verdicts that changes scores; empty where nothing does."""
        spread: list[object] = [sorted(self.spread.items())] if self.spread else []
        if not self.failed:
            return spread
        return [
            sorted(self.failed),
            list(self.log_odds or ()) if self.relevance_by_likelihood else [],
            *spread,
        ]

    def error(self, probe: str) -> ProbeFailed:
        """Returns the error that stands in place of an answer to a probe that failed."""
        return ProbeFailed(self.failed[probe])


def heeded() -> bool:
    """Returns whether examinations count: unless RAGGUARD_EXAM is `off`."""
    return os.environ.get(SWITCH, "").strip().lower() != "off"


def verdicts_of(
    engine: tuple[EngineInfo, PromptSet], judge: tuple[EngineInfo, PromptSet], *, judge_compares: bool
) -> Verdicts:
    """Returns the verdicts on the models of a run, from what is known of their examinations."""
    read, judged = full_record(*engine), full_record(*judge)
    failed: dict[str, str] = {}
    for record, probes in (
        (read, ("abstention", "likelihood", "query_gain")),
        (judged, ("relevance", "grades", *(("entailment",) if judge_compares else ()))),
    ):
        for probe, why in (record.failed if record else {}).items():
            if probe in probes:
                failed[probe] = (
                    f"{record.model if record else ''} failed its examination in {probe.replace('_', ' ')} ({why}), so "
                    f"it is not asked; use a larger model, or set {SWITCH}=off to have such numbers all the same"
                )
    if "grades" in failed:  # ratings of sub-questions are digits on a scale as well
        failed["ratings"] = failed["grades"]
    spread = {
        probe: record.spread[probe]
        for record, probe in ((read, "abstention"), (judged, "relevance"))
        if record and record.spread.get(probe, 0.0) > 0
    }
    return Verdicts(
        failed, judged.log_odds if judged else None, judged is not None and judged.replaces_relevance, spread
    )


def full_record(info: EngineInfo, prompts: PromptSet) -> ExamRecord | None:
    """Returns the record of a whole examination, where examinations count; nano knows its own world alone, which no
    examination is about."""
    record = None if prompts.name == "nano" or not heeded() else known_record(info, prompts)
    return None if record is None or record.brief else record
