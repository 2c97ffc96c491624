"""A retrieval that has ended, about which guards behind it may still decide."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from ragguard.capture.decisions import Verdict, about, merged
from ragguard.records import Decision, Passage
from ragguard_llamaindex.nodes import Taken, unpacked


@dataclass(slots=True, eq=False)
class PendingRetrieval:
    """A retrieval that has ended, with the nodes that it found."""

    step_id: str
    found: Taken
    candidates: list[Passage] | None = None
    """The passages that were retrieved, where a guard inside the retrieval has dropped some."""
    decision: Decision | None = None

    @property
    def ids(self) -> Set[str]:
        """The ids of the nodes that were found."""
        return self.found.ids

    def decided(self, verdict: Verdict, *, alone: bool) -> Decision:
        """Adds a guard's decision; returns what all guards decided about this retrieval so far."""
        if self.candidates is None:
            self.candidates = unpacked(self.found)
        self.decision = merged(self.decision, about(verdict, self.candidates, alone=alone))
        return self.decision
