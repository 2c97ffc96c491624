"""The guard: passages in, fewer passages out, within a budget of milliseconds, whatever happens.

It judges every passage for the step's own query in one batch, lets its policies choose, and says
what it did and why. When time runs out, the engine fails or anything else goes wrong, everything
is kept: a guard must never be the reason that an answer is missing.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from ragguard.capture.faults import describe
from ragguard.engines.base import Engine, Prompt
from ragguard.engines.connect import connect
from ragguard.engines.prompts import PromptSet, load_prompts
from ragguard.errors import (
    CalibrationError,
    EngineTimeout,
    InvalidInput,
    LowLabelMass,
    PromptTooLong,
)
from ragguard.guard.calibration import Calibration, Example, check_promise, choose_threshold, mean_kept
from ragguard.guard.pause import START_S, Pause
from ragguard.guard.policies import Judged, Policy, UtilityThreshold
from ragguard.guard.room import Room
from ragguard.metrics.distraction import utility
from ragguard.probes.abstention import abstention, read_abstention
from ragguard.probes.question import LabelAnswer, LabelQuestion, label_answers
from ragguard.probes.relevance import read_relevance, relevance
from ragguard.records import Decision, Dropped, Passage
from ragguard.service.loop import BackgroundLoop

AHEAD = -10
"""The priority of guard requests: before everything that only scores."""
CALIBRATED_AT_ONCE = 16
READ, READ_AGAIN = 32_000, 4_000
"""Characters of a passage that are judged; fewer once a server refused the batch for one that is too long."""
GRACE_S = 0.05
"""An engine's deadline lies so much behind the budget: what is late is called off, before it raises for itself."""
AT_A_TIME = 10
"""Passages for which prompts are written before the loop may do something else."""
WRITING = Room(1)
"""Whose turn it is to write prompts."""
AT_ONCE = 512
"""Passages that one guard judges at once: some batches full, as many as the usual layers send together."""
BACKGROUND = BackgroundLoop("ragguard-guard")
"""For calls from synchronous code, also from inside a running loop."""


