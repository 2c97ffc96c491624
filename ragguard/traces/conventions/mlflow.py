"""MLflow's attributes, as its tracing writes them."""

from ragguard.traces.convention import Convention

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
