"""The record of a model's examination: its figures, which of them suffice, the file that keeps them, and what a failed
examination means for a run's scores.

A record belongs to the model's fingerprint and the prompt set, and stands in the user's cache; those of the models
that `ragguard fetch` gets ship with the package.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from ragguard.engines.base import EngineInfo
from ragguard.engines.prompts import PromptSet
from ragguard.errors import ProbeFailed, shown_apart
from ragguard.runtime.arguments import user_folder

_SHIPPED = files("ragguard.scorers.exam") / "records"
VERSION = 3
"""The version of the examination's cases; a model is examined again when it changes."""
NEEDED: Mapping[str, float] = {
    "abstention": 0.75,
    "relevance": 0.75,
    "query_gain": 0.75,
    "likelihood": 0.75,
    "grades": 0.5,
    "entailment": 0.75,
}
"""The least figure of each probe with which its answers are used: areas under the ROC curve; for grades a rank
correlation, for entailment the share of right verdicts."""
ABOUT: Mapping[str, str] = {
    "abstention": "abstention: AUC of passages without the answer over those with it",
    "relevance": "relevance by label: AUC of passages with the answer",
    "relevance_partial": "relevance by label, passages on the subject without the answer: AUC",
    "query_gain": "relevance by likelihood of the query: the same AUC",
    "likelihood": "likelihood of the answer: AUC of passages with the answer",
    "grades": "grades: rank correlation with those intended",
    "entailment": "entailment: share of right verdicts",
    "partial": "likelihood of the query, passages on the subject without the answer: AUC",
    "right": "right answers where a passage has the answer",
    "right_two_hop": "right answers from two passages",
    "abstains": "abstains where no passage has the answer",
}
"""The meaning of each figure, in the order in which they are shown."""
_BY_BOTH = "utility distracting_effect udcg udcg_context delta_udcg_selection learned_udcg"
_RESTING: Mapping[str, str] = {
    "abstention": f"p_abstain {_BY_BOTH}",
    "relevance": f"p_relevant {_BY_BOTH}",
    "query_gain": "query_gain question_gain",
    "likelihood": "brings_answer likelihood likelihood_total delta_likelihood log_gain delta_likelihood_alone "
    "delta_likelihood_total reference_gain joint_gain contribution unused_share cited_used "
    "delta_likelihood_random",
    "grades": "grade ra_nwg proc pct_proc selection_efficiency t n_recall precision_at_grade harm coverage "
    "delta_coverage alpha_ndcg coverage_total density answerability answer_coverage answer_density",
    "entailment": "seper seper_hard seper_closed_book semantic_entropy delta_seper delta_seper_alone "
    "delta_seper_total delta_seper_selection delta_semantic_entropy",
}
"""The metrics that rest on each examined probe."""


JUDGING = frozenset(("utility", "grade", "answerability", "brings_answer"))
"""The scores that say of a passage whether it helps."""


