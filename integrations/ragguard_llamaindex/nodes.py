"""Takes snapshots of LlamaIndex nodes, and makes passages of them; reads how many a retriever is asked for.

A passage's text is what a model reads of its node: LlamaIndex's synthesizers, chats and tools put the metadata before
the text, by the node's own templates (`MetadataMode.LLM`). A snapshot is taken at once, since nodes change after they
were given (fusion rescales scores); its texts are put together later, when somebody reads the step. No function here
raises for unusual content, and no node is changed or kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from llama_index.core.schema import (
    DEFAULT_METADATA_TMPL,
    DEFAULT_TEXT_NODE_TMPL,
    BaseNode,
    MetadataMode,
    TextNode,
)

from ragguard.capture.snapshot import (
    OwnPassages,
    passage,
    passage_of,
    score_of,
    top_k_in,
)
from ragguard.records import Passage
from ragguard.runtime.faults import describe
from ragguard.runtime.text_memo import TextMemo
from ragguard.text.plain import comparable, is_same

UNFORMATTED = "ragguard.unformatted"
"""Metadata key that says why a passage is the bare text of a node whose templates could not be filled."""
NodeFields: TypeAlias = tuple[str, str, str, str, str, tuple[str, ...], float | None]
"""The text, the id and the three templates of a text node; the metadata keys hidden from models; the score."""
_NOTHING: Mapping[str, Any] = {}


class Taken(NamedTuple):
    """A snapshot of nodes, in two lists of one length.

    Metadata stands apart: Python's garbage collector does not visit a tuple of texts and numbers again, and one that
    holds a dict each time.
    """

    nodes: Sequence[NodeFields | Passage] = ()
    """The snapshot of each node; a passage where the fields of the node were not enough to make it later."""
    metadata: Sequence[Mapping[str, Any]] = ()
    """The metadata of each node of which the fields are kept; empty for the others."""

    @classmethod
    def of(cls, passages: Sequence[Passage]) -> Taken:
        """Makes a snapshot of passages, which hold their own metadata."""
        return cls(passages, [_NOTHING] * len(passages))


def taken(nodes: object) -> Taken:
    """Returns a snapshot of what a retriever gave: normally a list of NodeWithScore."""
    if not isinstance(nodes, (list, tuple)):
        # Any other iterable may be the application's own stream, which is not to be read here.
        return Taken() if nodes is None else Taken.of([passage_of(nodes)])
    fields: list[NodeFields | Passage] = []
    metadata: list[Mapping[str, Any]] = []
    add, add_metadata = fields.append, metadata.append
    try:
        for item in nodes:
            node = item.node
            if type(node) is not TextNode:
                add(passage_of(item))
                add_metadata(_NOTHING)
                continue
            state = node.__dict__  # quicker to read than the attributes of a pydantic model
            hidden = state["excluded_llm_metadata_keys"]
            add((
                state["text"], state["id_"], state["metadata_template"], state["metadata_separator"],
                state["text_template"], tuple(hidden) if hidden else (), item.score,
            ))  # fmt: skip
            add_metadata(state["metadata"].copy())
        return Taken(fields, metadata)
    except Exception:  # noqa: BLE001 - a node of the user's may raise anything; each is looked at by itself now
        return Taken.of([passage_of(item) for item in nodes])


def taken_bare(nodes: Sequence[BaseNode]) -> Taken:
    """Returns a snapshot of nodes without scores, of which LlamaIndex's FunctionTool shows a model the bare text."""
    return Taken.of([
        passage(node.get_content(metadata_mode=MetadataMode.NONE), node.node_id, None, node.metadata)
        for node in nodes
    ])  # fmt: skip


def unpacked(snapshot: Taken | tuple[()]) -> list[Passage]:
    """Returns the passages of a snapshot; none for an empty tuple, which stands for a missing snapshot."""
    return OwnPassages([
        one if isinstance(one, Passage) else _seen(one, metadata)
        for one, metadata in zip(*(snapshot or Taken()), strict=True)
    ])  # fmt: skip


def bare(snapshot: Taken) -> dict[str, str]:
    """Returns the nodes' own texts by those with the metadata before them."""
    passages = unpacked(snapshot)
    return {
        one.text: node[0]
        for one, node in zip(passages, snapshot.nodes, strict=True)
        if not isinstance(node, Passage)
    }


def node_ids(nodes: Iterable[Any]) -> list[str]:
    """Returns the ids of nodes, with or without scores."""
    return [str(getattr(getattr(item, "node", item), "node_id", "")) for item in nodes]


def _seen(fields: NodeFields, metadata: Mapping[str, Any]) -> Passage:
    """Returns the passage of a text node as `get_content(MetadataMode.LLM)` shows it to a model."""
    text, id, *_, score = fields
    if metadata:
        try:
            text = _with_metadata(fields, metadata)
        except Exception as error:  # noqa: BLE001 - templates and values are the user's
            metadata = {**metadata, UNFORMATTED: describe(error)}
    if type(text) is type(id) is str and type(score) is float and type(metadata) is dict:
        return Passage(text, id, score, metadata)
    return passage(text, id, score_of(score, {}), metadata)


_written: TextMemo[tuple[str, tuple[Any, ...], Mapping[str, Any] | None, str]] = TextMemo(4 * 2**20)
"""The latest texts, each with its templates, hidden keys and metadata, and with the text that a model reads."""


def _with_metadata(fields: NodeFields, metadata: Mapping[str, Any]) -> str:
    """Returns the text of a node with its metadata before it, by its templates."""
    text, _, template, separator, whole, hidden, _ = fields
    known = _written.known.get(id(text))
    if known is not None and known[1] == fields[2:6] and is_same(metadata, known[2]):
        return known[3]
    shown = metadata.items() if not hidden else [one for one in metadata.items() if one[0] not in hidden]
    if template == DEFAULT_METADATA_TMPL:  # most nodes have it, and formatting by a template takes long
        lines = [f"{key}: {value!s}" for key, value in shown]
    else:
        lines = [template.format(key=key, value=str(value)) for key, value in shown]
    written = text
    if about := separator.join(lines).strip():
        if whole == DEFAULT_TEXT_NODE_TMPL:
            written = f"{about}\n\n{text}".strip()
        else:
            written = whole.format(content=text, metadata_str=about).strip()
    if type(text) is str:
        _written.keep(text, (text, fields[2:6], comparable(metadata), written))
    return written


def top_k_of(retriever: object) -> int | None:
    """Returns how many nodes a retriever is asked for; None where it does not say."""
    value = getattr(retriever, "similarity_top_k", None)
    return top_k_in(getattr(retriever, "_similarity_top_k", None) if value is None else value)
