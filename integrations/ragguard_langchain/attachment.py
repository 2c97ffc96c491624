"""Captures every LangChain call of the process, without patching anything; and finds the call that plain code runs in,
so that `ragguard.retrieved` finds its run.

LangChain asks a registered variable for a handler whenever it sets up a call's callbacks. There is no way to take it
back, so it is registered once and answers with None when nothing is attached.

The call at work is read from LangChain's own context variable, which LangChain sets for code inside a chain, a node or
a tool, and passes on to tasks and its thread pools. Code in a custom retriever is inside of the call around that
retriever.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager, CallbackManager, Callbacks
from langchain_core.runnables.config import ensure_config, var_child_runnable_config
from langchain_core.tracers.context import register_configure_hook

from ragguard.capture.decisions import Verdict
from ragguard.capture.declarations import Locate, Tools
from ragguard.capture.model_calls import TOOL_CALL
from ragguard.capture.plain_steps import CurrentCall, frameworks
from ragguard_langchain.call_tree import CallTree
from ragguard_langchain.callback import RagGuardCallback
from ragguard_langchain.open_calls import OpenCall

if TYPE_CHECKING:
    from ragguard import RagGuard


class _Attachment:
    """Attaches one handler to all calls. LangChain gets this object in place of a context variable and of the class
    of the variable's values: it asks the variable for its value, and the class whether a handler is an instance."""

    def __init__(self) -> None:
        self.handler: RagGuardCallback | None = None
        self.registered = False
        self.lock = threading.Lock()

    def get(self) -> RagGuardCallback | None:
        """Returns the handler of every call, in every thread and task; None where nothing is attached."""
        return self.handler

    def __call__(self) -> BaseCallbackHandler:
        """Returns a handler without effect, where the attached one was removed between LangChain's two looks for it."""
        return BaseCallbackHandler()

    def __instancecheck__(self, handler: object) -> bool:
        """Returns whether a handler of a call is the attached one, so that LangChain adds it once."""
        return handler is self.handler


_attachment = _Attachment()


def instrument(
    rg: RagGuard,
    *,
    tools: Tools | None = None,
    question: str | Locate | None = None,
    answer: str | Locate | None = None,
) -> None:
    """Captures every LangChain and LangGraph call of this process that retrieves, from now on.

    Calling it again changes what is attached: one RagGuard at a time. Calls that retrieve nothing are not recorded,
    unless their metadata names references, a name or an id for the run.

    Args:
        rg: The RagGuard that gets the runs.
        tools: As `RagGuardCallback` takes them.
        question: As `RagGuardCallback` takes it.
        answer: As `RagGuardCallback` takes it.
    """
    handler = RagGuardCallback(rg, tools=tools, question=question, answer=answer)
    with _attachment.lock:
        _attachment.handler = handler
        if not _attachment.registered:
            register_configure_hook(
                cast("ContextVar[RagGuardCallback | None]", _attachment),
                inheritable=True,
                handle_class=cast("type[BaseCallbackHandler]", _attachment),
            )
            _attachment.registered = True


def uninstrument() -> None:
    """Stops capturing calls that begin from now on; calls under way are captured to their ends."""
    with _attachment.lock:
        _attachment.handler = None


def current_call() -> CurrentCall | None:
    """Returns the innermost captured call around the caller; None outside of any."""
    config = var_child_runnable_config.get()
    manager = config.get("callbacks") if config else None
    if config and isinstance(manager, BaseCallbackManager):
        for handler in manager.handlers:
            if isinstance(handler, RagGuardCallback):
                open_call = handler.tree.open_call(manager.parent_run_id)
                if open_call is not None:
                    return _call(handler.tree, open_call, config.get("metadata") or {})
    return None


def _call(tree: CallTree, open_call: OpenCall, metadata: Mapping[str, Any]) -> CurrentCall:
    about = {key: metadata[key] for key in ("langgraph_node",) if key in metadata}
    if open_call.tool_call is not None and open_call.tool_call.call_id:
        about[TOOL_CALL] = open_call.tool_call.call_id
    return CurrentCall(
        tree.recorder, open_call.run.id, open_call.tool, open_call.turn, within=open_call.step_id, about=about,
        names=open_call.run.names, begin=open_call.run.retrieves, ended=open_call.note_step,
        path=open_call.path,
    )  # fmt: skip


def report(verdict: Verdict, query: str, callbacks: Callbacks | None, tool_call: str = "") -> None:
    """Reports a guard's verdict to each handler that captures the surrounding call: the call that `callbacks` belong
    to, or the current call where they are None. `tool_call` is the id of the tool call whose result was judged.

    Nothing is dispatched as an event, so that other handlers and event streams of the application see nothing of it.
    """
    around = ensure_config().get("callbacks") if callbacks is None else callbacks
    manager = CallbackManager.configure(around)
    trees: list[CallTree] = []
    for handler in manager.handlers:
        if isinstance(handler, RagGuardCallback) and handler.tree not in trees:  # it may be attached twice
            trees.append(handler.tree)
            handler.guard_decided(manager.parent_run_id, verdict, query, tool_call)


frameworks["langchain"] = current_call
