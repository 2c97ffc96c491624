"""Langfuse's attributes, as its SDKs write them."""

from ragguard.traces.convention import Convention

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