class DistractorGuard:
    """Drops passages whose expected utility for the query is under a threshold."""

    def __init__(
        self,
        engine: str | Engine,
        threshold: float = -0.2,
        budget_ms: float = 300,
        min_keep: int = 1,
        *,
        policies: Sequence[Policy] | None = None,
        judge: str | Engine | None = None,
        prompts: str | PromptSet | None = None,
        pause_after: int = 5,
        pause_s: float = 5.0,
    ) -> None:
        for name, number in (("budget_ms", budget_ms), ("pause_s", pause_s)):
            if not isinstance(number, int | float) or not 0 <= number < math.inf:
                raise InvalidInput(name, number, "a number, 0 or more")
        for name, count, least in (("min_keep", min_keep, 0), ("pause_after", pause_after, 1)):
            if not isinstance(count, int) or count < least:
                raise InvalidInput(name, count, f"a whole number, {least} or more")
        threshold_policy = UtilityThreshold(threshold)
        self.policies: tuple[Policy, ...] = (threshold_policy,) if policies is None else tuple(policies)
        for policy in self.policies:
            if not isinstance(policy, Policy):
                raise InvalidInput("policies", policy, "policies: something with `needs_utility` and `drop`")
        self.budget_ms, self.min_keep = float(budget_ms), min_keep
        self.engine = connect(engine)
        self.judge = self.engine if judge is None else connect(judge)
        self._prompts = None if prompts is None else load_prompts(prompts)
        self._pause = Pause(pause_after, pause_s)
        self._room = Room(AT_ONCE)

    def prune(self, query: str, passages: Sequence[Passage | str]) -> Decision:
        """As `aprune`, from synchronous code; it may be called on a running event loop, which then waits."""
        return BACKGROUND.run(self.aprune(query, passages))

    async def aprune(self, query: str, passages: Sequence[Passage | str]) -> Decision:
        """What to give the model instead of `passages`. Never raises for what an engine or a passage does, only for
        `passages` that are none."""
        started, clock = time.time_ns(), time.perf_counter()
        given = _passages(passages)
        try:
            decision = await self._decide(query, given, clock)
        except Exception as error:  # noqa: BLE001 - whatever a policy or a template does, the passages get through
            decision = Decision(given, status="error", reason=describe(error))
        decision.started_ns, decision.elapsed_ms = started, (time.perf_counter() - clock) * 1e3
        return decision

    async def judged(self, query: str, passages: Sequence[Passage]) -> list[Judged]:
        """The numbers alone, without a budget and without a policy; raises what the engine raises."""
        return await self._judged(query, passages, None)

    def calibrate(
        self, examples: Iterable[Example], max_gold_loss: float = 0.05, confidence: float | None = None
    ) -> Calibration:
        """As `acalibrate`, from synchronous code."""
        return BACKGROUND.run(self.acalibrate(examples, max_gold_loss, confidence))

    async def acalibrate(
        self, examples: Iterable[Example], max_gold_loss: float = 0.05, confidence: float | None = None
    ) -> Calibration:
        """Chooses the utility threshold that drops at most that share of gold passages, and uses it from now on."""
        given = list(examples)
        useful = [example for example in given if any(example.gold)]
        check_promise(len(useful), max_gold_loss, confidence)  # before the models are asked
        few = asyncio.Semaphore(CALIBRATED_AT_ONCE)

        async def utilities_of(example: Example) -> list[float | None]:
            async with few:
                return [item.utility for item in await self.judged(example.query, example.passages)]

        utilities = await asyncio.gather(*map(utilities_of, useful))
        threshold, loss, dropped = choose_threshold(
            utilities, [example.gold for example in useful], max_gold_loss, confidence, self.min_keep
        )
        engine, judge, prompts = await self._identity()
        calibration = Calibration(
            threshold, max_gold_loss, confidence, len(useful), len(given) - len(useful), loss, dropped,
            self.min_keep, engine, judge, prompts, mean_kept(utilities, threshold, self.min_keep),
        )  # fmt: skip
        await self.ause(calibration)
        return calibration

    def use(self, calibration: Calibration | str | Path) -> None:
        """As `ause`, from synchronous code."""
        BACKGROUND.run(self.ause(calibration))

    async def ause(self, calibration: Calibration | str | Path) -> None:
        """Takes over a calibrated threshold; refuses one that was found with other models, prompts or `min_keep`."""
        found = calibration if isinstance(calibration, Calibration) else Calibration.load(calibration)
        mine = (*(await self._identity()), str(self.min_keep))
        theirs = (found.engine, found.judge, found.prompts, str(found.min_keep))
        for what, here, there in zip(("engine", "judge", "prompts", "min_keep"), mine, theirs, strict=True):
            if here != there:
                raise CalibrationError(
                    f"the calibration was made with {what} {there}, this guard has {here}: its promise would not "
                    f"hold; calibrate again"
                )
        others = tuple(policy for policy in self.policies if not isinstance(policy, UtilityThreshold))
        self.policies = (UtilityThreshold(found.threshold), *others)

    async def aclose(self) -> None:
        """Closes the engines."""
        await self.engine.aclose()
        if self.judge is not self.engine:
            await self.judge.aclose()

    async def _identity(self) -> tuple[str, str, str]:
        engine, judge = await self.engine.info(), await self.judge.info()
        prompts = self._prompts or load_prompts(engine.prompts)
        return engine.fingerprint, judge.fingerprint, prompts.identity

    async def _decide(self, query: str, given: list[Passage], clock: float) -> Decision:
        if not given:
            return Decision(given, reason="no passages")
        if len(given) <= self.min_keep:
            return Decision(given, reason=f"min_keep is {self.min_keep}")
        if any(policy.needs_utility for policy in self.policies):
            if not query.strip():
                return Decision(given, reason="no query")
            left = self.budget_ms / 1e3 - (time.perf_counter() - clock)
            if left <= 0:
                return self._late(given)
            if not self._pause.allows():
                return Decision(
                    given, status="error", reason="not asked: the engine failed several times just now"
                )
            outcome = await self._within(query, given, left)
            if isinstance(outcome, Decision):
                self._pause.missed()
                return outcome
            self._pause.met()
            return self._choose(outcome)
        return self._choose([Judged(passage, position) for position, passage in enumerate(given, 1)])

    async def _within(self, query: str, given: list[Passage], left: float) -> list[Judged] | Decision:
        """The judgements, or a decision to keep everything. Never waits longer, not even for a cancellation."""
        starts, late = self._pause.starts(), False
        behind = START_S if starts else left + GRACE_S
        task = asyncio.ensure_future(self._judged(query, given, time.monotonic() + behind))
        if starts:
            task.add_done_callback(self._started)
        try:
            await asyncio.wait({task}, timeout=left)
            late = not task.done()
        finally:
            if not task.done():
                task.add_done_callback(_swallow)
                if not (starts and late):
                    # After those who wait just now: whoever is late as well must not wait for this one's clearing up.
                    task.get_loop().call_soon(task.cancel)
        if not task.done():
            return self._late(given)
        if task.cancelled():
            return Decision(given, status="error", reason="the engine broke the call off")
        error = task.exception()
        if error is None:
            return task.result()
        if isinstance(error, EngineTimeout):
            return self._late(given)
        return Decision(given, status="error", reason=describe(error))

    def _started(self, task: asyncio.Task[list[Judged]]) -> None:
        self._pause.started(not task.cancelled() and task.exception() is None)

    def _late(self, given: list[Passage]) -> Decision:
        return Decision(given, status="timeout", reason=f"no judgement within {self.budget_ms:g} ms")

    async def _judged(self, query: str, passages: Sequence[Passage], deadline: float | None) -> list[Judged]:
        """One passage that no server takes must not be the reason that the others stay unjudged."""
        async with self._room.for_(len(passages)):
            try:
                return await self._judge(query, passages, deadline, READ)
            except PromptTooLong:
                if all(len(passage.text) <= READ_AGAIN for passage in passages):
                    raise
                return await self._judge(query, passages, deadline, READ_AGAIN)

    async def _judge(
        self, query: str, passages: Sequence[Passage], deadline: float | None, read: int
    ) -> list[Judged]:
        prompts = self._prompts or load_prompts((await self.engine.info()).prompts)
        theirs = prompts
        if self.judge is not self.engine:
            theirs = self._prompts or load_prompts((await self.judge.info()).prompts)
        reader: list[Prompt] = []
        judging: list[Prompt] = []
        async with WRITING.for_(1):
            for at in range(0, len(passages), AT_A_TIME):
                some = [passage.text[:read] for passage in passages[at : at + AT_A_TIME]]
                reader += [abstention(prompts, query, text).prompt for text in some]
                judging += [relevance(theirs, query, text).prompt for text in some]
                await asyncio.sleep(0)
        # Two calls as the scorer's, so that each finds what the other asked; one request where one engine does both.
        asking = [
            asyncio.ensure_future(_answers(self.engine, reader, prompts.labels("abstention"), deadline)),
            asyncio.ensure_future(_answers(self.judge, judging, theirs.labels("relevance"), deadline)),
        ]
        try:
            reads, verdicts = await asyncio.gather(*asking)
        finally:
            while asking:
                asking.pop().cancel()
        return _judgements(passages, reads, relevance(theirs, query, ""), verdicts)

    def _choose(self, judged: list[Judged]) -> Decision:
        left, reasons = judged, dict[int, str]()
        for policy in self.policies:
            gone = policy.drop(left)
            reasons |= gone
            left = [item for item in left if item.position not in gone]
        if len(left) < self.min_keep:
            best = sorted(
                (item for item in judged if item.position in reasons),
                key=lambda item: (-(item.utility if item.utility is not None else 1.0), item.position),
            )
            for item in best[: self.min_keep - len(left)]:
                del reasons[item.position]
        names = ", ".join(type(policy).__name__ for policy in self.policies)
        return Decision(
            kept=[item.passage for item in judged if item.position not in reasons],
            dropped=[
                Dropped(
                    item.passage, item.position, reasons[item.position],
                    item.utility, item.p_abstain, item.p_relevant,
                )
                for item in judged if item.position in reasons
            ],
            status="pruned" if reasons else "kept_all",
            reason=names,
        )  # fmt: skip


