"""Retrievals of plain code, recorded in whatever run the code is inside of.

    @ragguard.retrieval
    def search(query: str) -> list[Document]:
        return vector_store.similarity_search(query)

    ragguard.retrieved(query, vector_store.similarity_search_with_score(query))

The run is found by context: `with rg.run(...)`, or the call of LangChain, LangGraph or LlamaIndex that is
captured. Imports no framework. Outside of any run nothing is recorded, which is logged once.
"""

from __future__ import annotations

import functools
import inspect
from asyncio import CancelledError
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, cast, overload

from ragguard.capture.context import CurrentCall, framework_call
from ragguard.capture.enclosing import EnclosingStep, enclosing_step, is_paused
from ragguard.capture.handle import RunHandle, innermost
from ragguard.capture.shapes import documents_in
from ragguard.capture.snapshot import id_in, metadata_of, passages_of, text_in, text_of, top_k_in
from ragguard.capture.turns import TurnKey
from ragguard.records import CONTENT_KIND, Decision, Passage, Status
from ragguard.runtime.faults import FAULTS
from ragguard.runtime.notices import NOTICES

P = ParamSpec("P")
R = TypeVar("R")

_TOP_K = ("k", "top_k")
"""The names by which functions that retrieve take the number of passages."""
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
        """The run's id in the store, as far as it is known; see `RunHandle.id`."""
        return self._call.recorder.stored_id(self._call.run_id)

    def retrieved(
        self, query: str, passages: object, *, candidates: object = None, k: int | None = None, tool: str = "",
        turn: int | None = None, started_ns: int = 0, decision: Decision | None = None,
        metadata: Mapping[str, Any] | None = None, id: str = "",
    ) -> str:  # fmt: skip
        """Records one retrieval and returns the step's id; see `RunHandle.retrieved`."""
        return _recorded(
            self._call, query, passages, candidates=candidates, k=k, tool=tool, turn=turn, started_ns=started_ns,
            decision=decision, metadata=metadata, id=id,
        )  # fmt: skip

    def failed(
        self, query: str, error: BaseException | str, *, status: Status = "error", tool: str = "",
        turn: int | None = None,
    ) -> str:  # fmt: skip
        """Records a retrieval that gave nothing and returns the step's id."""
        step_id = _started(self._call, query, tool, turn)
        self._call.recorder.step_failed(step_id, error, status)
        return step_id

    def answered(self, answer: object) -> None:
        """Records what the pipeline answered, in place of what the framework returns."""
        self._call.begin("")
        self._call.recorder.run_answered(self._call.run_id, text_of(answer)[0] or None)


def current_call() -> CurrentCall | None:
    """The call at work: a framework's that belongs to a run, or the code inside `with rg.run(...)`; None outside of
    both, and in a pause."""
    if is_paused():
        return None
    handle, call = innermost(), framework_call()
    if handle is None or (call is not None and call.run_id == handle.key):
        return call  # a framework's call inside the handle's run knows more: its tool, its turn
    return CurrentCall(handle.recorder, handle.key)


