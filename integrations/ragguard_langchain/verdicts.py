"""A guard's verdict as it is reported to the handlers that capture the call around the guard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ragguard.capture.decisions import Verdict


@dataclass(frozen=True, slots=True, eq=False)
class VerdictReport:
    """A guard's verdict, with the query and the tool call whose result was judged."""

    verdict: Verdict
    query: str
    tool: str = ""
    """The name of the tool whose result was judged; empty where no tool's result was."""
    call: str = ""
    """The id of the tool call whose result was judged."""
    started_ns: int = 0
    """The time at which the tool call began, in nanoseconds since 1970."""
    metadata: Mapping[str, Any] | None = None
    """The node of the graph and the agent in whose call the tool's result was judged."""
    recorded_by: list[object] = field(default_factory=list, repr=False)
    """The call trees that have recorded the verdict, since a handler that is attached twice is called twice."""

    def was_recorded_by(self, tree: object) -> bool:
        """Returns True where the tree has recorded this verdict before, and notes that it has from now on."""
        before = any(one is tree for one in self.recorded_by)
        self.recorded_by.append(tree)
        return before
