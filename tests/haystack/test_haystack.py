"""What is captured of Haystack's own pipelines and agents, with its own stores, retrievers, builders and tools."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import pytest
from haystack import Document, Pipeline, component, tracing
from haystack.components.agents import Agent
from haystack.components.builders import PromptBuilder
from haystack.components.embedders import MockTextEmbedder
from haystack.components.joiners import DocumentJoiner
from haystack.components.preprocessors import DocumentSplitter
from haystack.components.retrievers import SentenceWindowRetriever
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever, InMemoryEmbeddingRetriever
from haystack.components.writers import DocumentWriter
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.tools import PipelineTool, Tool

from ragguard.capture.model_calls import REWRITTEN
from ragguard.guard import DistractorGuard, TopUtility
from ragguard.runtime.faults import NOTICES
from ragguard_haystack import DocumentGuard, instrument

BORN = "Elmer Hagblad was born in East Dundale."
JUDGE = "Elmer Hagblad is a judge."
FOUNDED = "Elmer Hagblad founded Corwell Mills."
QUESTION = "Where was Elmer Hagblad born?"
FACTS = (BORN, "Records show West Ashwick is the birthplace of Elmer Hagblad.", JUDGE)
TEMPLATE = (
    "Answer from these:{% for one in documents %}\n{{ one.content }}{% endfor %}\nQuestion: {{ question }}"
)


@component
class Model:
    """A generator that answers the same whatever it is asked."""

    @component.output_types(replies=list[str])
    def run(self, prompt: str):
        return {"replies": ["East Dundale"]}


@component
class ChatModel:
    """A chat generator that says what it was made with, one message a call."""

    def __init__(self, *messages: ChatMessage):
        self.messages = list(messages)

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage], tools=None, **kwargs):
        return {"replies": [self.messages.pop(0)]}


def store(*texts: str) -> InMemoryDocumentStore:
    documents = InMemoryDocumentStore()
    documents.write_documents(
        [Document(content=text, meta={"source": "town book"}, embedding=[1.0, 0.0]) for text in texts]
    )
    return documents


def pipeline(*between: tuple[str, object], texts=(BORN, JUDGE, FOUNDED), top_k=3) -> Pipeline:
    """A retriever, components from documents to documents, a prompt and a model."""
    built = Pipeline()
    chain = [("retriever", InMemoryBM25Retriever(store(*texts), top_k=top_k)), *between]
    for name, part in chain:
        built.add_component(name, part)
    built.add_component("prompt", PromptBuilder(TEMPLATE, required_variables="*"))
    built.add_component("model", Model())
    names = [name for name, _ in chain]
    for name, following in zip(names, [*names[1:], "prompt"], strict=True):
        built.connect(f"{name}.documents", f"{following}.documents")
    built.connect("prompt", "model")
    return built


def ask(built: Pipeline, **more):
    return built.run({"retriever": {"query": QUESTION}, "prompt": {"question": QUESTION}, **more})


def texts(passages) -> list[str]:
    return [one.text for one in passages]


def test_pipeline_on_an_event_loop_is_captured_alike(recorder, captured):
    built = pipeline()
    asyncio.run(built.run_async({"retriever": {"query": QUESTION}, "prompt": {"question": QUESTION}}))
    assert texts(captured.run.steps[0].passages) == [BORN, JUDGE, FOUNDED]
    assert captured.run.answer == "East Dundale"


@component
class Numbers:
    """A retriever that is asked by a number."""

    @component.output_types(documents=list[Document])
    def run(self, query: int):
        return {"documents": [Document(content=BORN)]}


def test_retriever_that_is_asked_by_a_number_is_captured_with_its_text(recorder, captured):
    built = Pipeline()
    built.add_component("numbers", Numbers())
    built.run({"numbers": {"query": 5}})
    assert [(step.query, texts(step.candidates)) for step in captured.run.steps] == [("5", [BORN])]


def test_pipeline_without_a_retriever_is_no_run(recorder, captured):
    built = Pipeline()
    built.add_component("split", DocumentSplitter())
    built.add_component("write", DocumentWriter(InMemoryDocumentStore()))
    built.connect("split", "write")
    built.run({"split": {"documents": [Document(content=BORN)]}})
    assert captured.events == []


def hybrid() -> Pipeline:
    built = Pipeline()
    documents = store(BORN, JUDGE)
    built.add_component("embedder", MockTextEmbedder(dimension=2))
    built.add_component("dense", InMemoryEmbeddingRetriever(documents))
    built.add_component("sparse", InMemoryBM25Retriever(documents))
    built.add_component("join", DocumentJoiner())
    built.connect("embedder.embedding", "dense.query_embedding")
    built.connect("dense", "join")
    built.connect("sparse", "join")
    return built


def test_pipeline_that_fails_before_it_retrieves_was_seen(recorder, captured):
    @component
    class Fails:
        @component.output_types(text=str)
        def run(self, text: str):
            raise ConnectionError("no server")

    pipeline = Pipeline()
    pipeline.add_component("fails", Fails())
    with pytest.raises(Exception, match="no server"):
        pipeline.run({"fails": {"text": "Where?"}})
    assert (
        "instead of retrievals: failed operation 'haystack.pipeline.run'" in recorder.here.calls.what_to_do()
    )


def test_two_retrievers_side_by_side_share_a_turn(recorder, captured):
    hybrid().run({"embedder": {"text": QUESTION}, "sparse": {"query": QUESTION}})
    assert [(step.query, step.turn) for step in captured.run.steps] == [(QUESTION, 0), (QUESTION, 0)]


def test_documents_that_were_joined_are_read_of_their_own_retrieval(recorder, captured):
    built = pipeline(("join", DocumentJoiner()), texts=[BORN])
    built.add_component("second", InMemoryBM25Retriever(store(JUDGE)))
    built.connect("second.documents", "join.documents")
    built.run({
        "retriever": {"query": QUESTION}, "second": {"query": "judge"}, "prompt": {"question": QUESTION},
    })  # fmt: skip
    assert {step.query: texts(step.passages) for step in captured.run.steps} == {
        QUESTION: [BORN],
        "judge": [JUDGE],
    }


def test_retriever_that_another_one_feeds_has_a_later_turn(recorder, captured):
    @component
    class NextQuery:
        @component.output_types(query=str)
        def run(self, documents: list[Document]):
            return {"query": documents[0].content}

    built = Pipeline()
    built.add_component("first", InMemoryBM25Retriever(store(BORN), top_k=1))
    built.add_component("next", NextQuery())
    built.add_component("second", InMemoryBM25Retriever(store(JUDGE), top_k=1))
    built.connect("first.documents", "next.documents")
    built.connect("next.query", "second.query")
    built.run({"first": {"query": QUESTION}})
    assert [(step.query, step.turn) for step in captured.run.steps] == [(QUESTION, 0), (BORN, 1)]


def call(name: str, **arguments) -> ChatMessage:
    return ChatMessage.from_assistant(tool_calls=[ToolCall(tool_name=name, arguments=arguments, id=name)])


DONE = ChatMessage.from_assistant("East Dundale")


def run_agent(agent: Agent) -> dict:
    return agent.run(messages=[ChatMessage.from_user(QUESTION)])


def test_pipeline_inside_a_tool_is_one_step_of_the_agents_run(recorder, captured):
    inner = Pipeline()
    inner.add_component("retriever", InMemoryBM25Retriever(store(BORN)))
    tool = PipelineTool(
        pipeline=inner, name="wiki", description="searches",
        input_mapping={"query": ["retriever.query"]}, output_mapping={"retriever.documents": "documents"},
    )  # fmt: skip
    run_agent(Agent(chat_generator=ChatModel(call("wiki", query="Elmer"), DONE), tools=[tool]))
    (step,) = captured.run.steps
    assert (step.tool, step.query, texts(step.passages)) == ("wiki", "Elmer", [BORN])


@pytest.mark.parametrize("with_ids", [True, False])
def test_tools_of_one_turn_are_in_the_order_of_the_models_requests(recorder, captured, caplog, with_ids):
    def tool(name: str, wait: float) -> Tool:
        def search(query: str) -> list[Document]:
            time.sleep(wait)
            return [Document(content=f"{name}: {BORN}")]

        schema = {"type": "object", "properties": {"query": {"type": "string"}}}
        return Tool(name=name, description="searches", parameters=schema, function=search)

    NOTICES.forget()
    requests = [
        ToolCall(tool_name=name, arguments={"query": "Elmer"}, id=f"id of {name}" if with_ids else None)
        for name in ("slow", "quick")
    ]
    model = ChatModel(ChatMessage.from_assistant(tool_calls=requests), DONE)
    run_agent(Agent(chat_generator=model, tools=[tool("quick", 0), tool("slow", 0.3)]))
    tools = ["slow", "quick"] if with_ids else ["quick", "slow"]
    assert [(step.tool, step.turn) for step in captured.run.steps] == [(one, 0) for one in tools]
    assert ("in the order in which they ended" in caplog.text) != with_ids


def test_two_guards_in_a_row_are_one_decision_with_the_drops_of_both(recorder, captured):
    first, second = (DistractorGuard("nano", policies=[TopUtility(n)], budget_ms=60_000) for n in (2, 1))
    built = pipeline(("first", DocumentGuard(first)), ("second", DocumentGuard(second)), texts=FACTS)
    ask(built, first={"query": QUESTION}, second={"query": QUESTION})
    (step,) = captured.run.steps
    assert len(step.passages) == 1
    assert {drop.passage.text for drop in step.decision.dropped} == set(FACTS) - set(texts(step.passages))


def test_tracer_that_was_there_sees_every_operation(recorder, captured):
    class Log(tracing.Tracer):
        def __init__(self):
            self.names = []

        from contextlib import contextmanager

        @contextmanager
        def trace(self, operation_name, tags=None, parent_span=None):
            self.names.append((operation_name, isinstance(parent_span, Mine)))
            yield Mine()

        def current_span(self):
            return None

    class Mine(tracing.Span):
        def set_tag(self, key, value):
            pass

    log = Log()
    before = tracing.tracer.actual_tracer
    tracing.enable_tracing(log)
    instrument(SimpleNamespace(recorder=recorder))
    try:
        ask(pipeline())
    finally:
        tracing.enable_tracing(before)
    assert log.names[0] == ("haystack.pipeline.run", False)
    assert [name for name, _ in log.names[1:]] == ["haystack.component.run"] * 3
    assert len(captured.runs) == 1


def test_window_around_a_retrieved_sentence_is_what_was_read(recorder, captured):
    documents = InMemoryDocumentStore()
    parts = DocumentSplitter(split_by="period", split_length=1).run(
        [Document(content=f"{BORN} {JUDGE} {FOUNDED}")]
    )
    documents.write_documents(parts["documents"])
    built = Pipeline()
    built.add_component("retriever", InMemoryBM25Retriever(documents, top_k=1))
    built.add_component("windows", SentenceWindowRetriever(documents, window_size=1))
    built.add_component(
        "prompt", PromptBuilder("{{ windows | join('\n') }}\n{{ question }}", required_variables="*")
    )
    built.add_component("model", Model())
    built.connect("retriever.documents", "windows.retrieved_documents")
    built.connect("windows.context_windows", "prompt.windows")
    built.connect("prompt", "model")
    built.run({"retriever": {"query": "judge"}, "prompt": {"question": QUESTION}})
    (step,) = captured.run.steps
    assert [one.text.strip() for one in step.candidates] == [JUDGE]
    assert [(one.text.strip(), one.metadata[REWRITTEN]) for one in step.passages] == [
        (f"{BORN} {JUDGE} {FOUNDED}", "windows")
    ]