@dataclass(frozen=True, slots=True)
class ExamRecord:
    """The outcome of one examination of a model."""

    model: str
    fingerprint: str
    prompts: str
    cases: int = VERSION
    """The version of the cases."""
    brief: bool = False
    """True for the short form: few cases, on which no score depends."""
    seconds: float = 0.0
    figures: Mapping[str, float] = field(default_factory=dict)
    intervals: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """The 95 % intervals of figures that are areas, over other cases like these."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """The reason for which a figure is missing."""
    log_odds: Sequence[float] | None = None
    """The intercept and slope of the log-odds that a passage of a given `query_gain` answers its query."""
    relevance_odds: Sequence[float] | None = None
    """The same by the log-odds that the model gave, for one whose scores only rank."""
    spread: Mapping[str, float] = field(default_factory=dict)
    """The standard deviation of the probability that the same question has, asked again and again, by probe; `cold`: by
    how much the first answers differ from the later ones on average, which a server's cache may serve. Empty where the
    model was not asked so."""

    @property
    def failed(self) -> dict[str, str]:
        """The probes that do not suffice, each with the reason."""
        found: dict[str, str] = {}
        for probe, needed in NEEDED.items():
            figure = self.figures.get(probe)
            if (
                probe == "relevance" and figure is not None
            ):  # near misses on the same subject must be told as well
                figure = min(figure, self.figures.get("relevance_partial", figure))
            if figure is not None and figure < needed:
                found[probe] = "{}, {} is needed".format(*shown_apart(figure, needed))
            elif probe in self.reasons:
                found[probe] = self.reasons[probe]
        return found

    @property
    def in_doubt(self) -> dict[str, str]:
        """The probes that suffice by their figure and not by its interval: another examination may fail them."""
        return {
            probe: f"{self.figures[probe]:.2f}, {ends[0]:.2f} to {ends[1]:.2f}"
            for probe, ends in self.intervals.items()
            if probe in NEEDED and probe not in self.failed and ends[0] < NEEDED[probe] <= self.figures[probe]
        }

    @property
    def replaces_relevance(self) -> bool:
        """True where relevance is told by the likelihood of the query, since its labels failed and this passed: also on
        passages on the same subject, as a search engine returns them."""
        failed, needed = self.failed, NEEDED["query_gain"]
        passed = "query_gain" not in failed and self.figures.get("partial", needed) >= needed
        return "relevance" in failed and passed and self.log_odds is not None

    @property
    def unreplaced(self) -> frozenset[str]:
        """The probes that do not suffice and that no other one replaces."""
        return frozenset(self.failed) - ({"relevance"} if self.replaces_relevance else set())

    @property
    def remark(self) -> str:
        """A sentence for readers of this model's scores about what it failed in; "" where it failed in nothing."""
        failed = ", ".join(f"{probe.replace('_', ' ')} ({why})" for probe, why in self.failed.items())
        form = "a short examination" if self.brief else "its examination"
        if failed:
            return f"{self.model} failed {form} in {failed}"
        doubt = ", ".join(f"{probe.replace('_', ' ')} ({why})" for probe, why in self.in_doubt.items())
        return f"{self.model} passed {form} only just in {doubt}: its numbers may mislead" if doubt else ""


def heeded_records() -> dict[str, ExamRecord]:
    """Returns the records by which readers of scores are warned: none if RAGGUARD_EXAM is `off`."""
    return records() if heeded() else {}


def remarks_on(engines: Iterable[str]) -> list[str]:
    """Returns a sentence for each of these engines, by fingerprint, that failed its examination in something."""
    known = heeded_records()
    return [known[one].remark for one in sorted(set(engines)) if one in known and known[one].remark]


def unjudged_because(engines: Iterable[str]) -> str:
    """Returns a sentence on why passages are not judged, and what would change it; "" if no examination is the reason.

    Args:
        engines: The models that gave the scores, by fingerprint.
    """
    known = heeded_records()
    for record in (known[fingerprint] for fingerprint in sorted(set(engines)) if fingerprint in known):
        failed = record.failed.keys() & {"abstention", "relevance"}
        if not record.brief and failed & record.unreplaced:
            return (
                f"Passages are not judged, as {record.model} failed its examination in {' and '.join(sorted(failed))}: "
                "reference answers give each passage a verdict, and so does a larger model that passes "
                "(`ragguard doctor ENGINE --exam`); `ragguard label` asks people"
            )
    return ""


def failed_behind(metric: str, origins: Iterable[str]) -> str:
    """Returns why a metric must not decide anything, given the engines and settings that scored it: one of the models
    failed in a probe that the metric rests on. "" where none did."""
    texts = list(origins)
    probes = {probe for probe, metrics in _RESTING.items() if metric in metrics.split()}
    for fingerprint, record in heeded_records().items():
        if record.unreplaced & probes and any(fingerprint in text for text in texts):
            return record.remark
    return ""


def exams_folder() -> Path:
    """Returns the folder of the records: RAGGUARD_EXAMS, else `ragguard/exams` in the user's cache."""
    return user_folder("RAGGUARD_EXAMS", "exams")


def record_file(info: EngineInfo, prompts: PromptSet) -> Path:
    """Returns the file of a model's record."""
    examined = f"{VERSION} {info.fingerprint} {prompts.identity}"
    return exams_folder() / f"{hashlib.sha256(examined.encode()).hexdigest()[:16]}.json"


def answers_file(examinee: str) -> Path:
    """Returns the file that keeps the answers of an examination until it is done."""
    return exams_folder() / f"{hashlib.sha256(examinee.encode()).hexdigest()[:16]}.answers"


def known_record(info: EngineInfo, prompts: PromptSet) -> ExamRecord | None:
    """Returns the record of a model with these prompts; None where it was never examined."""
    path = record_file(info, prompts)
    return _read(path) or _read(_SHIPPED / path.name)


