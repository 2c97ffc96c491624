"""`DistractorGuard`: judges retrieved passages within a budget of milliseconds, and drops those that would mislead.

It judges every passage for the step's own query in one batch, lets its policies choose, and says
what it did and why. When time runs out, the engine fails or anything else goes wrong, everything
is kept: a guard must never be the reason that an answer is missing.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import TIMEOUT_MAX
from typing import Any, NoReturn

from ragguard.capture.anywhere import decided
from ragguard.capture.decisions import Verdict
from ragguard.capture.handle import Thumb
from ragguard.capture.snapshot import documents_in, has_text, is_scored, passage_of
from ragguard.engines.base import Engine
from ragguard.engines.connect import connect, connect_judge
from ragguard.engines.engine import check_reads
from ragguard.engines.layers.retry import failure_since
from ragguard.engines.prompts import PromptSet, load_prompts
from ragguard.errors import EngineProtocolError, InvalidInput, ProbeFailed, PromptTooLong, UnfitText
from ragguard.facts.verdicts import MISLEADS
from ragguard.guard.calibration import Calibration, Example, Order, calibrated, check_promise
from ragguard.guard.health import DecisionCounts, GuardHealth, GuardOutcome
from ragguard.guard.judge import GuardCall, PassageJudge
from ragguard.guard.policies import HelpThreshold, Judged, Policy, UtilityThreshold, choose
from ragguard.metrics.distraction import RELEVANCES, Relevance
from ragguard.records import Decision, Dropped, Passage
from ragguard.runtime.arguments import (
    LARGEST,
    milliseconds,
    number_between,
    one_of,
    share,
    whole_number,
)
from ragguard.runtime.async_twins import twin_of
from ragguard.runtime.circuit_breaker import CircuitBreaker, RetrySchedule
from ragguard.runtime.deadline import seconds_left
from ragguard.runtime.faults import describe
from ragguard.runtime.limiter import in_parallel
from ragguard.runtime.per_process import PerProcess
from ragguard.runtime.threads import BackgroundLoop
from ragguard.storage.files.calibration import check_same

CALIBRATED_AT_ONCE = 16
THREAD_GRACE_S = 0.015
"""Seconds beyond the budget that synchronous code waits for the background thread to report the end."""
BACKGROUND = BackgroundLoop("ragguard-guard")
"""The loop on which calls from synchronous code are judged, also those from inside a running loop."""


class DistractorGuard:
    """Drops passages whose expected utility for the query is under a threshold.

    If it cannot judge in time, it keeps everything and says why in its decision.

    Args:
        engine: The model that reads the passages: an address, `nano`, `vllm:MODEL`, `hf:MODEL`, an Engine, or
            `rg.engine` to share the cache and the budget of a RagGuard.
        threshold: Passages of a lower utility are dropped; from -1 (drops nothing) to 1. The default is uncalibrated:
            with a weak judge it drops gold, too. `ragguard calibrate` finds one with a promise.
        budget_ms: How many milliseconds a call may take. What is not judged by then is kept, with the status
            `timeout`.
        min_keep: How many passages always stay, 0 or more: those of the highest utility.
        policies: What chooses the passages to drop, in order, instead of `threshold`. None:
            only `UtilityThreshold(threshold)`.
        judge: Another model that judges relevance. None: the engine.
        prompts: The prompts that are asked: `default`, `nano`, a TOML file, or a PromptSet. None: those that fit
            the engine.
        relevance: The form in which relevance counts in utility: `probability`, the number that the judge gives, or
            `binary`, yes or no at 0.5, as in the paper. With RagGuard's form a report says the same of a passage.
        pause_after: After how many failed or late calls in a row the engine is not asked for a while, 1 or more;
            everything is kept meanwhile.
        pause_s: For how many seconds the engine is then not asked, before one call tries it again, 0 or more.
        shadow: True decides and drops nothing: decisions say in `would_drop` what would have gone, and `ragguard
            report` what that would have meant. The first step with a new engine or threshold. A share from 0 to 1 does
            so for that share of the calls, at random: labels of such calls (`note`) watch a calibration's promise.
    """

    def __init__(
        self,
        engine: str | Engine,
        threshold: float = MISLEADS,
        budget_ms: float = 300,
        min_keep: int = 1,
        *,
        policies: Sequence[Policy] | None = None,
        judge: str | Engine | None = None,
        prompts: str | PromptSet | None = None,
        relevance: Relevance = "probability",
        pause_after: int = 5,
        pause_s: float = 5.0,
        shadow: bool | float = False,
    ) -> None:
        self.shadow = shadow if isinstance(shadow, bool) else share("shadow", shadow)
        self.budget_ms = milliseconds("budget_ms", budget_ms)
        number_between("pause_s", pause_s, 0, LARGEST, "a number of seconds, 0 or more")
        whole_number("min_keep", min_keep, 0)
        whole_number("pause_after", pause_after, 1)
        threshold_policy = UtilityThreshold(threshold)
        chosen = (threshold_policy,) if policies is None else policies
        if not isinstance(chosen, list | tuple) or not all(isinstance(one, Policy) for one in chosen):
            allowed = "a list of policies, with `needs_utility` and `drop`, or None for only the threshold"
            raise InvalidInput("policies", policies, allowed)
        self.policies: tuple[Policy, ...] = tuple(chosen)
        self.min_keep = min_keep
        one_of("relevance", relevance, RELEVANCES)
        self.relevance = relevance
        self.engine = connect(engine)
        check_reads("engine", self.engine)
        self.judge = self.engine if judge is None else connect_judge(judge)
        asked = None if prompts is None else load_prompts(prompts)
        pauses = RetrySchedule(first=pause_s, longest=pause_s, jitter=(1.0, 1.0))
        self._here = PerProcess(
            lambda: _GuardState(
                PassageJudge(self.engine, self.judge, asked, relevance),
                CircuitBreaker(pause_after, pauses),
                DecisionCounts(),
            )
        )
        self._here.get()

    def __deepcopy__(self, memo: object) -> DistractorGuard:
        """Returns the guard itself, with its connections and threads: copies of a guarded retriever share it."""
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a DistractorGuard cannot be pickled: it holds connections and threads. Make one in each process, with "
            "the same settings; a calibrated threshold travels as `Calibration.save(path)` and `guard.use(path)`"
        )

    def prune(self, query: str, passages: Sequence[Any]) -> Decision:
        """Returns a decision: which passages the model should get instead of `passages`, which are Passages, texts or a
        framework's documents; `decision.of(passages)` returns the kept ones as they were given. Raises only if
        `passages` is none of these, never for a fault of an engine, a policy or a passage. It blocks an event loop that
        calls it."""
        call = GuardCall(_given_passages(passages), self.budget_ms)
        wait = min(seconds_left(call.deadline) + THREAD_GRACE_S, TIMEOUT_MAX)
        try:
            outcome = BACKGROUND.run(self._outcome(query, call), wait)
        except TimeoutError:
            why = "the guard's thread is busy: an engine's first call, or blocking code"
            outcome = self._late("thread", why)
        except Exception as error:  # noqa: BLE001 - no thread is to be had, as at the end of the process
            outcome = GuardOutcome.failed(error)
        return self._decision(outcome, call)

    @twin_of(prune)
    async def aprune(self, query: str, passages: Sequence[Any]) -> Decision:
        call = GuardCall(_given_passages(passages), self.budget_ms)
        return self._decision(await self._outcome(query, call), call)

    def health(self) -> GuardHealth:
        """Returns what this guard has decided so far, by status, and by cause if it could not judge; and whether the
        promise of its calibration holds, by the labels that `note` got."""
        return self._here.get().counts.snapshot()

    def note(
        self, decision: Decision, *, gold: Sequence[bool] | None = None, thumb: Thumb | None = None
    ) -> None:
        """Takes what became known about a decision of this guard, for `health()`.

        Args:
            decision: The decision.
            gold: Which of the passages that were given are gold, in their order. Of a decision in `shadow` counts what
                would have been dropped.
            thumb: What somebody said of the answer: `up` or `down`.
        """
        self._here.get().counts.note(decision, gold, thumb)

    async def judged(self, query: str, passages: Sequence[Passage]) -> list[Judged]:
        """Returns only the numbers, without a budget and without a policy; raises what the engine raises."""
        return await self._here.get().judge.judged(query, GuardCall(list(passages)))

    def calibrate(
        self,
        examples: Iterable[Example],
        max_gold_loss: float = 0.05,
        order: Order = "help",
        confidence: float | None = None,
    ) -> Calibration:
        """Chooses the threshold that drops at most a share of gold passages, from labelled examples, and uses it from
        now on. Raises CalibrationError for examples that are too few for the promise.

        Args:
            examples: Queries with their passages and which passages are gold. Examples without gold are skipped.
            max_gold_loss: The share of gold passages, between 0 and 1, that may be dropped.
            order: What the threshold applies to: `help`, the probability that a passage helps by judge and reader
                together, or `utility`, as in the paper, which drops almost nothing if the judge errs.
            confidence: The probability, over calibrations, with which the promise holds, such as 0.9. None: it holds in
                expectation, and a single calibration may lose more.
        """
        return BACKGROUND.run(self.acalibrate(examples, max_gold_loss, order, confidence))

    @twin_of(calibrate)
    async def acalibrate(
        self,
        examples: Iterable[Example],
        max_gold_loss: float = 0.05,
        order: Order = "help",
        confidence: float | None = None,
    ) -> Calibration:
        given = list(examples)
        useful = [example for example in given if any(example.gold)]
        check_promise(len(useful), max_gold_loss, order, confidence)  # checked before the models are asked
        judged = await in_parallel(
            [partial(self.judged, one.query, one.passages) for one in useful], CALIBRATED_AT_ONCE
        )
        gold, skipped = [one.gold for one in useful], len(given) - len(useful)
        identity = await self._here.get().judge.identity()
        calibration = calibrated(
            judged,
            gold,
            max_gold_loss,
            self.min_keep,
            order,
            self.relevance,
            confidence,
            skipped=skipped,
            **identity,
        )
        await self.ause(calibration)
        return calibration

    def use(self, calibration: Calibration | str | Path) -> None:
        """Uses a calibrated threshold from now on; raises CalibrationError for that of other models, prompts or another
        `min_keep`."""
        BACKGROUND.run(self.ause(calibration))

    @twin_of(use)
    async def ause(self, calibration: Calibration | str | Path) -> None:
        found = calibration if isinstance(calibration, Calibration) else Calibration.load(calibration)
        mine = await self._here.get().judge.identity() | {"min_keep": str(self.min_keep)}
        if found.order == "utility":  # the probability to help is the same number in both forms
            mine["relevance"] = self.relevance
        check_same("this guard", found, mine)
        others = [one for one in self.policies if not isinstance(one, UtilityThreshold | HelpThreshold)]
        self.policies = (found.policy, *others)
        self._here.get().counts.promise(found.max_gold_loss)

    async def aclose(self) -> None:
        """Closes the engines."""
        await self.engine.aclose()
        if self.judge is not self.engine:
            await self.judge.aclose()

    def _decision(self, outcome: GuardOutcome, call: GuardCall) -> Decision:
        """Counts the outcome and returns it as a decision about the passages, with its times."""
        chosen = list(outcome.dropped)
        shadow = self.shadow if isinstance(self.shadow, bool) else random.random() < self.shadow
        gone = set() if shadow else {drop.position for drop in chosen}
        elapsed = time.monotonic() - call.began
        decision = Decision(
            [passage for position, passage in enumerate(call.given, 1) if position not in gone],
            [] if shadow else chosen,
            "shadow" if shadow and chosen else outcome.status,
            elapsed * 1e3,
            reason=outcome.reason,
            started_ns=time.time_ns() - int(elapsed * 1e9),
            would_drop=chosen if shadow else [],
        )
        self._here.get().counts.count(decision, outcome.cause)
        decided(Verdict(decision, call.given))
        return decision

    async def _outcome(self, query: object, call: GuardCall) -> GuardOutcome:
        """Returns which passages go, or why none do; raises nothing but a cancellation."""
        passages = "1 passage" if len(call.readable) == 1 else f"{len(call.readable)} passages"
        asks = any(policy.needs_utility for policy in self.policies)
        if not isinstance(query, str):
            return GuardOutcome("error", f"the query is no text but of type {type(query).__name__}")
        if not call.readable:
            return GuardOutcome("kept_all", "no passage has a text" if call.given else "no passages")
        if len(call.readable) <= self.min_keep:
            return GuardOutcome("kept_all", f"not judged: min_keep {self.min_keep} keeps {passages} anyway")
        if asks and not query.strip():
            return GuardOutcome("kept_all", "no query")
        if asks and not seconds_left(call.deadline):
            return self._too_late(call)
        try:
            found = await self._judged(query, call) if asks else call.readable
        except Exception as error:  # noqa: BLE001 - whatever goes wrong, the passages get through
            return GuardOutcome.failed(error)
        return found if isinstance(found, GuardOutcome) else self._chosen(found, call)

    async def _judged(self, query: str, call: GuardCall) -> list[Judged] | GuardOutcome:
        """Returns the judgements, or the outcome where they are late: not even a cancellation is awaited longer. Raises
        what the engine raises."""
        here, failure = self._here.get(), ""
        attempt = here.breaker.enter()
        judging = asyncio.ensure_future(here.judge.judged(query, call))
        try:
            await asyncio.wait({judging}, timeout=seconds_left(call.deadline))
            if judging.cancelled():
                raise EngineProtocolError("the engine cancelled the call")
            if judging.done():
                judged = judging.result()
                here.breaker.succeeded()
                return judged
            late = self._too_late(call)
            failure = "" if late.cause == "queued" else late.reason
            return late
        except (PromptTooLong, UnfitText, ProbeFailed):
            raise  # the engine has not failed: it cannot judge these passages, or is not asked
        except Exception as error:
            failure = describe(error)
            raise
        finally:
            if failure:
                attempt.began = call.asked or attempt.began
                here.breaker.failed(attempt, failure, self)
            here.breaker.left(attempt)
            if not judging.done():
                # Nobody waits for its error any more, which asyncio would report where it is not looked at.
                judging.add_done_callback(lambda late: late.cancelled() or late.exception())
                # In the loop's next turn: other calls whose budgets are over must not wait for this one.
                judging.get_loop().call_soon(judging.cancel)
            del judging  # the task, its error and this frame would hold each other

    def _too_late(self, call: GuardCall) -> GuardOutcome:
        """Returns the outcome of a call whose judgement was late: because the engine failed and is tried again, because
        of the calls before it, or because the engine is slow."""
        failure = failure_since(self.engine, call.began) or failure_since(self.judge, call.began)
        if failure is not None:
            why = f"{describe(failure)} (no judgement within {self.budget_ms:g} ms)"
            return GuardOutcome("error", why, type(failure).__name__)
        now = time.monotonic()
        queued = (call.asked or now) - call.began
        if queued > (now - call.began) / 2:
            return self._late("queued", f"the call spent {queued * 1e3:.0f} ms in the guard's own queue")
        return self._late("too_slow", "the engine has not answered")

    def _late(self, cause: str, why: str) -> GuardOutcome:
        return GuardOutcome("timeout", f"no judgement within {self.budget_ms:g} ms: {why}", cause)

    def _chosen(self, judged: list[Judged], call: GuardCall) -> GuardOutcome:
        """Returns the judged passages that the policies drop; all stay where a policy fails."""
        names = ", ".join(type(policy).__name__ for policy in self.policies)
        try:
            reasons = choose(self.policies, judged, self.min_keep)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a policy of the user's own
            return GuardOutcome("error", f"{names}: {describe(error)}", "policy")
        dropped = [
            Dropped(
                one.passage, one.position, reasons[one.position], one.utility, p_abstain=one.p_abstain,
                p_relevant=one.p_relevant,
            )
            for one in judged
            if one.position in reasons
        ]  # fmt: skip
        unclear = [item.problem for item in judged if item.problem]
        notes = [names]
        if blank := len(call.given) - len(call.readable):
            notes.append(f"{blank} without text not judged")
        if unclear:
            notes.append(f"{len(unclear)} of {len(judged)} could not be judged: {unclear[0]}")
        return GuardOutcome(
            "pruned" if dropped else "kept_all", "; ".join(notes), "unclear" if unclear else "", dropped
        )


@dataclass(slots=True)
class _GuardState:
    """The state of a guard in one process: its limits, counts and threads."""

    judge: PassageJudge
    breaker: CircuitBreaker
    counts: DecisionCounts


def _given_passages(given: Sequence[Any]) -> list[Passage]:
    """Returns what a retriever gave as Passages; raises InvalidInput for anything without a text."""
    allowed = "a list of Passage, of texts, of mappings with a `text`, or of a framework's documents"
    if isinstance(given, str | Passage):
        raise InvalidInput("passages", given, allowed)
    try:
        items = list(given)
    except Exception as error:
        raise InvalidInput("passages", given, allowed) from error
    passages = []
    for item in items:
        text = item[0] if is_scored(item) else item
        if not (isinstance(text, str) or documents_in(text) or has_text(text)):
            raise InvalidInput("passages", item, allowed)
        passages.append(item if isinstance(item, Passage) else passage_of(item))
        if not isinstance(passages[-1].text, str):
            raise InvalidInput("passages", item, allowed)
    return passages
