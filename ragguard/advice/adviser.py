"""Gives advice about a run that has not ended, within a time budget; if advice fails, it is `continue` with the reason.

What the caller does wrong raises; what an engine does wrong, or a budget that is over, becomes `continue` with its
reason: advice must never be why an agent stops working.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from ragguard.advice.calibration import (
    AdviceCalibration,
    KnownOutcome,
    Trace,
    check_runs,
    choose_threshold,
)
from ragguard.advice.evidence import THRESHOLD, correctness, find_evidence, judge, sufficiency
from ragguard.capture.open_runs import BUDGET_MS, CapturedRun
from ragguard.errors import AdviceError, CalibrationError, EngineTimeout, InvalidInput
from ragguard.facts.steps import numbered
from ragguard.records import Advice, AdviceStatus, RetrievalStep, Run, Usage
from ragguard.runtime.arguments import milliseconds
from ragguard.runtime.async_twins import twin_of
from ragguard.runtime.deadline import seconds_left, until
from ragguard.runtime.faults import describe
from ragguard.runtime.limiter import WorkWindow, in_parallel
from ragguard.runtime.threads import BackgroundLoop
from ragguard.scorers.asker import ADVISING, SCORING, MeteredAsk
from ragguard.scorers.contested import Contested
from ragguard.scorers.question import Ask
from ragguard.scorers.scorer import Scorer
from ragguard.scorers.view import View
from ragguard.service.run_scoring import RunScoring
from ragguard.storage.files.calibration import check_same

AT_ONCE = 48
"""The number of calls that are judged at once at the most."""
CALIBRATED_AT_ONCE = 16
SHARED_S = 5.0
"""An attempt that failed so many seconds before the call may belong to a request that the call shares."""
GRACE_S = 0.05
"""A caller waits so much longer than the budget for the background thread to say that it is over."""
_ANY = Run(question="?")
"""Stands for any run where the models are looked at and not asked."""


class AdviceAdmission:
    """Admits a few calls of any thread at once, so that under load some are judged in time instead of all too late.

    Judging needs the processor between the engine's answers, so how many are judged at once follows what the machine
    can do. The newest goes first: it has most of its budget left, where the oldest would be judged half and given up.
    """

    def __init__(self) -> None:
        self._window = WorkWindow(AT_ONCE, least=1, most=AT_ONCE)
        self._calls = itertools.count()
        self._took_s = 0.0
        """How long the latest judgement took: a call with less time left would be given up half-way."""

    @asynccontextmanager
    async def admitted(self, deadline: float) -> AsyncIterator[None]:
        """Waits until the call may begin; raises EngineTimeout where too little time would be left."""
        latest = deadline - min(self._took_s, seconds_left(deadline) / 4)
        place = await self._window.enter(1, -next(self._calls), latest)
        began = time.monotonic()
        try:
            yield
        finally:
            ended = time.monotonic()
            self._took_s = ended - began
            if ended < deadline:
                self._window.soon(1)
            else:
                self._window.late(began)
            place.leave()


class Adviser:
    """Says what to do next in a run: answer, search on, search in other words, or distrust what was read.

    A RagGuard has one, as `rg.advice`; `run.advise()` asks it.
    """

    def __init__(
        self, asking: RunScoring, loop: BackgroundLoop, scorers: Iterable[str | Scorer] = ()
    ) -> None:
        """Asks on `loop`. Passages are compared as `scorers` do, so that nothing is asked twice."""
        self._asking, self._loop = asking, loop
        self._admission = AdviceAdmission()
        contested = next((one for one in scorers if isinstance(one, Contested)), Contested())
        self._find_evidence = partial(find_evidence, contested)
        self.calibration: AdviceCalibration | None = None
        """The calibration in use; None: the threshold is the default, and advice says that it is uncalibrated."""

    def advise(self, run: Run | CapturedRun, budget_ms: float = BUDGET_MS) -> Advice:
        """Returns advice about a run as it stands; of a framework's run, or one that was resumed, the store alone has
        all steps. Raises AdviceError for a run without a question or a step, never for what an engine does. An event
        loop that calls `advise` stands still meanwhile.

        Args:
            run: The run as it stands, or one that is being captured.
            budget_ms: How many milliseconds it may take.
        """
        call = _AdviceCall(run, budget_ms)
        try:
            return self._loop.run(self._advised(call), seconds_left(call.deadline) + 2 * GRACE_S)
        except Exception as error:  # noqa: BLE001 - whatever goes wrong, the agent goes on
            return self._unjudged(call, error)

    @twin_of(advise)
    async def aadvise(self, run: Run | CapturedRun, budget_ms: float = BUDGET_MS) -> Advice:
        return await self._advised(_AdviceCall(run, budget_ms))

    async def _advised(self, call: _AdviceCall) -> Advice:
        """Returns the advice. A call waits for its turn on the caller's own loop, so that one that is not admitted
        costs the thread that scores nothing."""
        try:
            if (captured := call.captured) is not None:
                async with asyncio.timeout(seconds_left(call.deadline)):
                    run = await self._loop.within(self._asking.captured_run(captured.id, captured.known))
                call.take(run or Run(captured.id), redacted=True)
            if not _is_readable(call.run.steps):
                return call.advice(Advice("rephrase", reasons=["no step has brought a passage with a text"]))
            async with self._admission.admitted(call.deadline):
                async with asyncio.timeout(seconds_left(call.deadline) + GRACE_S):
                    return await self._loop.within(self._judged(call))
        except Exception as error:  # noqa: BLE001 - whatever goes wrong, the agent goes on
            return self._unjudged(call, error)

    def _unjudged(self, call: _AdviceCall, error: Exception) -> Advice:
        """Returns the advice to go on, with the reason why nothing was judged; raises a mistake of the caller's."""
        if isinstance(error, AdviceError):
            raise error
        late = not seconds_left(call.deadline) or isinstance(error, EngineTimeout | TimeoutError)
        waited_for = self._asking.failure_since(call.began - SHARED_S) if late else None
        status: AdviceStatus = "timeout" if late and waited_for is None else "error"
        why = "the thread that scores or writes is busy" if type(error) is TimeoutError else describe(error)
        if waited_for is not None:
            why = f"{describe(waited_for)} (no judgement within {call.budget_ms:g} ms)"
        within = f" within {call.budget_ms:g} ms" if status == "timeout" else ""
        return call.advice(
            Advice("continue", reasons=[f"not judged{within}: {why}"], status=status, usage=call.usage)
        )

    def calibrate(
        self, runs: Iterable[Run | KnownOutcome], max_loss: float = 0.02, confidence: float | None = None
    ) -> AdviceCalibration:
        """Chooses the sufficiency from which stopping is advised, and uses it from now on. Raises CalibrationError for
        runs that are too few for the promise.

        Args:
            runs: Runs that went on to their end, with references, so that the engine is asked how right an answer
                would have been after each step; or KnownOutcome, if that is known. Others are skipped.
            max_loss: How much correctness stopping when advised may cost, in (0, 1).
            confidence: The probability, over calibrations, with which the promise holds, such as 0.9. None: it holds in
                expectation, and a single calibration may cost more.
        """
        return self._loop.run(self._calibrated(list(runs), max_loss, confidence))

    @twin_of(calibrate)
    async def acalibrate(
        self, runs: Iterable[Run | KnownOutcome], max_loss: float = 0.02, confidence: float | None = None
    ) -> AdviceCalibration:
        return await self._loop.within(self._calibrated(list(runs), max_loss, confidence))

    def use(self, calibration: AdviceCalibration | str | Path) -> None:
        """Uses a calibration; raises CalibrationError if it was made with other models or prompts.

        Args:
            calibration: A calibration, or the file that one was saved to.
        """
        self._loop.run(self.ause(calibration))

    @twin_of(use)
    async def ause(self, calibration: AdviceCalibration | str | Path) -> None:
        found = (
            calibration if isinstance(calibration, AdviceCalibration) else AdviceCalibration.load(calibration)
        )
        mine = await self._loop.within(self._asking.ask_about(_ANY, _identity, priority=ADVISING))
        check_same("this RagGuard", found, mine)
        self.calibration = found

    async def _judged(self, call: _AdviceCall) -> Advice:
        """Returns the advice, judged on the loop; waits no longer than the budget."""
        calibration = self.calibration

        async def judged(view: View, ask: Ask) -> Advice:
            asking = MeteredAsk(ask)
            try:
                evidence = await self._find_evidence(view, asking)
            finally:
                call.usage = asking.usage
            found = judge(evidence, calibration)
            found.numbers = evidence.numbers | {
                "sufficiency": sufficiency(evidence),
                "threshold": THRESHOLD if calibration is None else calibration.threshold,
            }
            found.usage, found.engine = call.usage, view.setting.engine.fingerprint
            return found

        run = _open_run(call.run, call.run.steps)
        async with until(call.deadline, "advice"):
            found = await self._asking.ask_about(
                run, judged, priority=ADVISING, deadline=call.deadline, redacted=call.redacted
            )
        return call.advice(found)

    async def _calibrated(
        self, given: Sequence[Run | KnownOutcome], max_loss: float, confidence: float | None
    ) -> AdviceCalibration:
        """Returns the calibration that these runs give, which is used from now on."""
        useful = [
            one if isinstance(one, KnownOutcome) else KnownOutcome(one)
            for one in given
            if isinstance(one, KnownOutcome)
            or (any(map(str.strip, one.references or ())) and one.question.strip() and one.steps)
        ]
        skipped = len(given) - len(useful)
        promise = check_runs(len(useful), max_loss, skipped, confidence)  # before the models are asked
        if all(len(_stages(one)) < 2 for one in useful):
            raise CalibrationError(
                f"each of the {len(useful)} runs searched once, which says nothing about when to stop: give runs of an "
                "agent that searches several times"
            )
        identity = await self._asking.ask_about(_ANY, _identity, priority=SCORING)
        traces = await in_parallel([partial(self._trace, one) for one in useful], CALIBRATED_AT_ONCE)
        choice = choose_threshold(traces, promise)
        low, high, over = choice.spread
        self.calibration = AdviceCalibration(
            choice.threshold, max_loss, len(useful), skipped, loss=choice.loss, steps_saved=choice.saved,
            confidence=confidence, loss_low=low, loss_high=high, over_limit=over, **identity,
        )  # fmt: skip
        return self.calibration

    async def _trace(self, known: KnownOutcome) -> Trace:
        """Returns a run in numbers: the sufficiency after each turn, and how right an answer would have been, which the
        engine is asked where it is not known."""
        enough: list[float] = []
        correct = list(known.correct or ())
        for prefix in _stages(known):
            evidence = None
            if _is_readable(prefix.steps):
                run = _open_run(prefix, prefix.steps)
                evidence = await self._asking.ask_about(run, self._find_evidence, priority=SCORING)
            enough.append(0.0 if evidence is None else sufficiency(evidence))
            if known.correct is None:
                correct.append(await self._asking.ask_about(prefix, correctness, priority=SCORING))
        return Trace(enough, correct)


