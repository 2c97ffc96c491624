"""The form in which a convention for spans is written down: which attributes say what a span is, and hold what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["agent", "chain", "retrieval", "rerank", "guard", "tool", "model", "task", "other"]
"""The kinds of spans: an agent or a chain is a pipeline; a task is a piece of one, and a retrieval where its output is
documents alone; `other` is a kind that the convention knows and nothing is read from."""


@dataclass(frozen=True)
class Convention:
    """A convention for spans, as data. Where several names are given, the first that a span has counts.

    A name with `{i}` stands for the indexed attributes of a list, such as `retrieval.documents.{i}.document`.
    """

    name: str
    kinds: Mapping[str, Mapping[str, Kind]]
    """The kind of a span by an attribute and its value, in lower case; `*` is any value."""
    query: tuple[str, ...] = ()
    documents: tuple[str, ...] = ()
    """The documents that a retrieval found, or that a reranker or a guard kept."""
    document_events: Mapping[str, str] = field(default_factory=dict)
    """Events of which each holds one document, by the prefix of its fields."""
    given: tuple[str, ...] = ()
    """The documents that a reranker or a guard was given."""
    top_k: tuple[str, ...] = ()
    input: tuple[str, ...] = ()
    output: tuple[str, ...] = ()
    wrapped: tuple[str, ...] = ()
    """The names of the one entry of an input or an output that holds what was meant."""
    asked: tuple[str, ...] = ()
    """The messages that a model was given."""
    replied: tuple[str, ...] = ()
    """The messages that a model replied."""
    model: tuple[str, ...] = ()
    """The name of a model, and below what a call of it took."""
    tokens_read: tuple[str, ...] = ()
    tokens_written: tuple[str, ...] = ()
    cost: tuple[str, ...] = ()
    tool: tuple[str, ...] = ()
    """The name of a tool."""
    session: tuple[str, ...] = ()
