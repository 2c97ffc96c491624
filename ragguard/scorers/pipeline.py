"""The pipeline from a run to its scores: chooses models, prompts and scorers; a fault becomes a failure and no
exception.

A pipeline can be used for many runs and on many event loops at once. It keeps the descriptions of the engines.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ragguard.engines.base import Engine, EngineInfo
from ragguard.engines.engine import check_reads, layers_of, only_of
from ragguard.engines.entailer import EngineEntailer, Entailer
from ragguard.engines.entailment import Pair
from ragguard.engines.layers.cache import Cache
from ragguard.engines.prompts import PromptSet, load_prompts
from ragguard.errors import CapExceeded, RagguardError
from ragguard.facts.causes import UNJUDGED, note_of
from ragguard.facts.leads import with_leads
from ragguard.facts.run_view import RunView
from ragguard.metrics.distraction import RELEVANCES, Relevance
from ragguard.records import PROVISIONAL, Failure, Result, Run, Score, ScoredRun, Usage, new_id
from ragguard.runtime.arguments import one_of
from ragguard.runtime.faults import NOTICES, describe, result_or_error
from ragguard.scorers.answer_words import AnswerWords
from ragguard.scorers.asker import SCORING, Asker, MeteredAsk, Models, Respondent, paid, unattributed
from ragguard.scorers.catalogue import OURS, USUAL, scorers_of
from ragguard.scorers.exam.examined import Examined
from ragguard.scorers.exam.record import verdicts_of
from ragguard.scorers.exam.short_form import examine_unknown
from ragguard.scorers.plan import UNKNOWN, Plan, PriceList
from ragguard.scorers.question import Ask, prompt_tokens
from ragguard.scorers.scorer import (
    MODELS,
    Live,
    Scorer,
    capture_failures,
    completed,
    failure_of,
    full_version,
)
from ragguard.scorers.view import Caps, Setting, View, view_run
from ragguard.text.language import ENGLISH, Language, is_english
from ragguard.text.secret_filter import logger

_log = logger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ScorerIdentity:
    """A scorer with its version and settings; equal identities give equal scores of the same run and references."""

    scorer: str
    version: str


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a scoring: models, prompts, scorers and settings. Equal identities give equal scores of the
    same run and references."""

    engine: str
    judge: str
    prompts: str
    scorers: tuple[ScorerIdentity, ...]


