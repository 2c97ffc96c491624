"""Asks the engine whether it would abstain after reading a passage, and the judge whether the passage is relevant.

Knows prompts and engines; knows no budget and no policy.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ragguard.engines.base import Engine, EngineInfo
from ragguard.engines.prompts import PromptSet, load_prompts
from ragguard.errors import PromptTooLong, UnfitText
from ragguard.guard.policies import Judged
from ragguard.metrics.distraction import Relevance, utility
from ragguard.records import Passage
from ragguard.runtime.faults import NOTICES
from ragguard.runtime.limiter import Limiter, in_parallel
from ragguard.scorers.asker import GUARDING, Models, Respondent, ask_at_once
from ragguard.scorers.exam.examined import Examined
from ragguard.scorers.exam.record import Verdicts, verdicts_of
from ragguard.scorers.passages import Judgement, PassageQuestions
from ragguard.scorers.probes import Reading

READ, READ_AGAIN = 32_000, 4_000
"""The most characters of a passage that are judged: at first, and where these are too many for the model."""
AT_A_TIME = 10
"""Passages for which prompts are written before the loop may do something else."""
AT_ONCE = 512
"""The number of passages that one guard judges at once on each event loop: several full batches. Waiting callers
hold no prompts, so that they cost no memory and no garbage collection, whose pauses would make all guards late."""
GRACE_S = 0.05
"""Seconds between the budget and an engine's deadline: a late call is cancelled before it raises by itself."""
WRITING = Limiter(1, per_loop=True)
"""Lets one caller at a time of each event loop write prompts, so that the loop stays free for timers."""


class GuardCall:
    """The passages of a call, the instant at which its budget is used up, and since when it waits for the engine."""

    def __init__(self, given: list[Passage], budget_ms: float = math.inf) -> None:
        self.began = time.monotonic()
        self.given, self.deadline = given, self.began + budget_ms / 1e3
        self.readable = [Judged(passage, at) for at, passage in enumerate(given, 1) if passage.text.strip()]
        self.asked: float | None = None
        """Since when the call waits for the engine, on the monotonic clock; None while it waits for other calls."""


class PassageJudge:
    """Judges passages for a query with one batch of questions."""

    def __init__(
        self, engine: Engine, judge: Engine, prompts: PromptSet | None, relevance: Relevance
    ) -> None:
        self.engine, self.judge, self._prompts, self._relevance = engine, judge, prompts, relevance
        self._limiter = Limiter(AT_ONCE, per_loop=True)
        self._verdicts: Verdicts | None = None

    async def identity(self) -> dict[str, str]:
        """Returns the fingerprints of engine and judge, and the prompt set: what a calibration is valid for."""
        (engine, prompts), (judge, _), verdicts = await self._models()
        way = "/likelihood" if verdicts.relevance_by_likelihood else ""
        if verdicts.relevance_odds is not None:
            way = "/" + ",".join(map(str, verdicts.relevance_odds))
        judged_by = judge.fingerprint + way
        return {"engine": engine.fingerprint, "judge": judged_by, "prompts": prompts.identity}

    async def _models(
        self,
    ) -> tuple[tuple[EngineInfo, PromptSet], tuple[EngineInfo, PromptSet], Verdicts]:
        """Returns engine and judge, each with the prompts that it is asked, and what their examinations say, which is
        looked up once."""
        engine = await self.engine.info()
        judge = engine if self.judge is self.engine else await self.judge.info()
        prompts, theirs = (self._prompts or load_prompts(one.prompts) for one in (engine, judge))
        if self._verdicts is None:
            self._verdicts = verdicts_of((engine, prompts), (judge, theirs), judge_compares=False)
            if self._verdicts.relevance_by_likelihood:
                NOTICES.once(
                    f"guard by {judge.fingerprint}",
                    f"{judge.model} failed its examination in relevance: a guard judges it by the likelihood of "
                    "the query instead of labels",
                )
        return (engine, prompts), (judge, theirs), self._verdicts

    async def judged(self, query: str, call: GuardCall) -> list[Judged]:
        """Returns the numbers of the passages of a call that have a text; raises what the engine raises.

        Where one of them is too long for the model, or the model does not understand it, each is asked about alone: one
        passage that no model takes must not be the reason that the others stay unjudged.
        """
        async with self._limiter.admitted(len(call.readable)):
            try:
                return await self._judged(query, call.readable, call)
            except (PromptTooLong, UnfitText):
                each = [partial(self._judged_alone, query, one, call) for one in call.readable]
                found = await in_parallel(each)
                if all(one.problem for one in found):
                    raise
                return found

    async def _judged_alone(self, query: str, candidate: Judged, call: GuardCall) -> Judged:
        """Returns the numbers of one passage, or why the model cannot judge it. One that is too long is judged by its
        beginning: else it would pass the guard by its length."""
        problem = ""
        for read in (READ, READ_AGAIN) if len(candidate.passage.text) > READ_AGAIN else (READ,):
            try:
                [judged] = await self._judged(query, [candidate], call, read)
                return judged
            except PromptTooLong as error:
                problem = str(error)
            except UnfitText as error:
                problem = str(error)
                break
        return replace(candidate, problem=problem)

    async def _judged(
        self, query: str, candidates: Sequence[Judged], call: GuardCall, read: int = READ
    ) -> list[Judged]:
        call.asked = time.monotonic()
        (_, prompts), (_, theirs), verdicts = await self._models()
        deadline = None if call.deadline == math.inf else call.deadline + GRACE_S
        models = Models(self.engine, self.judge, priority=GUARDING, deadline=deadline, shares=False)
        verdicts.check("abstention", "relevance")
        questions = PassageQuestions(prompts, theirs)
        call.asked = None
        async with WRITING.admitted():
            for at in range(0, len(candidates), AT_A_TIME):
                questions.add((query, one.passage.text[:read]) for one in candidates[at : at + AT_A_TIME])
                await asyncio.sleep(0)
        respondent: Respondent = Examined(models, verdicts, theirs) if verdicts.changes_relevance else models
        call.asked = time.monotonic()
        # The same calls as a scorer makes, so that guard and scorer share the cache; Coalesce merges them into one.
        return self._with_numbers(candidates, await questions.put(partial(ask_at_once, respondent)))

    def _with_numbers(self, candidates: Sequence[Judged], judgements: Sequence[Judgement]) -> list[Judged]:
        """Returns the candidates with their numbers, or with the reason why their relevance is not known."""
        abstains = [judgement.p_abstain.value for judgement in judgements]
        relevant = [
            one.relevance.value if isinstance(one.relevance, Reading) else math.nan for one in judgements
        ]
        # One call of numpy for all passages, since each call has a fixed cost.
        known = [0.0 if math.isnan(r) else r for r in relevant]
        utilities = np.asarray(utility(known, abstains, self._relevance)).tolist()
        return [
            Judged(one.passage, one.position, p_abstain=p, problem=str(judgement.relevance))
            if math.isnan(r)
            else Judged(one.passage, one.position, u, p, p_relevant=r)
            for one, judgement, u, p, r in zip(
                candidates, judgements, utilities, abstains, relevant, strict=True
            )
        ]