def current_run() -> RunHandle | FrameworkRun | None:
    """The run that the code at hand is inside of; None outside of any, and inside `with ragguard.paused()`."""
    call = current_call()
    if call is None:
        return None
    handle = innermost(call.recorder)
    return handle if handle is not None and handle.key == call.run_id else FrameworkRun(call)


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
        turn: A number that parallel retrievals share. None: a turn of its own.
        started_ns: When it began, in nanoseconds since 1970. 0: now.
        decision: What a guard decided about the passages.
        metadata: Anything that JSON can hold, kept with the step.
        id: An id of your own. Empty: a new one.
    """
    call = current_call()
    if call is None:
        _warn_outside()
        return ""
    return _recorded(
        call, query, documents, candidates=candidates, k=k, tool=tool, turn=turn, started_ns=started_ns,
        decision=decision, metadata=metadata, id=id,
    )  # fmt: skip


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

    The function may be sync or async, a generator of documents included; what it returns is passed on unchanged,
    but for a plain iterator (`map`, `iter`, a generator), which is recorded while it is read. Retrievals inside of it
    are parts of the step. See `retrieved` for what it may return; (text, documents), as a LangChain tool returns
    content and artifact, is read as the documents.

    Args:
        function: The function, where the decorator is used without arguments.
        query: The name of the argument that holds the query. Where there is none, the first text is taken.
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
    position = _position(function, query)
    signature = _signature(function)

    def recording(args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Recording:
        asked = _query_in(args, kwargs, query, position)
        given: object = None
        top_k: object = None
        if isinstance(k, str):
            given = _argument(signature, args, kwargs, (k,))
        elif k is None:
            top_k = _argument(signature, args, kwargs, _TOP_K)
        else:
            given = k
        name = getattr(function, "__name__", "")
        return _Recording(asked, tool, name=name, k=given, top_k=top_k_in(top_k))

    if inspect.isasyncgenfunction(function):

        async def wrapper(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            with recording(args, kwargs) as step:
                items = function(*args, **kwargs)
                while True:
                    try:
                        with step.enclosing():
                            item = await anext(items)
                    except StopAsyncIteration:
                        break
                    step.found.append(item)
                    yield item

    elif inspect.isgeneratorfunction(function):

        def wrapper(*args: Any, **kwargs: Any) -> Iterator[Any]:  # type: ignore[misc]
            with recording(args, kwargs) as step:
                yield from step.given(function(*args, **kwargs))

    elif inspect.iscoroutinefunction(function):

        async def wrapper(*args: Any, **kwargs: Any) -> Any:  # type: ignore[misc]
            with recording(args, kwargs) as step, step.enclosing():
                step.found = await function(*args, **kwargs)
            return step.found

    else:

        def wrapper(*args: Any, **kwargs: Any) -> Any:  # type: ignore[misc]
            with recording(args, kwargs) as step, step.enclosing():
                step.found = function(*args, **kwargs)
            return step.found

    return functools.wraps(function)(cast("Callable[..., Any]", wrapper))


class _Recording:
    """One call of a decorated function: a step that begins with it and ends with what it gave."""

    def __init__(self, query: str, tool: str, *, name: str, k: object, top_k: int | None) -> None:
        self._query, self._tool, self._name, self._k, self._top_k = query, tool, name, k, top_k
        self._call: CurrentCall | None = None
        self._step_id = ""
        self.found: Any = []
        """The value that the function gave."""

    def __enter__(self) -> _Recording:
        call = self._call = current_call()
        if call is None:
            _warn_outside()
            return self
        self._step_id = _started(call, self._query, self._tool, name=self._name, top_k=self._top_k)
        return self

    @contextmanager
    def enclosing(self) -> Iterator[None]:
        """Makes the retrievals inside the `with` parts of the step. A generator holds this only while it runs: between
        its items the context is its caller's."""
        call = self._call
        if call is None:
            yield
            return
        token = enclosing_step.set(EnclosingStep(call.recorder, call.run_id, self._step_id))
        try:
            yield
        finally:
            with suppress(
                ValueError
            ):  # closed by another task, an async generator ends in that one's context
                enclosing_step.reset(token)

    def given(self, items: Iterator[Any]) -> Iterator[Any]:
        """Yields the items one by one, and keeps them as what was found."""
        while True:
            try:
                with self.enclosing():
                    item = next(items)
            except StopIteration:
                return
            self.found.append(item)
            yield item

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._call is None:
            return
        if error is None and _is_plain_iterator(self.found):
            self.found = self._reading(self._call, self.found)
        else:
            self._end(self._call, error)

    def _reading(self, call: CurrentCall, items: Iterator[Any]) -> Iterator[Any]:
        """Yields the items to whoever reads the function's result, and ends the step when they have been read."""
        self.found = []
        try:
            yield from self.given(items)
        except BaseException as error:
            self._end(call, error)
            raise
        self._end(call, None)

    def _end(self, call: CurrentCall, error: BaseException | None) -> None:
        if isinstance(error, GeneratorExit):
            error = None  # whoever iterated it had enough: what was given until then is what was retrieved
        if error is None:
            _ended(call, self._step_id, self._query, _documents(self.found), k=self._k)
        else:
            cancelled = isinstance(error, CancelledError | KeyboardInterrupt)
            call.recorder.step_failed(self._step_id, error, "cancelled" if cancelled else "error")