class _AdviceCall:
    """A call for advice under way: its run, its deadline and what it has cost."""

    def __init__(self, about: Run | CapturedRun, budget_ms: float) -> None:
        self.budget_ms = milliseconds("budget_ms", budget_ms)
        self._started_ns, self.began = time.time_ns(), time.monotonic()
        self.deadline = self.began + budget_ms / 1e3
        self.run, self.redacted, self._step_id, self.usage = Run(), False, "", Usage()
        self.captured: CapturedRun | None = None
        """The captured run whose steps are in the store; None once the run is known."""
        if isinstance(about, CapturedRun):
            self.captured = about
        else:
            self.take(about)

    def take(self, run: Run, *, redacted: bool = False) -> None:
        """Takes the run that the call is about; raises AdviceError for one about which none can be given."""
        if not isinstance(run, Run):
            raise InvalidInput("run", run, "a Run")
        if not run.steps:
            raise AdviceError(f"run {run.id} has no step yet: ask for advice after a retrieval has ended")
        if not run.question.strip():
            raise AdviceError(
                f"run {run.id} has no question, so there is nothing to advise on: set run.question first"
            )
        self.run, self.redacted, self.captured = run, redacted, None
        self._step_id = numbered(run.steps)[-1][1].id

    def advice(self, advice: Advice) -> Advice:
        """Returns the advice with the step that it follows, and its times."""
        advice.step_id, advice.started_ns = self._step_id, self._started_ns
        advice.elapsed_ms = (time.monotonic() - self.began) * 1e3
        return advice


