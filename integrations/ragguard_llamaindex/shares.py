"""Finds the share of each retrieval in the passages that the model got, after rerankers, cuts and other steps.

Nodes pass through postprocessors and end in a synthesis, a tool's output or a response's sources. Where there is one
retrieval, all nodes are its share, even nodes that were rewritten or cut into pieces. Where there are several, a node
belongs to those that found it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from ragguard.capture.decisions import Verdict, about, merged
from ragguard.records import Decision, Passage
from ragguard_llamaindex.nodes import Taken, TextOf, ids_of, node_id, same, taken, unpacked


@dataclass(slots=True, eq=False)
class PendingRetrieval:
    """A retrieval that has ended, with the nodes that it found and those that the model is known to get so far."""

    step_id: str
    found: Taken
    text_of: TextOf | None = None
    left: Taken | None = None
    """The nodes that are left by now, where a part of the pipeline has changed them."""
    candidates: list[Passage] | None = None
    """The passages that were retrieved, where a guard inside the retrieval has dropped some."""
    decision: Decision | None = None
    stopped: bool = False
    """True where a postprocessor that was given the nodes has failed."""

    @property
    def ids(self) -> Set[str]:
        """The ids of the nodes that were found."""
        return self.found.ids

    def becomes(self, nodes: Sequence[object]) -> list[Passage] | None:
        """Notes that these nodes go on to the model; returns their passages, or None where nothing changed."""
        left = taken(list(nodes), self.text_of)
        if same(self.found if self.left is None else self.left, left):
            return None
        self.left = left
        return unpacked(left)

    def decided(self, verdict: Verdict, *, alone: bool) -> Decision:
        """Adds a guard's decision; returns what all guards decided about this retrieval so far."""
        if self.candidates is None:
            self.candidates = unpacked(self.found)
        self.decision = merged(self.decision, about(verdict, self.candidates, alone=alone))
        return self.decision


def shares(
    given: Sequence[PendingRetrieval], nodes: Sequence[object], seen: Set[str] | None = None
) -> Iterator[tuple[PendingRetrieval, list[Passage] | None]]:
    """Returns the retrievals that the given nodes come from, each with its new passages; None where nothing changed.

    `seen` holds the ids that a postprocessor was given: a retrieval none of whose nodes it was given does not change,
    and a retrieval of which it returned no node has an empty share.
    """
    if len(given) == 1:
        one = given[0]
        if one.ids & seen if seen is not None else _made_of(one, nodes):
            yield one, one.becomes(nodes)
        return
    for one in given:
        found = one.ids
        mine = [node for node in nodes if node_id(node) in found]
        if mine or (seen is not None and found & seen):
            yield one, one.becomes(mine)


def _made_of(one: PendingRetrieval, nodes: Sequence[object]) -> bool:
    """True where the nodes come from the retrieval, whole or in pieces; also where there are no nodes."""
    if not nodes or ids_of(nodes) & one.ids:
        return True
    # Pieces have ids of their own, perhaps with a heading: their longest line still comes from the retrieval.
    lines = [
        max(piece.text.splitlines(), key=len, default="").strip()
        for piece in unpacked(taken(list(nodes), one.text_of))
    ]
    return any(line and line in passage.text for line in lines for passage in unpacked(one.found))
