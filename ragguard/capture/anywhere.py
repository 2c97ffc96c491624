"""Retrievals of plain code, recorded in whatever run the code is inside of.

    ragguard.retrieved(query, vector_store.similarity_search_with_score(query))

    @ragguard.retrieval
    def search(query: str) -> list[Document]:
        return vector_store.similarity_search(query)

The run is found by context: `with rg.run(...)`, or the call of LangChain, LangGraph or LlamaIndex that is
captured. Imports no framework. Outside of any run nothing is recorded, which is logged once.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, ParamSpec, TypeVar, overload

from ragguard.capture.decisions import Verdict
from ragguard.capture.enclosing import EnclosingStep, enclosing_step, is_paused
from ragguard.capture.handle import RunHandle, innermost, status_of
from ragguard.capture.plain_steps import (
    CurrentCall,
    aadvice_of,
    advice_of,
    end_step,
    framework_call,
    note_decision,
    record_failure,
    record_step,
    start_step,
)
from ragguard.capture.recorder import BUDGET_MS, CapturedRun
from ragguard.capture.shapes import documents_in
from ragguard.capture.snapshot import text_of, top_k_in
from ragguard.errors import InvalidInput
from ragguard.records import CONTENT_KIND, Advice, Decision, Passage
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
        return advice_of(self._call.recorder, CapturedRun(self.id), budget_ms, sampled=self._sampled)

    async def aadvise(self, budget_ms: float = BUDGET_MS) -> Advice:
        """Does what `advise` does, without blocking the event loop."""
        return await aadvice_of(self._call.recorder, CapturedRun(self.id), budget_ms, sampled=self._sampled)

    @property
    def _sampled(self) -> bool:
        return self._call.recorder.sampling.takes(self.id, self._call.names)


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


P = ParamSpec("P")
R = TypeVar("R")

_QUERY = "query"
_TOP_K = ("k", "top_k")
"""The usual argument names for the number of passages to retrieve."""


@overload
def retrieval(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def retrieval(
    *, query: str = "query", tool: str = "", k: str | int | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def retrieval(
    function: Callable[..., Any] | None = None,
    /,
    *,
    query: str = "query",
    tool: str = "",
    k: str | int | None = None,
) -> Any:
    """Records each call of a function as a retrieval: what it was asked, what it returned, or its error.

    The function may be sync, async or a generator of documents; its result is passed on unchanged. It may return what
    `ragguard.retrieved` takes, or a pair (text, documents) as LangChain tools do, of which the documents are recorded.
    Items of an iterator that it returns (`map`, `iter`) are not recorded, since reading them is the caller's.
    Retrievals that the function makes itself become sub-steps.

    Args:
        function: The function, where the decorator is used without arguments.
        query: The name of the argument that holds the query. Where there is no `query`, the first text is taken;
            another name has to be one of the function's.
        tool: The name of the retriever. Empty: the function's.
        k: For how many passages there is a place in the prompt: the number, or the name of the argument that holds it.
            None: the argument `k` or `top_k`, where there is one and the function gives no more than that.
    """
    if function is None:
        return functools.partial(_decorated, query=query, tool=tool, k=k)
    return _decorated(function, query=query, tool=tool, k=k)


def _decorated(
    function: Callable[..., Any], *, query: str, tool: str, k: str | int | None
) -> Callable[..., Any]:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # Python knows none of it
        signature = None
    if query != _QUERY and signature is not None and not _takes(signature, query):
        raise InvalidInput(
            "query", query, f"the name of an argument of {getattr(function, '__name__', 'the function')}"
        )

    def asked(args: tuple[Any, ...], kwargs: dict[str, Any]) -> AbstractContextManager[_DecoratedCall]:
        given = _arguments(signature, args, kwargs)
        words = given.get(query)
        if words is None:
            words = next((value for value in (*args, *kwargs.values()) if isinstance(value, str)), "")
        text = str(getattr(words, "query_str", None) or text_of(words)[0])
        places = given.get(k) if isinstance(k, str) else k
        top_k = next((given[name] for name in _TOP_K if name in given), None) if k is None else None
        name = getattr(function, "__name__", "")
        return _recorded(text, tool, name=name, k=places, top_k=top_k_in(top_k))

    async def stream(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        with asked(args, kwargs) as retrieval:
            items = function(*args, **kwargs)
            while True:
                try:
                    with retrieval.inside():
                        item = await anext(items)
                except StopAsyncIteration:
                    return
                retrieval.found.append(item)
                yield item

    def generator(*args: Any, **kwargs: Any) -> Iterator[Any]:
        with asked(args, kwargs) as retrieval:
            items = function(*args, **kwargs)
            while True:
                try:
                    with retrieval.inside():
                        item = next(items)
                except StopIteration:
                    return
                retrieval.found.append(item)
                yield item

    async def coroutine(*args: Any, **kwargs: Any) -> Any:
        with asked(args, kwargs) as retrieval, retrieval.inside():
            retrieval.found = await function(*args, **kwargs)
        return retrieval.found

    def plain(*args: Any, **kwargs: Any) -> Any:
        with asked(args, kwargs) as retrieval, retrieval.inside():
            retrieval.found = function(*args, **kwargs)
        return retrieval.found

    wrapper: Callable[..., Any] = plain
    if inspect.isasyncgenfunction(function):
        wrapper = stream
    elif inspect.isgeneratorfunction(function):
        wrapper = generator
    elif inspect.iscoroutinefunction(function):
        wrapper = coroutine
    return functools.wraps(function)(wrapper)


class _DecoratedCall:
    """One call of a decorated function: collects its result and marks retrievals inside it as sub-steps."""

    def __init__(self, step: EnclosingStep | None) -> None:
        self._step = step
        self.found: Any = []
        """The function's return value; of a generator, the list of items yielded so far."""

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Makes retrievals inside the `with` block sub-steps of this call.

        A generator's body runs in its caller's context, so the block is left at each `yield` and entered again.
        """
        token = None if self._step is None else enclosing_step.set(self._step)
        try:
            yield
        finally:
            # An async generator that another task closes ends in that task's context.
            with suppress(ValueError):
                if token is not None:
                    enclosing_step.reset(token)


@contextmanager
def _recorded(query: str, tool: str, *, name: str, k: object, top_k: int | None) -> Iterator[_DecoratedCall]:
    """Records one call as a step, which ends with the function's result, its error or the last item it yields."""
    call = current_call()
    if call is None:
        warn_outside()
        yield _DecoratedCall(None)
        return
    step_id = start_step(call, query, tool, name=name, top_k=top_k)
    retrieval = _DecoratedCall(EnclosingStep(call.recorder, call.run_id, step_id))
    try:
        yield retrieval
    except BaseException as error:
        if not isinstance(error, GeneratorExit):  # else the items so far are what the caller has read
            call.recorder.step_failed(step_id, error, status_of(error))
        raise
    finally:
        end_step(
            call, step_id, query, _documents(retrieval.found), k=k
        )  # does nothing where the step has failed


def _takes(signature: inspect.Signature, name: str) -> bool:
    """True if the function accepts an argument of this name, by itself or as `**kwargs`."""
    parameters = signature.parameters
    return name in parameters or any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())


def _arguments(
    signature: inspect.Signature | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Mapping[str, Any]:
    """Returns a call's arguments by name, with defaults filled in; without a signature only the named ones."""
    if signature is None:
        return kwargs
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:  # the call itself will raise the error
        return kwargs
    bound.apply_defaults()
    return {**bound.arguments, **kwargs}


def _documents(result: Any) -> Any:
    """Returns the part of a function's result that holds the documents; warns once if it is an iterator."""
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], str):
        documents = documents_in(result[1])
        return result if documents is None else documents
    if isinstance(result, Iterator | AsyncIterator):
        kind = type(result).__name__
        NOTICES.once(
            "retrieval returned an iterator",
            f"a function under @ragguard.retrieval returned a {kind}, which is the caller's to read, so its documents "
            "are not recorded. Return a list, or make the function itself a generator",
        )
        return [Passage("", metadata={CONTENT_KIND: kind})]
    return result
