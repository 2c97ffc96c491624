"""Finds the LangChain or LangGraph call at work around plain code, so that `ragguard.retrieved` finds its run.

The call is read from LangChain's own context variable, which LangChain sets for code inside a chain, a node or a tool,
and passes on to tasks and its thread pools. Code in a custom retriever is inside of the
call around that retriever.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from langchain_core.callbacks import BaseCallbackManager, CallbackManager, Callbacks
from langchain_core.runnables.config import ensure_config, var_child_runnable_config

from ragguard.capture.context import CurrentCall, frameworks
from ragguard.capture.decisions import TOOL_CALL
from ragguard_langchain.call_tree import CallTree
from ragguard_langchain.callback import RagGuardCallback
from ragguard_langchain.open_calls import OpenCall
from ragguard_langchain.scopes import VerdictReport


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
    within = open_call.step_id
    about = {key: metadata[key] for key in ("langgraph_node",) if key in metadata}
    if open_call.notes.tool is not None and open_call.notes.tool.id:
        about[TOOL_CALL] = open_call.notes.tool.id

    def ended(step_id: str) -> None:
        if open_call.notes.tool is not None:
            open_call.notes.tool.add(step_id)

    return CurrentCall(
        tree.recorder, open_call.run_id, open_call.tool, open_call.turn, within=within, metadata=about,
        names=open_call.notes.run.names, begin=partial(tree.runs.retrieves, open_call), ended=ended,
    )  # fmt: skip


def report(verdict: VerdictReport, callbacks: Callbacks | None) -> None:
    """Reports the verdict to each handler that captures the surrounding call: the call that `callbacks` belong to,
    or the current call where they are None.

    Nothing is dispatched as an event, so that other handlers and event streams of the application see nothing of it.
    """
    around = ensure_config().get("callbacks") if callbacks is None else callbacks
    manager = CallbackManager.configure(around)
    trees: list[CallTree] = []
    for handler in manager.handlers:
        if isinstance(handler, RagGuardCallback) and handler.tree not in trees:  # it may be attached twice
            trees.append(handler.tree)
            handler.guard_decided(verdict, manager.parent_run_id)


frameworks["langchain"] = current_call
