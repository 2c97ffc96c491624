"""Passages from LlamaIndex nodes, copied at once: nodes change after they were given (fusion rescales scores).

Knows nodes only; nothing here raises for strange content, and nothing is changed or kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from llama_index.core.schema import BaseNode, ImageNode, MetadataMode, NodeWithScore, TextNode

from ragguard.capture.snapshot import KIND, metadata_of, passage, passage_of, score_of
from ragguard.records import Passage

_MEDIA = ("image", "audio", "video")


def passages_of(nodes: object) -> list[Passage]:
    """The passages in what a retriever gave: normally a list of NodeWithScore."""
    if isinstance(nodes, (list, tuple)):
        return [_passage(node) for node in nodes]
    # Anything else that is iterable could be the application's own stream: only a look, no reading.
    return [] if nodes is None else [_passage(nodes)]


def same(passages: Sequence[Passage], nodes: Sequence[object]) -> bool:
    """True when the nodes are those passages, in that order."""
    return len(passages) == len(nodes) and all(
        isinstance(node, NodeWithScore) and node.node.id_ == one.id and text_of(node.node)[0] == one.text
        for one, node in zip(passages, nodes, strict=True)
    )


def node_id(item: object) -> str:
    """The id of a node with or without a score; '' for anything else."""
    node = item.node if isinstance(item, NodeWithScore) else item
    return str(node.id_) if isinstance(node, BaseNode) else ""


def text_of(node: BaseNode) -> tuple[str, str]:
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


def _passage(item: object) -> Passage:
    if type(item) is NodeWithScore:
        # The common case without isinstance, which costs pydantic's classes more than all the rest here.
        plain = item.node
        if type(plain) is TextNode and type(plain.text) is str and type(plain.metadata) is dict:
            number = item.score
            if number is None or type(number) is float:
                return Passage(plain.text, plain.id_, number, plain.metadata.copy())
    if isinstance(item, NodeWithScore):
        node, score = item.node, item.score
    elif isinstance(item, BaseNode):
        node, score = item, None
    elif isinstance(item, (str, Passage)):
        return passage_of(item)
    else:
        return passage(item, None, None, None)
    metadata = metadata_of(node.metadata)
    text, kind = text_of(node)
    if kind:
        metadata[KIND] = kind
    return Passage(text, node.id_, score_of(score, {}), metadata)
