"""Asks the engine whether it would abstain after reading a passage, and the judge whether the passage is relevant.

Knows prompts and engines; knows no budget and no policy.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import cast

import numpy as np

from ragguard.engines.base import Engine, EngineInfo
from ragguard.engines.prompts import PromptSet, load_prompts
from ragguard.errors import LowLabelMass, PromptTooLong, UnfitText
from ragguard.guard.policies import Judged
from ragguard.metrics.distraction import utility
from ragguard.records import Passage
from ragguard.runtime.faults import NOTICES
from ragguard.runtime.limiter import Limiter
from ragguard.scorers.asker import Respondent
from ragguard.scorers.exam.examined import Examined
from ragguard.scorers.exam.record import Verdicts, verdicts_of
from ragguard.scorers.models import GUARDING, Models
from ragguard.scorers.probes import abstention, read_abstention, read_relevance, relevance
from ragguard.scorers.question import LabelAnswer, LabelQuestion

READ, READ_AGAIN = 32_000, 4_000
"""The most characters of a passage that are judged: at first, and after a server has refused a batch with a passage
that is too long."""
AT_A_TIME = 10
"""Passages for which prompts are written before the loop may do something else."""
AT_ONCE = 512
"""The number of passages that one guard judges at once on each event loop: several full batches. Waiting callers
hold no prompts, so that they cost no memory and no garbage collection, whose pauses would make all guards late."""
WRITING = Limiter(1, per_loop=True)
"""Lets one caller at a time of each event loop write prompts, so that the loop stays free for timers."""

Candidate = tuple[int, Passage]
"""A passage with its 1-based rank among the candidates."""


class EngineTime:
    """Measures a call's wait for its engines, outside of the guard's own queues: `with waiting: await …`"""

    __slots__ = ("_ended", "_since", "asked")

    def __init__(self) -> None:
        self.asked: float | None = None
        """The time at which an engine was first asked, on the monotonic clock; None while the call is in the queue."""
        self._ended = 0.0
        self._since: float | None = None

    def __enter__(self) -> None:
        self._since = time.monotonic()
        if self.asked is None:
            self.asked = self._since

    def __exit__(self, *_: object) -> None:
        self._ended, self._since = self.seconds, None

    @property
    def seconds(self) -> float:
        """The seconds that the call has waited for its engines so far."""
        return self._ended + (0.0 if self._since is None else time.monotonic() - self._since)


class PassageJudge:
    """Judges passages for a query with one batch of questions."""

    def __init__(self, engine: Engine, judge: Engine, prompts: PromptSet | None) -> None:
        self.engine, self.judge, self._prompts = engine, judge, prompts
        self._limiter = Limiter(AT_ONCE, per_loop=True)
        self._verdicts: Verdicts | None = None

    async def identity(self) -> tuple[str, str, str]:
        """Returns the fingerprints of engine and judge, and the prompt set: what a calibration is valid for."""
        (engine, prompts), (judge, theirs) = await self._models()
        verdicts = self._examined(engine, prompts, judge, theirs)
        way = "/likelihood" if verdicts.relevance_by_likelihood else ""
        return engine.fingerprint, judge.fingerprint + way, prompts.identity

    async def _models(self) -> tuple[tuple[EngineInfo, PromptSet], tuple[EngineInfo, PromptSet]]:
        """Returns engine and judge, each with the prompts that it is asked."""
        engine = await self.engine.info()
        judge = engine if self.judge is self.engine else await self.judge.info()
        prompts, theirs = (self._prompts or load_prompts(one.prompts) for one in (engine, judge))
        return (engine, prompts), (judge, theirs)

    def _examined(
        self, engine: EngineInfo, prompts: PromptSet, judge: EngineInfo, theirs: PromptSet
    ) -> Verdicts:
        """Returns what the examinations of the models say, looked up once."""
        if self._verdicts is None:
            self._verdicts = verdicts_of((engine, prompts), (judge, theirs), judge_compares=False)
            if self._verdicts.relevance_by_likelihood:
                NOTICES.once(
                    f"guard by {judge.fingerprint}",
                    f"{judge.model} failed its examination in relevance: a guard tells it by the likelihood of the "
                    "query in place of labels",
                )
        return self._verdicts

    async def judged(
        self,
        query: str,
        candidates: Sequence[Candidate],
        deadline: float | None = None,
        waiting: EngineTime | None = None,
    ) -> list[Judged]:
        """Returns the numbers of each candidate; raises what the engine raises.

        When a server refuses one passage for its length, all are asked again shortened: one passage that no server
        takes must not be the reason that the others stay unjudged.
        """
        waiting = waiting or EngineTime()
        async with self._limiter.admitted(len(candidates)):
            try:
                return await self._judged(query, candidates, deadline, waiting, READ)
            except PromptTooLong:
                if all(len(passage.text) <= READ_AGAIN for _, passage in candidates):
                    raise
                return await self._judged(query, candidates, deadline, waiting, READ_AGAIN)
            except UnfitText:
                return await self._judged_alone(query, candidates, deadline, waiting)

    async def _judged_alone(
        self, query: str, candidates: Sequence[Candidate], deadline: float | None, waiting: EngineTime
    ) -> list[Judged]:
        """Returns the numbers of the candidates that the engine understands; the others have the reason. Raises it
        where it understands none."""
        found: list[Judged] = []
        for candidate in candidates:
            try:
                found += await self._judged(query, [candidate], deadline, waiting, READ)
            except UnfitText as error:
                if len(found) == len(candidates) - 1 and all(one.problem for one in found):
                    raise
                found.append(Judged(candidate[1], candidate[0], problem=str(error)))
        return found

    async def _judged(
        self,
        query: str,
        candidates: Sequence[Candidate],
        deadline: float | None,
        waiting: EngineTime,
        read: int,
    ) -> list[Judged]:
        with waiting:
            (engine, prompts), (judge, theirs) = await self._models()
        verdicts = self._examined(engine, prompts, judge, theirs)
        models = Models(self.engine, self.judge, priority=GUARDING, deadline=deadline, shares=False)
        for probe in ("abstention", *(() if verdicts.relevance_by_likelihood else ("relevance",))):
            if probe in verdicts.failed:
                raise verdicts.error(probe)
        reader: list[LabelQuestion] = []
        judging: list[LabelQuestion] = []
        async with WRITING.admitted():
            for at in range(0, len(candidates), AT_A_TIME):
                some = [passage.text[:read] for _, passage in candidates[at : at + AT_A_TIME]]
                reader += [abstention(prompts, query, text) for text in some]
                judging += [relevance(theirs, query, text) for text in some]
                await asyncio.sleep(0)
        told: Respondent = Examined(models, verdicts, theirs) if verdicts.relevance_by_likelihood else models
        # The same two calls as a scorer makes, so that guard and scorer share the cache; Coalesce merges them into one.
        asking = [
            asyncio.ensure_future(who.respond(asked)) for who, asked in ((models, reader), (told, judging))
        ]
        try:
            with waiting:
                reads, relevances = cast(Sequence[Sequence[LabelAnswer]], await asyncio.gather(*asking))
        finally:
            while asking:
                asking.pop().cancel()
        return _read(candidates, reads, judging, relevances)


def _read(
    candidates: Sequence[Candidate],
    reads: Sequence[LabelAnswer],
    questions: Sequence[LabelQuestion],
    relevances: Sequence[LabelAnswer],
) -> list[Judged]:
    """Returns the candidates with their numbers."""
    abstains = [read_abstention(read).value for read in reads]
    relevant, problems = [0.0] * len(candidates), dict[int, str]()
    for at, (question, answer) in enumerate(zip(questions, relevances, strict=True)):
        try:
            relevant[at] = min(1.0, read_relevance(question, answer).value)
        except LowLabelMass as error:
            problems[at] = str(error)
    # One call of numpy for all passages, since each call has a fixed cost.
    utilities = np.asarray(utility(relevant, abstains)).tolist()
    return [
        Judged(passage, position, p_abstain=abstains[at], problem=problems[at])
        if at in problems
        else Judged(passage, position, utilities[at], abstains[at], p_relevant=relevant[at])
        for at, (position, passage) in enumerate(candidates)
    ]
