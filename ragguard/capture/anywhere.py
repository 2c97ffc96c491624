"""Retrievals of plain code, recorded in whatever run the code is inside of.

    ragguard.retrieved(query, vector_store.similarity_search_with_score(query))

The run is found by context: `with rg.run(...)`, or the call of LangChain, LangGraph or LlamaIndex that is
captured. Imports no framework. Outside of any run nothing is recorded, which is logged once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragguard.capture.context import CurrentCall, framework_call
from ragguard.capture.decisions import Verdict
from ragguard.capture.enclosing import is_paused
from ragguard.capture.handle import RunHandle, innermost
from ragguard.capture.interfaces import BUDGET_MS, Advise, AdviseAsync, CapturedRun
from ragguard.capture.plain_steps import advisers, keep_advice, note_decision, record_failure, record_step
from ragguard.capture.snapshot import text_of
from ragguard.records import Advice, Decision
from ragguard.runtime.faults import FAULTS, NOTICES

_NO_RUN = (
    "a retrieval was made outside of any run, so it is not recorded. Make it inside `with rg.run(question)`, or "
    "inside a LangChain, LangGraph or LlamaIndex call that is captured (RagGuardCallback(rg) in its callbacks, or "
    "instrument(rg)). A plain thread does not see its caller's run: use asyncio.to_thread, LangChain's "
    "ContextThreadPoolExecutor, or contextvars.copy_context().run"
)


class FrameworkRun:
    """The run of a framework's call, seen from the code inside of it. The framework begins and ends it."""

    def __init__(self, call: CurrentCall) -> None:
        self._call = call

    @property
    def id(self) -> str:
        """The run's id."""
        return self._call.run_id

    def retrieved(self, query: str, passages: object, **more: Any) -> str:
        """Records one retrieval and returns the step's id; takes the arguments of `RunHandle.retrieved`."""
        return record_step(self._call, query, passages, **more)

    def failed(self, query: str, error: BaseException | str, **more: Any) -> str:
        """Records a retrieval that gave nothing, as `RunHandle.failed` does, and returns the step's id."""
        return record_failure(self._call, query, error, **more)

    def answered(self, answer: object) -> None:
        """Records what the pipeline answered, in place of what the framework returns."""
        self._call.begin("")
        self._call.recorder.run_answered(self._call.run_id, text_of(answer)[0] or None)

    def advise(self, budget_ms: float = BUDGET_MS) -> Advice:
        """Returns what to do now, after the steps that the framework has made so far; see `RunHandle.advise`."""
        advise, _ = self._advisers()
        return self._kept(advise(CapturedRun(self.id), budget_ms))

    async def aadvise(self, budget_ms: float = BUDGET_MS) -> Advice:
        """Does what `advise` does, without blocking the event loop."""
        _, aadvise = self._advisers()
        return self._kept(await aadvise(CapturedRun(self.id), budget_ms))

    def _advisers(self) -> tuple[Advise, AdviseAsync]:
        """Returns what gives advice, blocking and not; raises AdviceError where the run can get no advice."""
        sampled = self._call.recorder.sampling.takes(self._call.run_id, self._call.names)
        return advisers(self._call.recorder, self.id, sampled=sampled)

    def _kept(self, advice: Advice) -> Advice:
        """Stores the advice with the latest step of the run, and returns it."""
        return keep_advice(self._call.recorder, self._call.run_id, advice)


def current_call() -> CurrentCall | None:
    """Returns the call at work: a call of a framework that belongs to a run, or the code inside `with rg.run(...)`;
    None outside of both, and in a pause."""
    if is_paused():
        return None
    handle, call = innermost(), framework_call()
    if handle is None or (call is not None and call.run_id == handle.id):
        return call  # a framework's call inside the handle's run knows more: its tool, its turn
    return handle.call


def current_run() -> RunHandle | FrameworkRun | None:
    """Returns the run that the calling code is inside of; None outside of any run, and in a pause of capture."""
    call = current_call()
    if call is None:
        return None
    handle = innermost(call.recorder)
    return handle if handle is not None and handle.id == call.run_id else FrameworkRun(call)


def retrieved(
    query: str,
    documents: object,
    *,
    candidates: object = None,
    k: int | None = None,
    tool: str = "",
    turn: int | None = None,
    started_ns: int = 0,
    decision: Decision | None = None,
    metadata: Mapping[str, Any] | None = None,
    id: str = "",
) -> str:
    """Records one retrieval in the run that the code at hand is inside of, and returns the step's id.

    Outside of any run nothing is recorded, the id is '', and a warning is logged once.

    Args:
        query: What was asked of the retriever.
        documents: What the model gets: documents or nodes of a framework, (document, score) pairs, Passages, texts,
            or what holds them (`{"documents": [...]}`). Ids and scores are kept.
        candidates: What was retrieved before a reranker or a guard. None: the same as `documents`.
        k: For how many passages there is a place in the prompt, at least as many as came; a guard does not lower it.
            None: as many as there were before a guard dropped some.
        tool: The name of the tool or retriever.
        turn: A number that parallel retrievals share. None: that of retrievals under way, else the next one.
        started_ns: When it began, in nanoseconds since 1970. 0: now.
        decision: What a guard decided about the passages.
        metadata: Anything that JSON can hold, kept with the step.
        id: An id of your own, such as that of a tool call; it is kept with the step, beside the step's id.
    """
    call = current_call()
    if call is None:
        warn_outside()
        return ""
    return record_step(
        call, query, documents, candidates=candidates, k=k, tool=tool, turn=turn, started_ns=started_ns,
        decision=decision, metadata=metadata, id=id,
    )  # fmt: skip


def decided(verdict: Verdict) -> None:
    """Keeps what a guard has decided that plain code inside a run has asked; outside of any run nothing."""
    call = current_call()
    if call is not None:
        try:
            note_decision(call, verdict)
        except FAULTS as error:
            call.recorder.faults.note("prune", error)


def warn_outside() -> None:
    """Warns once that a retrieval was made outside of any run; says nothing in a pause."""
    if not is_paused():
        NOTICES.once("retrieved outside a run", _NO_RUN)