class ScoringPipeline:
    """Asks the scorers about runs. Its arguments are the fields of `ScoringSettings`, with models for addresses.

    Args:
        owned: The models that `aclose` closes; None: all of them.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        judge: Engine | None = None,
        entailer: Entailer | None = None,
        scorers: Sequence[str | Scorer] = USUAL,
        prompts: str | Path | PromptSet | None = None,
        caps: Caps | None = None,
        language: Language = ENGLISH,
        relevance: Relevance = "probability",
        owned: Sequence[Engine | Entailer] | None = None,
    ) -> None:
        check_reads("engine", engine)
        self._engine, self._judge = engine, judge or engine
        one_of("relevance", relevance, RELEVANCES)
        self._relevance = relevance
        self._scorers = scorers_of(scorers, relevance)
        self._prompts = None if prompts is None else load_prompts(prompts)
        self._judge_compares = entailer is None
        compares = self._engine if only_of(self._judge) == "ranks" else self._judge
        self._entailer = entailer or EngineEntailer(compares, self._prompts)
        self._caps, self._language = caps or Caps(), language
        self._owned: list[Engine | Entailer] = [*self.engines, self._entailer] if owned is None else [*owned]
        self._setting: Setting | None = None

    @property
    def engines(self) -> tuple[Engine, ...]:
        """The engine, and the judge where that is another one."""
        return (self._engine,) if self._judge is self._engine else (self._engine, self._judge)

    @property
    def remembers(self) -> bool:
        """True where all engines have a cache, so that nothing is asked twice however often a run is scored."""
        return all(any(isinstance(layer, Cache) for layer in layers_of(engine)) for engine in self.engines)

    async def results(self, run: Run, *, priority: int = SCORING) -> list[Result]:
        """Returns all scores of a run, and a failure for each that is missing; no fault of an engine raises."""
        return await self._asked(run, self._scorers, priority)

    async def results_so_far(self, run: Run, kind: Live) -> list[Result]:
        """Returns what the scorers of one kind know of a run that has not ended, whatever its record says of an answer:
        scores that are marked as provisional, and failures. What was asked before of the same steps comes from the
        engines' caches."""
        found = await self._asked(replace(run, answer=None, status="open"), self.live_scorers(kind), SCORING)
        return [
            replace(one, metadata={**one.metadata, PROVISIONAL: True}) if isinstance(one, Score) else one
            for one in found
        ]

    def live_scorers(self, kind: Live) -> tuple[Scorer, ...]:
        """Returns the scorers that look at open runs in one way."""
        return tuple(scorer for scorer in self._scorers if getattr(scorer, "live", None) == kind)

    async def _asked(self, run: Run, scorers: Sequence[Scorer], priority: int) -> list[Result]:
        setting, missing = await self._reach()
        failures: list[Result] = []
        able: list[Scorer] = []
        for scorer in scorers:
            needed = self._needed_by(scorer)
            if faults := [missing[model] for model in MODELS if model in missing and model in needed]:
                failures.append(failure_of(scorer.name, run, faults[0]))
            else:
                able.append(scorer)
        failures += capture_failures(run)
        if not able:
            return failures
        self._warn_of_language(run)
        found = await self._run(able, view_run(run, setting), self._models(priority))
        return [*found, *failures]

    def _needed_by(self, scorer: Scorer) -> set[str]:
        """Returns the models that a scorer asks, and those that decide its prompts and windows."""
        models = getattr(scorer, "models", MODELS)
        return {"engine", *(() if self._prompts else ("judge",)), *models} if models else set()

    def _models(self, priority: int, deadline: float | None = None) -> Models:
        return Models(self._engine, self._judge, self._entailer, priority, deadline=deadline)

    async def inquire(
        self,
        run: Run,
        inquiry: Callable[[View, Ask], Coroutine[Any, Any, T]],
        *,
        priority: int = SCORING,
        deadline: float | None = None,
    ) -> T:
        """Returns the result of a function that asks the models about a run, in waves as a scorer does. Raises what it
        raises, and where an engine cannot be reached."""
        setting = await self._ready()
        asker = _asker(self._models(priority, deadline), setting)
        [result] = await asker.attend([partial(inquiry, view_run(run, setting), asker)])
        return result

    async def plan(self, run: Run) -> Plan:
        """Returns the plan of scoring a run; asks no model about it. An engine that was not used yet finds out what its
        server can; defaults stand in for one out of reach."""
        setting, missing = await self._reach()
        prices = PriceList(setting)
        results = await self._run(self._scorers, view_run(run, setting), prices)
        # Scores from placeholders mean nothing; failures for what lies over a cap are kept.
        capped = CapExceeded.__name__
        failures = tuple(r for r in results if isinstance(r, Failure) and r.error == capped)
        needed = {name for scorer in self._scorers for name in self._needed_by(scorer)} - {"entailer"}
        unreachable = dict.fromkeys(str(missing[name]) for name in missing if name in needed)
        return prices.plan + Plan({}, failures, 1, unreachable=tuple(unreachable))

    async def identity(self) -> Identity:
        """Returns the identity of the scores of this pipeline; raises if an engine that is asked cannot be reached."""
        asks = not self._scorers or any(map(self._needed_by, self._scorers))
        setting = await self._ready() if asks else (await self._reach())[0]
        return Identity(
            setting.engine.fingerprint,
            setting.judge.fingerprint,
            setting.prompts.identity,
            tuple(ScorerIdentity(s.name, full_version(s, setting)) for s in self._scorers),
        )

    async def probe(self, *, deadline: float | None = None) -> None:
        """Asks each model a short question that no cache has an answer to; raises where one does not answer.

        Args:
            deadline: An instant of `time.monotonic()`, after which a model counts as one that does not answer.
        """
        word = new_id()
        for engine in self.engines:
            await engine.label_probs([word], ["yes", "no"], deadline=deadline)
        if not self._judge_compares:
            await self._entailer.entail([Pair(word, "yes", "no")], deadline=deadline)

    async def examine_unknown(self) -> None:
        """Examines briefly each model that nobody examined before; warns where one fails."""
        for engine in self.engines:
            await examine_unknown(engine, self._prompts)

    async def aclose(self) -> None:
        """Closes the models that the pipeline owns."""
        for model in self._owned:
            await model.aclose()

    def _warn_of_language(self, run: Run) -> None:
        """Warns, once each, of texts in a language whose phrases are not declared, and of answers in another language
        than English that an NLI model compares."""
        told = [run.question, run.answer or ""]
        texts = (passage.text for step in run.steps for passage in step.passages)
        # The script of the question tells in which language an answer is, whatever the passages are written in.
        answers = run.answer or run.references  # without one, nothing is sampled that could decline
        if answers and self._language == ENGLISH and not (is_english(told) and is_english([*told, *texts])):
            NOTICES.once(
                "language of texts",
                f"the run “{run.question[:80]}” is not in English, and only English phrases for “I don't know” are "
                "known: an answer that says so in another language counts as an answer. In Python, "
                "RagGuard(language=ragguard.metrics.Language(...)) takes your phrases; the commands know English ones",
            )
        # The judge knows the languages of its training; most small NLI models know only English.
        letters = [char for char in run.question[:1000] if char.isalpha()]
        latin = 2 * sum(char < "\u0250" for char in letters) >= len(letters)
        if not self._judge_compares and (self._language != ENGLISH or not latin):
            NOTICES.once(
                "language of answers",
                "answers in another language than English are compared by a model of its own: make sure that it is a "
                "multilingual one, or give RagGuard no `entailer`, so that the judge compares them",
            )

    async def _ready(self) -> Setting:
        setting, missing = await self._reach()
        for fault in missing.values():
            raise fault
        return setting

    async def _reach(self) -> tuple[Setting, Mapping[str, RagguardError]]:
        """Returns the setting, and the errors of models that cannot be reached, which are unknown in it."""
        if self._setting is not None:
            return self._setting, {}
        infos: dict[str, EngineInfo] = {}
        missing: dict[str, RagguardError] = {}
        models: tuple[Engine | Entailer, ...] = (self._engine, self._judge, self._entailer)
        for name, model in zip(MODELS, models, strict=True):
            try:
                infos[name] = infos["engine"] if infos and model is self._engine else await model.info()
            except RagguardError as error:
                missing[name] = error
                if name == "engine":  # no scorer can go on without it, so no other model is asked
                    missing = dict.fromkeys(MODELS, error)
                    break
        setting = self._setting_of(*(infos.get(name, UNKNOWN) for name in MODELS))
        if not missing:
            self._setting = setting
        return setting, missing

    def _setting_of(self, engine: EngineInfo, judge: EngineInfo, entailer: EngineInfo) -> Setting:
        prompts = self._prompts or load_prompts(engine.prompts)
        judge_prompts = self._prompts or load_prompts(judge.prompts)
        if only_of(self._judge):  # the reader writes what the judge cannot, by its own prompts
            judge_prompts = judge_prompts.completed(prompts)
        around_pair = 0
        if self._judge_compares and "entailment" in judge_prompts.templates:
            bare = judge_prompts.render("entailment", question="", first="", second="")
            around_pair = prompt_tokens(bare)
        exam = verdicts_of((engine, prompts), (judge, judge_prompts), judge_compares=self._judge_compares)
        more: dict[str, Any] = {
            "caps": self._caps, "language": self._language, "relevance": self._relevance, "exam": exam,
        }  # fmt: skip
        return Setting(
            engine, judge, entailer, prompts, judge_prompts=judge_prompts, around_pair=around_pair, **more
        )

    async def _run(self, scorers: Sequence[Scorer], view: View, respondent: Respondent) -> list[Result]:
        asker = _asker(respondent, view.setting)
        results: list[Result] = []
        unpaid = Usage()
        for found, usage in await asker.attend([partial(_score, scorer, view, asker) for scorer in scorers]):
            found, unpaid = paid(found, unpaid + usage)
            results += found
        return paid(results, unpaid)[0]


