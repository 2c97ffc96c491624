"""The names under which pipelines, tools, engines, states and spans keep questions, answers and documents, the most
usual ones first: one table for every framework and for traces. Data only."""

QUESTIONS = (
    "messages", "input_messages", "question", "query", "query_str", "search_query", "str_or_query_bundle",
    "query_bundle", "user_msg", "user_message", "user_input", "input", "inputs", "message", "queries", "q", "prompt",
    "text", "kwargs", "args", "arguments", "chat_history",
)  # fmt: skip
"""Names of what a pipeline, a retriever or a tool is asked."""
CONVERSATIONS = frozenset(("messages", "input_messages", "message", "chat_history"))
"""Names of a question that hold messages, of which no tool's argument is a query."""
ANSWERS = (
    "messages", "answer", "final_report", "answers", "replies", "final_answer", "response", "final_response",
    "output", "result", "text", "generation", "content", "reply", "completion", "summary", "report", "data", "outputs",
    "generations", "message",
)  # fmt: skip
"""Names of what a pipeline or a model gives."""
MESSAGES = (
    "messages", "message", "input_messages", "chat_history", "input", "generations", "output",
)  # fmt: skip
"""Names of what holds the messages of a model's prompt or reply."""
BLOCKS = ("text", "content", "response", "result", "output", "parts", "blocks", "contents")
"""Names of what holds the text of a message, or of a block of its content."""
USER, ASSISTANT = ("user", "human"), ("assistant", "ai", "model", "AIMessageChunk")
"""The roles of those who ask and of those who answer."""

HOLDERS = (
    "documents", "docs", "source_documents", "nodes", "source_nodes", "passages", "context", "results",
)  # fmt: skip
"""Names of what holds documents or nodes, as objects."""
LISTS = (
    "results", "result", "documents", "passages", "hits", "items", "data", "organic", "matches", "sources",
)  # fmt: skip
"""Names of what holds the list of what was found, in JSON."""
LISTS_AROUND = (*LISTS, "nodes", "source_nodes", "docs", "records", "web", "news", "raw")
"""Names of such a list, and of what else may stand around such a list."""
RESULTS = ("artifact", "structuredContent", "structured_content", "raw_output", "tool_output")
"""Names of what holds a tool's result as data, beside the text that the model reads."""
PASSAGE_TEXTS = ("text", "page_content", "content")
"""Names of what holds the text of one passage that plain code reports."""
TEXTS = ("text", "content", "page_content", "snippet", "body", "passage", "summary", "description", "result")
"""Names of what holds the text of one item of a list that was found."""
IDS = ("id", "doc_id", "document_id", "id_", "node_id", "url", "href", "link", "uri", "source")
"""Names of what identifies such an item."""
