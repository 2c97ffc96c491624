"""What the model got of what was retrieved: after rerankers, cuts and whatever else lies between.

Nodes pass through postprocessors and end in a synthesis, a tool's output or a response's sources.
With one retrieval in sight they are its share, even where they were rewritten or cut into pieces;
with several, each node belongs to those that found it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from ragguard.records import Passage
from ragguard_llamaindex.calls import Given
from ragguard_llamaindex.nodes import node_id, passages_of, same


def shares(
    given: Sequence[Given], nodes: Sequence[object], seen: Set[str] | None = None
) -> Iterator[tuple[Given, list[Passage] | None]]:
    """The retrievals that those nodes speak of, each with the new passages; None where nothing changed.

    `seen` holds the ids that a postprocessor was given: a retrieval of which it saw nothing is left alone,
    one of which it let nothing through has an empty share.
    """
    if len(given) == 1:
        one = given[0]
        if _ids(one) & seen if seen is not None else _made_of(one, nodes):
            yield one, _changed(one, nodes)
        return
    ids = [node_id(node) for node in nodes]
    for one in given:
        found = _ids(one)
        mine = [node for node, id in zip(nodes, ids, strict=True) if id in found]
        if mine or (seen is not None and found & seen):
            yield one, _changed(one, mine)


def _changed(one: Given, nodes: Sequence[object]) -> list[Passage] | None:
    return None if same(one.passages, nodes) else passages_of(list(nodes))


def _made_of(one: Given, nodes: Sequence[object]) -> bool:
    """True when the nodes are the retrieval's, whole or in pieces; no nodes at all are what was left of it."""
    found = _ids(one)
    if not nodes or any(node_id(node) in found for node in nodes):
        return True
    # Pieces have ids of their own, and a heading at most: their longest line is still the retrieval's.
    lines = [
        max(passage.text.splitlines(), key=len, default="").strip() for passage in passages_of(list(nodes))
    ]
    return any(line and line in passage.text for line in lines for passage in one.found)


def _ids(one: Given) -> Set[str]:
    return {passage.id for passage in one.found}