async def evaluate(run: Run, asking: Awaitable[Sequence[Result]]) -> ScoredRun:
    """Returns a run with what a pipeline gives of it: `pipeline.results(run)`, or `results_so_far` of an open run. An
    exception becomes a failure. Never raises."""
    started = time.time_ns()
    try:
        results = await asking
    except Exception as error:  # noqa: BLE001 - a fault of a scorer is a record as well
        if not isinstance(error, RagguardError):
            _log.error("scoring run %s failed: %s", run.id, describe(error), exc_info=error)
        results = [failure_of("scorers", run, error)]
    scores = [one for one in results if isinstance(one, Score)]
    failures = [one for one in results if isinstance(one, Failure)]
    run = with_leads(run)
    if run.status != "open":
        note = note_of(RunView(run, scores))
        run.cause = note.cause if note.cause != UNJUDGED else run.cause or UNJUDGED
    return ScoredRun(run, scores, failures, started_ns=started, ended_ns=time.time_ns())


def engine_answered(scored: ScoredRun) -> bool:
    """Returns False for a run about which no engine answered: it has no scores but those by words, which ask none, and
    failures that are all tried again."""
    asked = any(score.scorer != AnswerWords.name for score in scored.scores)
    return asked or not scored.failures or not all(failure.will_retry for failure in scored.failures)


async def _score(scorer: Scorer, view: View, asker: Asker) -> tuple[list[Result], Usage]:
    """Returns what a scorer gives, and the usage that is in none of its scores; an exception that it ends with is a
    failure."""
    ask = MeteredAsk(asker)
    outcome = await result_or_error(partial(scorer.score, view, ask))
    if isinstance(outcome, BaseException):
        if not isinstance(outcome, RagguardError):
            _log.error("scorer %s failed on run %s", scorer.name, view.run.id, exc_info=outcome)
        outcome = [failure_of(scorer.name, view.run, outcome)]
    elif not isinstance(scorer, OURS):
        outcome = completed(outcome, scorer, view)
    return [*outcome], unattributed(ask.usage, outcome)


def _asker(respondent: Respondent, setting: Setting) -> Asker:
    if setting.exam.identity:
        respondent = Examined(respondent, setting.exam, setting.judge_prompts)
    cap, window = setting.caps.prompt_tokens, setting.engine.context
    return Asker(respondent, cap, window, around_pair=setting.around_pair)
