"""The conventions for spans that are understood, as data: which attributes say what a span is, and hold what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
    """The documents that a retrieval found, or that a reranker or a guard kept. Also the name of an event, of which a
    span has one for each document, with the name before those of its fields."""
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


OPENINFERENCE = Convention(
    name="OpenInference",
    kinds={
        "openinference.span.kind": {
            "agent": "agent", "chain": "chain", "retriever": "retrieval", "reranker": "rerank", "guardrail": "guard",
            "tool": "tool", "llm": "model", "embedding": "other", "evaluator": "other", "prompt": "other",
            "unknown": "other",
        },
    },
    query=("reranker.query", "input.value"),
    documents=("retrieval.documents.{i}.document", "reranker.output_documents.{i}.document"),
    given=("reranker.input_documents.{i}.document",),
    top_k=("reranker.top_k",),
    input=("input.value",),
    output=("output.value",),
    asked=("llm.input_messages.{i}.message", "llm.prompts.{i}.prompt"),
    replied=("llm.output_messages.{i}.message", "llm.choices.{i}.completion"),
    model=("llm.model_name",),
    tokens_read=("llm.token_count.prompt",),
    tokens_written=("llm.token_count.completion",),
    cost=("llm.cost.total",),
    tool=("tool.name", "tool_call.function.name"),
    session=("session.id",),
)  # fmt: skip
"""OpenInference, as Phoenix and its instrumentations write it."""

LANGFUSE = Convention(
    name="Langfuse",
    kinds={
        "langfuse.observation.type": {
            "agent": "agent", "chain": "chain", "retriever": "retrieval", "tool": "tool", "generation": "model",
            "guardrail": "guard", "span": "task", "embedding": "other", "evaluator": "other", "event": "other",
        },
    },
    query=("langfuse.observation.input",),
    documents=("langfuse.observation.output",),
    given=("langfuse.observation.input",),
    input=("langfuse.trace.input", "langfuse.observation.input"),
    output=("langfuse.trace.output", "langfuse.observation.output"),
    asked=("langfuse.observation.input",),
    replied=("langfuse.observation.output",),
    model=("langfuse.observation.model.name",),
    tokens_read=("langfuse.observation.usage_details",),
    tokens_written=("langfuse.observation.usage_details",),
    cost=("langfuse.observation.cost_details",),
    session=("session.id", "langfuse.session.id"),
)  # fmt: skip
"""Langfuse's attributes, as its SDKs write them."""

MLFLOW = Convention(
    name="MLflow",
    kinds={
        "mlflow.spanType": {
            "agent": "agent", "chain": "chain", "workflow": "chain", "retriever": "retrieval", "reranker": "rerank",
            "tool": "tool", "llm": "model", "chat_model": "model", "guardrail": "guard", "task": "task",
            "memory": "other", "embedding": "other", "parser": "other", "evaluator": "other", "unknown": "task",
        },
    },
    query=("mlflow.spanInputs",),
    documents=("mlflow.spanOutputs",),
    given=("mlflow.spanInputs",),
    input=("mlflow.spanInputs",),
    output=("mlflow.spanOutputs",),
    asked=("mlflow.spanInputs",),
    replied=("mlflow.spanOutputs",),
    model=("mlflow.llm.model",),
    tokens_read=("mlflow.chat.tokenUsage",),
    tokens_written=("mlflow.chat.tokenUsage",),
    cost=("mlflow.llm.cost",),
    session=("mlflow.trace.session",),
)  # fmt: skip
"""MLflow's attributes, as its tracing writes them."""

GENAI = Convention(
    name="OpenTelemetry GenAI",
    kinds={
        "gen_ai.operation.name": {
            "retrieval": "retrieval", "search_memory": "retrieval", "execute_tool": "tool", "invoke_agent": "agent",
            "invoke_workflow": "chain", "chat": "model", "text_completion": "model", "generate_content": "model",
            "create_agent": "other", "embeddings": "other", "create_memory": "other", "update_memory": "other",
            "delete_memory": "other", "plan": "other",
        },
        "mcp.method.name": {"tools/call": "tool", "*": "other"},
    },
    query=("gen_ai.retrieval.query.text", "gen_ai.memory.query.text"),
    documents=("gen_ai.retrieval.documents", "gen_ai.memory.records"),
    top_k=("gen_ai.retrieval.top_k",),
    input=("gen_ai.tool.call.arguments", "gen_ai.input.messages"),
    output=("gen_ai.tool.call.result", "gen_ai.output.messages"),
    asked=("gen_ai.input.messages", "gen_ai.prompt.{i}"),
    replied=("gen_ai.output.messages", "gen_ai.completion.{i}"),
    model=("gen_ai.response.model", "gen_ai.request.model"),
    tokens_read=("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
    tokens_written=("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
    tool=("gen_ai.tool.name", "gen_ai.data_source.id"),
    session=("gen_ai.conversation.id",),
)  # fmt: skip
"""OpenTelemetry's conventions for generative AI, and for MCP."""

OPENLLMETRY = Convention(
    name="OpenLLMetry",
    kinds={
        "gen_ai.operation.name": {"vector_db_retrieve": "retrieval"},
        "tool.name": {"*": "tool"},
        "llm.request.type": {"chat": "model", "completion": "model", "rerank": "rerank", "*": "other"},
        "traceloop.span.kind": {"workflow": "chain", "agent": "agent", "tool": "tool", "task": "task"},
        "db.operation": {"query": "retrieval", "search": "retrieval"},
    },
    query=("tool.arguments", "traceloop.entity.input"),
    documents=("traceloop.entity.output", "db.query.result", "db.search.result"),
    top_k=("db.vector.query.top_k",),
    input=("tool.arguments", "traceloop.entity.input"),
    output=("traceloop.entity.output",),
    wrapped=("inputs", "outputs", "output"),
    asked=("gen_ai.prompt.{i}",),
    replied=("gen_ai.completion.{i}",),
    tool=("tool.name", "traceloop.entity.name"),
    session=("traceloop.association.properties.session_id", "traceloop.association.properties.thread_id"),
)  # fmt: skip
"""OpenLLMetry: its spans of frameworks (`traceloop.…`) and of vector databases (`db.…`)."""

CONVENTIONS = (OPENINFERENCE, LANGFUSE, MLFLOW, GENAI, OPENLLMETRY)
"""All conventions, in the order in which a span's kind is looked for."""