def records() -> dict[str, ExamRecord]:
    """Returns all records that are kept, by the model's fingerprint."""
    places = [*_SHIPPED.iterdir(), *sorted(exams_folder().glob("*.json"))]
    return {record.fingerprint: record for place in places if (record := _read(place))}


def _read(place: Traversable) -> ExamRecord | None:
    """Returns the record in a file; None where there is none, or one of another version."""
    try:
        record = ExamRecord(**json.loads(place.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    return record if record.cases == VERSION else None


def keep_record(record: ExamRecord, path: Path) -> bool:
    """Writes a record, whole or not at all; returns False where the folder cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_suffix(f".{os.getpid()}")
        scratch.write_text(json.dumps(asdict(record), indent=1) + "\n", encoding="utf-8")
        scratch.replace(path)
    except OSError:
        return False
    return True


SWITCH = "RAGGUARD_EXAM"
"""The environment variable that, set to `off`, has no model examined unasked and no examination heeded."""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The probes in which a run's models failed, each with a sentence about it."""

    failed: Mapping[str, str] = field(default_factory=dict)
    log_odds: Sequence[float] | None = None
    """The intercept and slope by which the judge's query gain becomes relevance; None where that is not known."""
    relevance_by_likelihood: bool = False
    """True where relevance is told by the likelihood of the query, since the judge's labels failed and this passed."""
    spread: Mapping[str, float] = field(default_factory=dict)
    """The standard deviation of repeated answers, by probe, where these differ."""
    identity: Sequence[object] = ()
    """The part of the verdicts that changes scores; empty where nothing does."""
    relevance_odds: Sequence[float] | None = None
    """The intercept and slope by which a reranker's scores become the log-odds of relevance; None for other judges."""

    @property
    def changes_relevance(self) -> bool:
        """True where relevance is not what the judge's labels say."""
        return self.relevance_by_likelihood or self.relevance_odds is not None

    def check(self, *probes: str) -> None:
        """Raises ProbeFailed for the first of these probes that failed and that no other one replaces."""
        if probe := self.lacking(*probes):
            raise self.error(probe)

    def lacking(self, *probes: str) -> str:
        """Returns the first of these probes that failed and that no other one replaces; "" for none."""
        replaced = {"relevance"} if self.relevance_by_likelihood else set[str]()
        return next((probe for probe in probes if probe in self.failed.keys() - replaced), "")

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
    ranks = judge[0].kind == "rerank"
    graded = read if ranks else judged  # a reranker leaves all but relevance to the reader
    failed = {
        probe: f"{record.model} failed its examination in {probe.replace('_', ' ')} ({why}), so it is not "
        f"asked; use a larger model, or set {SWITCH}=off to have such numbers all the same"
        for record, probes in (
            (read, ("abstention", "likelihood", "query_gain")),
            (judged, ("relevance",)),
            (graded, ("grades", *(("entailment",) if judge_compares else ()))),
        )
        for probe, why in record.failed.items()
        if probe in probes
    }
    if ranks and "relevance" not in failed and judged.relevance_odds is None:
        failed["relevance"] = (
            f"the scores of {judged.model} rank, and are no probabilities before an examination: run `ragguard doctor "
            f"rerank:{judge[0].location} --exam`, whose cases calibrate them"
        )
    if "grades" in failed:  # ratings of sub-questions are digits on a scale as well
        failed["ratings"] = failed["grades"]
    spread = {
        probe: record.spread[probe]
        for record, probe in ((read, "abstention"), (judged, "relevance"))
        if record.spread.get(probe, 0.0) > 0
    }
    odds = judged.log_odds or () if judged.replaces_relevance else ()
    identity: list[object] = [sorted(failed), [*odds]] if failed else []
    identity += [sorted(spread.items())] if spread else []
    scale = judged.relevance_odds if ranks and "relevance" not in failed else None
    identity += [[*scale]] if scale is not None else []
    return Verdicts(
        failed,
        judged.log_odds,
        judged.replaces_relevance,
        spread,
        identity=identity,
        relevance_odds=scale,
    )


def full_record(info: EngineInfo, prompts: PromptSet) -> ExamRecord:
    """Returns the record of a whole examination, where there is one and examinations count, else an empty record; nano
    knows its own world alone, which no examination is about. That of a reranker always counts: it is its scale."""
    counts = prompts.name != "nano" and (heeded() or info.kind == "rerank")
    record = known_record(info, prompts) if counts else None
    if record is None or record.brief:
        return ExamRecord(info.model, info.fingerprint, prompts.identity)
    return record
