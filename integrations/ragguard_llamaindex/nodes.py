"""What is needed of LlamaIndex nodes, taken at once: nodes change after they were given (fusion rescales scores).

Texts by reference, metadata copied; passages are made of it later, when somebody reads them. Knows nodes
only; nothing here raises for strange content, and nothing is changed or kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from llama_index.core.schema import BaseNode, ImageNode, MetadataMode, NodeWithScore, TextNode

from ragguard.capture.snapshot import metadata_of, passage, passage_of, score_of, unreadable
from ragguard.records import CONTENT_KIND, Passage

Taken: TypeAlias = Sequence[Passage | tuple[str, str, float | None, Mapping[str, Any]]]
"""Of each node its text, id, score and metadata; or a passage where it took more than a look."""

_MEDIA = ("image", "audio", "video")


def taken(nodes: object) -> Taken:
    """A snapshot of what a retriever gave: normally a list of NodeWithScore."""
    if not isinstance(nodes, (list, tuple)):
        # What else can be iterated may be the application's own stream: only a look, no reading.
        return [] if nodes is None else [_passage(nodes)]
    try:
        return [
            (node.text, node.id_, item.score, node.metadata.copy())
            if type(node := item.node) is TextNode
            else _passage(item)
            for item in nodes
        ]
    except Exception:  # noqa: BLE001 - a node of the user's may raise anything; each is looked at by itself now
        return [_passage(item) for item in nodes]


def unpacked(snapshot: Taken) -> list[Passage]:
    """The passages of a snapshot."""
    return [
        one if isinstance(one, Passage) else passage(one[0], one[1], score_of(one[2], {}), one[3])
        for one in snapshot
    ]


def same(passages: Sequence[Passage], nodes: Sequence[object]) -> bool:
    """True when the nodes are those passages, in that order."""
    return len(passages) == len(nodes) and all(
        (node := _node(item)) is not None and node.id_ == one.id and _text(node)[0] == one.text
        for one, item in zip(passages, nodes, strict=True)
    )


def node_id(item: object) -> str:
    """The id of a node with or without a score; '' for anything else."""
    node = _node(item)
    return "" if node is None else node.id_


def ids_of(items: Iterable[object]) -> set[str]:
    """The ids of nodes."""
    return {node_id(item) for item in items}


def are_nodes(value: object) -> bool:
    """True for a list of nodes that holds some."""
    return isinstance(value, list) and bool(value) and _node(value[0]) is not None


def _node(item: object) -> BaseNode | None:
    node = item.node if isinstance(item, NodeWithScore) else item
    return node if isinstance(node, BaseNode) else None


def _passage(item: object) -> Passage:
    try:
        return _read(item)
    except Exception as error:  # noqa: BLE001 - as above
        return unreadable(item, error)


def _read(item: object) -> Passage:
    if isinstance(item, (str, Passage)):
        return passage_of(item)
    node = _node(item)
    if node is None:
        return passage(item, None, None, None)
    text, kind = _text(node)
    metadata = metadata_of(node.metadata)
    if kind:
        metadata[CONTENT_KIND] = kind
    return Passage(text, node.id_, score_of(getattr(item, "score", None), {}), metadata)


def _text(node: BaseNode) -> tuple[str, str]:
    """A node's text, and what else it holds where it holds no text."""
    if isinstance(node, TextNode):
        text: object = node.text
    else:
        try:
            text = node.get_content(metadata_mode=MetadataMode.NONE)
        except Exception as error:  # noqa: BLE001 - a node class of the user's may raise anything
            return "", f"{type(node).__name__}, unreadable: {type(error).__name__}"
    if not isinstance(text, str):
        return "", type(text).__name__
    if text or type(node) is TextNode:
        return text, ""
    if isinstance(node, ImageNode):
        return "", "image"
    return "", ", ".join(kind for kind in _MEDIA if getattr(node, f"{kind}_resource", None) is not None)
