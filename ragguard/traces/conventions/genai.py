"""OpenTelemetry's conventions for generative AI, and for MCP."""

from ragguard.traces.convention import Convention

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
