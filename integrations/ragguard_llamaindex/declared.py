"""Warns of tools in `instrument(rg, tools=…)` that are never called: a misspelt name captures nothing."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping

from llama_index.core.agent.workflow import AgentWorkflow
from llama_index.core.agent.workflow.base_agent import BaseWorkflowAgent
from llama_index.core.tools import BaseTool

from ragguard.capture.declarations import never_called
from ragguard.runtime.notices import NOTICES

_PATIENCE = 10
"""The number of runs with tool calls after which a declared tool that no agent has is taken for a mistake."""


class ToolNames:
    """Collects the names of the tools that were called, and of those that agents have."""

    def __init__(self) -> None:
        self._called: set[str] = set()
        self._known: set[str] = set()
        self._runs = 0

    def called(self, name: str) -> None:
        """Notes that a tool was called."""
        self._called.add(name)
        self._known.add(name)

    def offered(self, agent: object) -> None:
        """Notes the tools of an agent, or of the agents of a workflow."""
        self._known.update(_tools_of(agent))

    def not_called(self, declared: Iterable[str]) -> set[str]:
        """Returns the declared tools of which no call was seen."""
        return set(declared) - self._called

    def check(self, declared: Mapping[str, object]) -> None:
        """Warns, when a run has ended, of declared tools that do not seem to exist."""
        missing = sorted(set(declared) - self._known)
        if not missing or not self._called:
            return
        self._runs += 1
        if self._runs < _PATIENCE and not any(_close(name, self._known - set(declared)) for name in missing):
            return
        NOTICES.once(f"declared {missing}", lambda: never_called(missing, self._called))


def _close(name: str, names: Iterable[str]) -> bool:
    return bool(difflib.get_close_matches(name, list(names), 1))


def _tools_of(agent: object) -> Iterator[str]:
    if isinstance(agent, AgentWorkflow):
        for one in agent.agents.values():
            yield from _tools_of(one)
    elif isinstance(agent, BaseWorkflowAgent):
        for tool in agent.tools or ():
            name = tool.metadata.name if isinstance(tool, BaseTool) else getattr(tool, "__name__", "")
            if name:
                yield name