def _passages(given: Sequence[Passage | str]) -> list[Passage]:
    allowed = "a list of Passage or texts"
    if isinstance(given, str | Passage) or not isinstance(given, Iterable):
        raise InvalidInput("passages", given, allowed)
    passages = [passage if isinstance(passage, Passage) else Passage(passage) for passage in given]
    for passage in passages:
        if not isinstance(passage.text, str):
            raise InvalidInput("passages", passage.text, allowed)
    return passages


async def _answers(
    engine: Engine, prompts: Sequence[Prompt], labels: tuple[str, ...], deadline: float | None
) -> list[LabelAnswer]:
    probs = await engine.label_probs(prompts, labels, deadline=deadline, priority=AHEAD)
    return label_answers(probs, len(prompts), len(labels))


def _judgements(
    passages: Sequence[Passage],
    reads: Sequence[LabelAnswer],
    question: LabelQuestion,
    verdicts: Sequence[LabelAnswer],
) -> list[Judged]:
    abstains = [read_abstention(read).p for read in reads]
    relevant, problems = [0.0] * len(passages), dict[int, str]()
    for at, verdict in enumerate(verdicts):
        try:
            relevant[at] = min(1.0, read_relevance(question, verdict).p)
        except LowLabelMass as error:
            problems[at] = str(error)
    # All at once: arrays cost by the call.
    utilities = np.asarray(utility(relevant, abstains)).tolist()
    return [
        Judged(passage, at + 1, p_abstain=abstains[at], problem=problems[at])
        if at in problems
        else Judged(passage, at + 1, utilities[at], abstains[at], relevant[at])
        for at, passage in enumerate(passages)
    ]


def _swallow(task: asyncio.Task[list[Judged]]) -> None:
    if not task.cancelled():
        task.exception()
