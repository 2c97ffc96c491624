"""OpenLLMetry: its spans of frameworks (`traceloop.…`) and of vector databases (`db.…`)."""

from ragguard.traces.convention import Convention

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
    documents=("traceloop.entity.output",),
    document_events={"db.query.result": "db.query.result.", "db.search.result": "db.search.result."},
    top_k=("db.vector.query.top_k",),
    input=("tool.arguments", "traceloop.entity.input"),
    output=("traceloop.entity.output",),
    wrapped=("inputs", "outputs", "output"),
    asked=("gen_ai.prompt.{i}",),
    replied=("gen_ai.completion.{i}",),
    tool=("tool.name", "traceloop.entity.name"),
    session=("traceloop.association.properties.session_id", "traceloop.association.properties.thread_id"),
)  # fmt: skip
