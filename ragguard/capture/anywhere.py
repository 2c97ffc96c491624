"""Retrievals of plain code, recorded in the run that surrounds the code.

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
from contextlib import contextmanager, suppress
from typing import Any, ParamSpec, TypeVar, overload

from ragguard.capture.decisions import Verdict
from ragguard.capture.handle import innermost, status_of
from ragguard.capture.plain_steps import CurrentCall, framework_call
from ragguard.capture.recorder import enclosing_step, is_paused
from ragguard.capture.snapshot import documents_in, text_of, top_k_in
from ragguard.errors import InvalidInput
from ragguard.records import CONTENT_KIND, Passage
from ragguard.runtime.faults import NOTICES

_NO_RUN = (
    "a retrieval was made outside of any run, so it is not recorded. Make it inside `with rg.run(question)`, or "
    "inside a LangChain, LangGraph or LlamaIndex call that is captured (RagGuardCallback(rg) in its callbacks, or "
    "instrument(rg)). A plain thread does not see its caller's run: use asyncio.to_thread, LangChain's "
    "ContextThreadPoolExecutor, or contextvars.copy_context().run"
)


def current_call() -> CurrentCall | None:
    """Returns the call at work: a call of a framework that belongs to a run, or the code inside `with rg.run(...)`;
    None outside of both, and in a pause."""
    if is_paused():
        return None
    handle, call = innermost(), framework_call()
    # A framework's call inside the handle's run knows more: its tool, its turn.
    return call if handle is None or (call is not None and call.id == handle.id) else handle


def current_run() -> CurrentCall | None:
    """Returns the run that the calling code belongs to; None outside of any run, and while capture is paused."""
    call = current_call()
    handle = None if call is None else innermost(call.recorder)
    return handle if handle is not None and call is not None and handle.id == call.id else call


def retrieved(query: str, documents: object, **more: Any) -> str:
    """Records one retrieval in the run that the calling code belongs to, and returns the step's id.

    Outside of any run nothing is recorded, the id is '', and a warning is logged once.

    Args:
        query: What was asked of the retriever.
        documents: What the model gets, as `run.retrieved` takes it: documents or nodes of a framework, (document,
            score) pairs, Passages, texts, or a mapping that has them (`{"documents": [...]}`). Ids and scores are kept.
        more: The other arguments of `run.retrieved`: `candidates`, `k`, `tool`, `turn`, `started_ns`, `decision`,
            `metadata`, `id`.
    """
    call = _recording()
    return "" if call is None else call.retrieved(query, documents, **more)


def decided(verdict: Verdict) -> None:
    """Keeps what a guard has decided that plain code inside a run has asked; outside of any run nothing."""
    call = current_call()
    if call is not None:
        call.decided(verdict)


def _recording() -> CurrentCall | None:
    """Returns the call at work, to record a retrieval there; warns once where it is made outside of any run."""
    call = current_call()
    if call is None and not is_paused():
        NOTICES.once("retrieved outside a run", _NO_RUN)
    return call


P = ParamSpec("P")
R = TypeVar("R")


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
    """Records each call of a function as a retrieval: its query, and what it returned or its error.

    The function may be sync or async, but no generator; its result is passed on unchanged. It may return what
    `ragguard.retrieved` takes, or a pair (text, documents) as LangChain tools do; then the documents are recorded. If
    it returns an iterator (`map`, `iter`), no items are recorded, because reading them would use them up. Retrievals
    that the function makes itself become sub-steps.

    Args:
        function: The function, if the decorator is used without arguments.
        query: The name of the argument that holds the query. If there is no `query`, the first text is taken;
            another name has to be one of the function's.
        tool: The name of the tool or retriever, for the step and its spans.
        k: How many passages the prompt has places for: the number, or the name of the argument that has it.
            None: the argument `k` or `top_k`, if there is one and the function gives no more than that.
    """
    if function is None:
        return functools.partial(retrieval, query=query, tool=tool, k=k)
    name = getattr(function, "__name__", "")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidInput(
            "function",
            function,
            "one that returns its documents; in a generator call ragguard.retrieved(...) itself",
        )
    signature = inspect.signature(function)
    takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in signature.parameters.values())
    if query != "query" and query not in signature.parameters and not takes_any:
        raise InvalidInput("query", query, f"the name of an argument of {name or 'the function'}")

    @contextmanager
    def recorded(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[list[Any]]:
        """Records one call as a step, which ends with what is put into the list, or with the function's error."""
        found: list[Any] = []
        call = _recording()
        if call is None:
            yield found
            return
        given: Mapping[str, Any] = kwargs
        with suppress(TypeError):  # which the call itself will raise
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            given = {**bound.arguments, **kwargs}
        words = given.get(query)
        if words is None:
            words = next((value for value in (*args, *kwargs.values()) if isinstance(value, str)), "")
        text = str(getattr(words, "query_str", None) or text_of(words)[0])
        top_k = next((given[one] for one in ("k", "top_k") if one in given), None) if k is None else None
        step_id = call.start(text, tool, name=name, top_k=top_k_in(top_k))
        token = enclosing_step.set((call.recorder, call.id, step_id))
        try:
            yield found
        except BaseException as error:
            call.recorder.step_failed(step_id, error, status_of(error))
            raise
        finally:
            enclosing_step.reset(token)
        call.end(step_id, _documents(found[0]), k=given.get(k) if isinstance(k, str) else k)

    async def coroutine(*args: Any, **kwargs: Any) -> Any:
        with recorded(args, kwargs) as found:
            found.append(await function(*args, **kwargs))
        return found[0]

    def plain(*args: Any, **kwargs: Any) -> Any:
        with recorded(args, kwargs) as found:
            found.append(function(*args, **kwargs))
        return found[0]

    return functools.wraps(function)(coroutine if inspect.iscoroutinefunction(function) else plain)


def _documents(result: Any) -> Any:
    """Returns the part of a function's result that holds the documents; warns once if it is an iterator."""
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], str):
        documents = documents_in(result[1])
        return result if documents is None else documents
    if isinstance(result, Iterator | AsyncIterator):
        kind = type(result).__name__
        NOTICES.once(
            "retrieval returned an iterator",
            f"a function under @ragguard.retrieval returned a {kind}, which only its caller may read, so its documents "
            "are not recorded. Return a list instead",
        )
        return [Passage("", metadata={CONTENT_KIND: kind})]
    return result
