"""The conventions for spans, as data: which attributes say what kind a span is, and which have its texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["agent", "chain", "retrieval", "rerank", "guard", "tool", "model", "task", "other"]
"""The kinds of spans: an agent or a chain is a pipeline; a task is a piece of one, and a retrieval where its output is
documents alone; `other` is a kind that the convention knows and nothing is read from."""

KINDS: Mapping[tuple[str, str], Mapping[str, Kind]] = {
    ("OpenInference", "openinference.span.kind"): {
        "agent": "agent", "chain": "chain", "retriever": "retrieval", "reranker": "rerank", "guardrail": "guard",
        "tool": "tool", "llm": "model", "embedding": "other", "evaluator": "other", "prompt": "other",
        "unknown": "other",
    },
    ("Langfuse", "langfuse.observation.type"): {
        "agent": "agent", "chain": "chain", "retriever": "retrieval", "tool": "tool", "generation": "model",
        "guardrail": "guard", "span": "task", "embedding": "other", "evaluator": "other", "event": "other",
    },
    ("MLflow", "mlflow.spanType"): {
        "agent": "agent", "chain": "chain", "workflow": "chain", "retriever": "retrieval", "reranker": "rerank",
        "tool": "tool", "llm": "model", "chat_model": "model", "guardrail": "guard", "task": "task",
        "memory": "other", "embedding": "other", "parser": "other", "evaluator": "other", "unknown": "task",
    },
    ("Vercel AI SDK", "ai.operationId"): {
        "ai.generatetext": "agent", "ai.streamtext": "agent", "ai.generateobject": "agent",
        "ai.streamobject": "agent",
        "ai.generatetext.dogenerate": "model", "ai.streamtext.dostream": "model",
        "ai.generateobject.dogenerate": "model",
        "ai.streamobject.dostream": "model", "ai.toolcall": "tool", "*": "other",
    },
    ("ATIF", "atif.step"): {"agent": "agent", "model": "model", "tool": "tool"},
    ("OpenTelemetry GenAI", "gen_ai.operation.name"): {
        "retrieval": "retrieval", "search_memory": "retrieval", "execute_tool": "tool", "invoke_agent": "agent",
        "invoke_workflow": "chain", "chat": "model", "text_completion": "model", "generate_content": "model",
        "create_agent": "other", "embeddings": "other", "create_memory": "other", "update_memory": "other",
        "delete_memory": "other", "upsert_memory": "other", "create_memory_store": "other",
        "delete_memory_store": "other", "fetch_response": "other", "apply_guardrail": "guard", "plan": "other",
    },
    ("OpenTelemetry GenAI", "mcp.method.name"): {"tools/call": "tool", "*": "other"},
    ("OpenLLMetry", "gen_ai.operation.name"): {"vector_db_retrieve": "retrieval"},
    ("OpenLLMetry", "tool.name"): {"*": "tool"},
    ("OpenLLMetry", "llm.request.type"): {"chat": "model", "completion": "model", "rerank": "rerank", "*": "other"},
    ("OpenLLMetry", "traceloop.span.kind"): {"workflow": "chain", "agent": "agent", "tool": "tool", "task": "task"},
    ("OpenLLMetry", "db.operation"): {"query": "retrieval", "search": "retrieval"},
}  # fmt: skip
"""The kind of a span, by the convention and its attribute, and by the attribute's value in lower case; `*` is any other
value. The first attribute that says it counts."""

NAMES: Mapping[str, tuple[str, ...]] = {
    "query": (
        "reranker.query", "input.value", "langfuse.observation.input", "mlflow.spanInputs",
        "gen_ai.retrieval.query.text", "gen_ai.memory.query.text", "ai.toolCall.args", "tool.arguments",
        "traceloop.entity.input",
    ),
    "documents": (
        "retrieval.documents.{i}.document", "reranker.output_documents.{i}.document", "langfuse.observation.output",
        "mlflow.spanOutputs", "gen_ai.retrieval.documents", "gen_ai.memory.records", "traceloop.entity.output",
        "db.query.result", "db.search.result",
    ),
    "documents before a reranker or a guard": (
        "reranker.input_documents.{i}.document", "langfuse.observation.input", "mlflow.spanInputs",
    ),
    "top k": ("reranker.top_k", "gen_ai.retrieval.top_k", "db.vector.query.top_k"),
    "input": (
        "input.value", "langfuse.trace.input", "langfuse.observation.input", "mlflow.spanInputs",
        "gen_ai.tool.call.arguments", "gen_ai.input.messages", "ai.prompt", "ai.toolCall.args",
        "tool.arguments", "traceloop.entity.input",
    ),
    "output": (
        "output.value", "langfuse.trace.output", "langfuse.observation.output", "mlflow.spanOutputs",
        "ai.response.text", "ai.response.object", "ai.toolCall.result", "gen_ai.tool.call.result",
        "gen_ai.output.messages", "traceloop.entity.output",
    ),
    "prompt of a model": (
        "llm.input_messages.{i}.message", "llm.prompts.{i}.prompt", "langfuse.observation.input", "mlflow.spanInputs",
        "ai.prompt.messages", "gen_ai.input.messages", "gen_ai.prompt.{i}",
    ),
    "reply of a model": (
        "llm.output_messages.{i}.message", "llm.choices.{i}.completion", "langfuse.observation.output",
        "mlflow.spanOutputs", "ai.response.text", "ai.response.object", "gen_ai.output.messages",
        "gen_ai.completion.{i}",
    ),
    "model": (
        "llm.model_name", "langfuse.observation.model.name", "mlflow.llm.model", "ai.response.model",
        "ai.model.id", "gen_ai.response.model",
        "gen_ai.request.model",
    ),
    "tokens read": (
        "llm.token_count.prompt", "langfuse.observation.usage_details", "mlflow.chat.tokenUsage",
        "ai.usage.inputTokens", "ai.usage.promptTokens", "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens",
    ),
    "tokens written": (
        "llm.token_count.completion", "langfuse.observation.usage_details", "mlflow.chat.tokenUsage",
        "ai.usage.outputTokens", "ai.usage.completionTokens", "gen_ai.usage.output_tokens",
        "gen_ai.usage.completion_tokens",
    ),
    "cost": ("llm.cost.total", "langfuse.observation.cost_details", "mlflow.llm.cost"),
    "tool": (
        "tool.name", "tool_call.function.name", "ai.toolCall.name", "gen_ai.tool.name",
        "gen_ai.data_source.id", "traceloop.entity.name",
    ),
    "name": ("gen_ai.agent.name", "ai.telemetry.functionId"),
    "requests of a model": ("ai.response.toolCalls",),
    "session": (
        "session.id", "langfuse.session.id", "mlflow.trace.session", "gen_ai.conversation.id",
        "traceloop.association.properties.session_id", "traceloop.association.properties.thread_id",
    ),
}  # fmt: skip
"""The attributes, or the events, that hold something of a span, of all conventions; the first that a span has counts.
A name with `{i}` stands for the indexed attributes of a list, such as `retrieval.documents.{i}.document`. An event's
name stands for its attributes, of which each is one document."""

WRAPPED = ("inputs", "outputs", "output")
"""The names of the one entry in which OpenLLMetry wraps an input or an output."""