def _open_run(run: Run, steps: list[RetrievalStep], references: list[str] | None = None) -> Run:
    """Returns an open run with these steps and references, without its answer and what only an evaluation knows."""
    return Run(
        run.id, run.question, references, steps=steps, status="open", sub_questions=run.sub_questions,
        started_ns=run.started_ns,
    )  # fmt: skip


def _stages(known: KnownOutcome) -> Sequence[Run]:
    """Returns the run as it stood after each of its turns."""
    run, steps = known.run, numbered(known.run.steps)
    ends = [at for at in range(1, len(steps) + 1) if at == len(steps) or steps[at][0] != steps[at - 1][0]]
    return known.stages or [_open_run(run, [step for _, step in steps[:end]], run.references) for end in ends]


def _is_readable(steps: Sequence[RetrievalStep]) -> bool:
    return any(passage.text.strip() for step in steps for passage in step.passages)


async def _identity(view: View, _: Ask) -> dict[str, str]:
    """Returns, without asking, all that decides which sufficiency comes out, beside the run."""
    setting = view.setting
    return {
        "engine": setting.engine.fingerprint,
        "judge": setting.judge.fingerprint,
        "entailer": setting.entailer.fingerprint,
        "prompts": setting.prompts.identity,
        "judge_prompts": setting.judge_prompts.identity,
    }
