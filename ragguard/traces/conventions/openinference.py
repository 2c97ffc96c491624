"""OpenInference, as Phoenix and its instrumentations write it."""

from ragguard.traces.convention import Convention

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