def _position(function: Callable[..., Any], name: str) -> int | None:
    """Returns the position of the parameter of that name; None where there is none, or it is given by name only."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None
    at = list(parameters).index(name) if name in parameters else None
    return None if at is None or parameters[name].kind is inspect.Parameter.KEYWORD_ONLY else at


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """Returns the signature of a function; None where Python knows none."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _argument(
    signature: inspect.Signature | None, args: tuple[Any, ...], kwargs: dict[str, Any], names: Sequence[str]
) -> object:
    """Returns the first of some arguments of a call that the function has, its default where it is not given; None
    where the function has none of them."""
    if signature is not None and any(name in signature.parameters for name in names):
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:  # the call itself says so
            return None
        bound.apply_defaults()
        return next((bound.arguments[name] for name in names if name in bound.arguments), None)
    return next((kwargs[name] for name in names if name in kwargs), None)


def _query_in(args: tuple[Any, ...], kwargs: dict[str, Any], name: str, position: int | None) -> str:
    asked = kwargs.get(name)
    if asked is None and position is not None and position < len(args):
        asked = args[position]
    if asked is None:
        asked = next((value for value in (*args, *kwargs.values()) if isinstance(value, str)), "")
    return asked if isinstance(asked, str) else str(getattr(asked, "query_str", None) or text_of(asked)[0])


def _is_plain_iterator(result: object) -> bool:
    """True for a generator, `iter(...)`, `map`, `zip` and the like: an iterator without methods that a caller could
    miss in a generator that reads it."""
    return isinstance(result, Iterator) and type(result).__module__ in ("builtins", "itertools")


def _documents(result: Any) -> Any:
    """Finds the documents in the value that a function returned."""
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


def _warn_outside() -> None:
    if not is_paused():
        NOTICES.once("retrieved outside a run", _NO_RUN)


def _recorded(
    call: CurrentCall, query: str, passages: object, *, candidates: object, k: object, tool: str, turn: int | None,
    started_ns: int, decision: Decision | None, metadata: Mapping[str, Any] | None, id: str,
) -> str:  # fmt: skip
    step_id = _started(call, query, tool, turn, started_ns=started_ns, id=id)
    _ended(call, step_id, query, passages, candidates=candidates, decision=decision, metadata=metadata, k=k)
    return step_id


def _started(
    call: CurrentCall, query: str, tool: str, turn: int | TurnKey | None = None, *, started_ns: int = 0, id: str = "",
    name: str = "", top_k: int | None = None,
) -> str:  # fmt: skip
    """Opens a step where the call stands, and returns its id."""
    step_id = id_in(id)
    try:
        asked = text_of(query)[0]
        call.begin(asked)
        if turn is None:
            turn = call.turn() if callable(call.turn) else call.turn
        call.recorder.step_started(
            step_id, call.run_id, asked, perhaps_within=call.within, tool=text_in(tool) or call.tool, name=name,
            turn=turn, metadata=call.metadata, started_ns=started_ns if type(started_ns) is int else 0, top_k=top_k,
        )  # fmt: skip
    except FAULTS as error:
        call.recorder.faults.note("retrieved", error)
    return step_id


def _ended(
    call: CurrentCall, step_id: str, query: str, documents: object, *, candidates: object = None,
    decision: Decision | None = None, metadata: Mapping[str, Any] | None = None, k: object = None,
) -> None:  # fmt: skip
    """Closes the step with what was retrieved."""
    recorder = call.recorder
    try:
        if not recorder.wants(step_id):
            return
        passages = passages_of(documents)
        recorder.step_ended(
            step_id, passages, candidates=None if candidates is None else passages_of(candidates),
            decision=decision, metadata=metadata_of(metadata), k=k,
        )  # fmt: skip
        call.found(step_id, query, passages)
    except FAULTS as error:
        recorder.faults.note("retrieved", error)
        recorder.step_failed(step_id, error)
