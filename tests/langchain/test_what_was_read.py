"""What LangChain's models read: extracts, searches of plain code, sub-agents as tools; and whose calls these are."""

from __future__ import annotations

import asyncio
import sys
import threading
from types import SimpleNamespace
from typing import Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain_classic.retrievers import ContextualCompressionRetriever
from langchain_classic.retrievers.document_compressors import LLMChainExtractor
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda, RunnableParallel, RunnablePassthrough
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from support.captured import CapturedInStore
from support.langchain_agents import QUESTION, asked, search_tool
from support.langchain_parts import ListRetriever, call, says

import ragguard
from ragguard import RagGuard
from ragguard.capture.recorder import Recorder
from ragguard.capture.shapes import answer_in
from ragguard_langchain import RagGuardCallback, instrument, uninstrument

OSLO = "Nordlys is a shipping firm that is based in Oslo; it was founded by Ada Berg in 1922."
BERGEN = "Skagen is a fishing firm that is based in Bergen; it was founded by Olav Dahl in 1931."


def test_extracts_of_a_compressor_are_what_was_read(captured, config):
    extract = "shelf 0 about the firm, in short"
    retriever = ContextualCompressionRetriever(
        base_compressor=LLMChainExtractor.from_llm(says(extract)), base_retriever=ListRetriever(count=1)
    )
    model = says("Ada Berg founded it.")

    def answer(question: str) -> str:
        context = "\n".join(one.page_content for one in retriever.invoke(question))
        return str(model.invoke(f"From {context}: {question}").content)

    RunnableLambda(answer).invoke(QUESTION, config)
    assert captured.read == [[extract]]
    assert captured.run.steps[0].candidates[0].text == extract
    assert len(captured.run.steps[0].candidates) == 2


class FixedRetriever(BaseRetriever):
    texts: list[str]

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return [Document(text) for text in self.texts]


@pytest.mark.parametrize("parallel", [True, False])
def test_chains_that_find_the_same_documents_each_read_their_own(captured, config, parallel):
    def chain(texts: list[str], count: int, reply: str) -> Any:
        context = FixedRetriever(texts=texts) | (
            lambda found: "\n".join(one.page_content for one in found[:count])
        )
        prompt = ChatPromptTemplate.from_template("{context}\n{question}")
        return (
            {"context": context, "question": RunnablePassthrough()} | prompt | says(reply) | StrOutputParser()
        )

    first, second = chain([OSLO, BERGEN], 1, "Ada Berg."), chain([BERGEN, OSLO], 2, "Olav Dahl.")
    both = RunnableParallel(first=first, second=second)
    if not parallel:
        both = RunnablePassthrough.assign(first=lambda given: first.invoke(given["question"])) | (
            lambda given: {"first": given["first"], "second": second.invoke(given["question"])}
        )
    whole = both | (lambda given: {"answer": f"{given['first']} {given['second']}"})
    whole.invoke(QUESTION if parallel else {"question": QUESTION}, config)
    assert sorted(captured.read) == sorted([[OSLO], [BERGEN, OSLO]])
    assert {len(step.passages): step.k for step in captured.run.steps} == {1: 1, 2: None}


def test_parallel_sub_agents_each_read_in_the_order_of_their_own_prompts(captured, config):
    gate, found = threading.Barrier(2), {"Oslo": [OSLO, BERGEN], "Bergen": [BERGEN, OSLO]}

    @tool(response_format="content_and_artifact")
    def search(query: str) -> tuple[str, list[Document]]:
        """Searches."""
        gate.wait(10)
        return "\n".join(found[query]), [Document(text) for text in found[query]]

    @tool
    def ask(question: str) -> str:
        """Asks a sub-agent."""
        agent = create_agent(says(call("search", query=question), f"done {question}"), [search])
        return str(agent.invoke({"messages": [("user", question)]})["messages"][-1].content)

    requests = AIMessage(
        "", tool_calls=[{"name": "ask", "args": {"question": one}, "id": one} for one in found]
    )
    agent = create_agent(says(requests, "Ada and Olav."), [ask])
    for _ in range(5):
        captured.events.clear()
        agent.invoke({"messages": [("user", QUESTION)]}, config)
        read = {step.query: [one.text for one in step.passages] for step in captured.run.steps}
        assert read == found


def test_search_of_plain_code_in_a_graph_follows_the_same_rule(captured, config):
    model = says("no", "Ada Berg founded it.")

    def node(state: dict[str, Any]) -> dict[str, Any]:
        found = [Document(OSLO, id="a"), Document(BERGEN, id="b")]
        ragguard.retrieved("firms", found)
        model.invoke(f"Is it relevant? {BERGEN}")
        return {"answer": model.invoke(f"Answer from: {OSLO}").content}

    class State(TypedDict):
        question: str
        answer: str

    graph = StateGraph(State)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    graph.add_edge("node", END)
    graph.compile().invoke({"question": QUESTION}, config)
    assert captured.read == [[OSLO]]


@pytest.mark.parametrize("answer", ["Yes", "No", "4"])
def test_a_word_as_the_answer_of_an_agent_that_is_a_tool(captured, config, answer):
    inner = create_agent(says(call("search", query="firm"), answer), [search_tool()])

    @tool
    def expert(question: str) -> str:
        """Asks an expert."""
        return str(inner.invoke({"messages": [HumanMessage(question)]})["messages"][-1].content)

    outer = create_agent(says(call("expert", question="is it so?"), f"The expert says: {answer}."), [expert])
    outer.invoke(asked("Is it so? Say yes or no, or a number from 1 to 9."), config)
    assert [len(passages) for passages in captured.read] == [2]


@pytest.fixture
def attached(rg):
    instrument(rg)
    yield
    uninstrument()


class Other(BaseCallbackHandler):
    """Another tracer's callback."""


def test_call_with_callbacks_of_its_own_belongs_to_the_run_around_it(captured, rg, attached):
    model, retriever = says("Ada Berg founded it."), ListRetriever(count=1)

    def answer(question: str) -> str:
        (found,) = retriever.invoke(question, {"callbacks": [Other()]})
        return str(model.invoke(f"From {found.page_content}", {"callbacks": [Other()]}).content)

    RunnableLambda(answer).invoke(QUESTION)
    assert len(captured.runs) == 1
    assert captured.read == [[f"shelf 0 about {QUESTION}"]]


def test_same_callback_again_inside_a_run_joins_it(captured, config):
    retriever = ListRetriever(count=1).with_config(config)

    def answer(question: str) -> str:
        return str(len(retriever.invoke(question)))

    RunnableLambda(answer).invoke(QUESTION, config)
    assert len(captured.runs) == 1
    assert len(captured.run.steps) == 1


def test_fallback_at_the_top_joins_the_run(captured, config):
    def fails(question: str) -> str:
        ListRetriever(name="first").invoke(question)
        raise ValueError("it failed")

    def works(question: str) -> str:
        ListRetriever(name="second").invoke(question)
        return "Ada Berg"

    RunnableLambda(fails).with_fallbacks([RunnableLambda(works)]).invoke(QUESTION, config)
    assert [(run.question, run.answer, len(run.steps)) for run in captured.runs] == [
        (QUESTION, "Ada Berg", 2)
    ]


@pytest.mark.parametrize(
    ("outputs", "answer"),
    [
        ({"final_report": "A long report."}, "A long report."),
        ({"messages": [HumanMessage("q"), AIMessage("", tool_calls=[call("now")]),
                       ToolMessage("noon", tool_call_id="1")]},
         "noon"),
        ({"raw": AIMessage("", tool_calls=[call("Answer", founder="Ada")]), "parsed": {"founder": "Ada"},
          "parsing_error": None}, '{"founder": "Ada"}'),
        (("Ada Berg", {"tokens": 3}), "Ada Berg"),
    ],
)  # fmt: skip
def test_answers_in_less_usual_places(outputs, answer):
    assert answer_in(outputs).text == answer


def retrieving(gives):
    def work(question: str) -> Any:
        ListRetriever(count=1).invoke(question)
        return gives

    return RunnableLambda(work)


@pytest.mark.parametrize("begin", ["<think>", "Fjord. <think>", ""])  # a prompt may begin the thoughts itself
def test_thoughts_are_no_answer(captured, config, begin):
    retrieving(f"{begin}Is it Ada?\nYes.</think>\n\nAda Berg").invoke(QUESTION, config)
    assert captured.run.answer == ("Fjord. \n\nAda Berg" if "Fjord" in begin else "Ada Berg")


def test_output_without_an_answer_is_said_with_its_names(captured, config, caplog):
    retrieving({"verdict_of_judge": 3, "sources": []}).invoke(QUESTION, config)
    assert captured.run.answer is None
    assert "'verdict_of_judge', 'sources'" in caplog.text
    assert "answer=NAME" in caplog.text


@pytest.fixture
def stored():
    return CapturedInStore()


@pytest.fixture
def rg_stored(stored):
    return SimpleNamespace(recorder=Recorder(stored))


class Review(TypedDict):
    question: str
    found: list[str]
    answer: str


def review(model, approve):
    def search(state: Review) -> dict[str, Any]:
        return {"found": [one.page_content for one in ListRetriever(count=3).invoke("firms")]}

    def pick(state: Review) -> dict[str, Any]:
        return {"found": [state["found"][int(interrupt("which?"))]]} if approve else {}

    def write(state: Review) -> dict[str, Any]:
        return {"answer": model.invoke(f"From {state['found']}: {state['question']}").content}

    graph = StateGraph(Review)
    for name, node in (("search", search), ("pick", pick), ("write", write)):
        graph.add_node(name, node)
    graph.add_edge(START, "search")
    graph.add_edge("search", "pick")
    graph.add_edge("pick", "write")
    graph.add_edge("write", END)
    return graph


def test_what_a_person_picked_before_the_model_was_asked_is_what_was_read(stored, rg_stored):
    graph = review(says("Ada Berg founded it."), True).compile(checkpointer=InMemorySaver())
    config = {"callbacks": [RagGuardCallback(rg_stored)], "configurable": {"thread_id": "t"}}
    graph.invoke({"question": QUESTION}, config)
    assert stored.run.status == "interrupted"
    graph.invoke(Command(resume="1"), config)
    run = stored.run
    assert (run.status, run.question, run.answer) == ("ok", QUESTION, "Ada Berg founded it.")
    assert [[one.text for one in step.passages] for step in run.steps] == [["shelf 1 about firms"]]


@pytest.mark.parametrize(
    ("approve", "redact", "read"),
    [
        (True, None, ["shelf 1 about firms"]),
        (False, None, [f"shelf {n} about firms" for n in range(3)]),
        (True, lambda text: text.replace("shelf", "***"), "unknown"),
    ],
    ids=["picked", "all", "redacted texts are not found in a prompt"],
)
def test_what_was_retrieved_before_is_read_by_a_model_of_the_process_that_goes_on(
    tmp_path, approve, redact, read
):
    model = says("Ada Berg founded it.")
    graph = review(model, approve).compile(checkpointer=InMemorySaver(), interrupt_before=["pick"])
    for part in ({"question": QUESTION}, None, Command(resume="1"))[: 3 if approve else 2]:
        with RagGuard("nano", store=tmp_path / "runs.db", scorers=(), redact=redact) as rg:
            graph.invoke(part, {"callbacks": [RagGuardCallback(rg)], "configurable": {"thread_id": "t"}})
            assert rg.flush(10)
            (run,) = rg.runs()
            assert run.steps[0].metadata.get("ragguard.delivered") == "unknown" or run.status == "ok"
    assert (run.status, run.question, run.answer) == ("ok", QUESTION, "Ada Berg founded it.")
    (step,) = run.steps
    if read == "unknown":
        assert (step.metadata["ragguard.delivered"], len(step.passages)) == ("unknown", 3)
    else:
        assert ([one.text for one in step.passages], len(step.candidates)) == (read, 3)
        assert "ragguard.delivered" not in step.metadata


@pytest.mark.parametrize("made", ["before LangGraph", "after"])
def test_breakpoint_of_the_graph_interrupts_the_run_which_goes_on(stored, rg_stored, monkeypatch, made):
    with monkeypatch.context() as patch:
        if made == "before LangGraph":
            patch.delitem(sys.modules, "langgraph.callbacks")
        handler = RagGuardCallback(rg_stored)
    graph = review(says("Ada Berg founded it."), False).compile(
        checkpointer=InMemorySaver(), interrupt_before=["write"]
    )
    config = {"callbacks": [handler], "configurable": {"thread_id": "t"}}
    graph.invoke({"question": QUESTION}, config)
    assert stored.run.status == "interrupted"
    graph.invoke(None, config)
    assert len(stored.runs) == 1
    assert (stored.run.status, stored.run.answer, len(stored.run.steps)) == ("ok", "Ada Berg founded it.", 1)
    assert len(stored.run.steps[0].passages) == 3


def test_approving_the_first_search_keeps_the_question(stored, rg_stored):
    @tool(response_format="content_and_artifact")
    def careful(query: str) -> Any:
        """Asks before it searches."""
        interrupt("may I?")
        return "found", [Document("It was founded by Ada Berg.")]

    built = create_agent(
        says(call("careful", query="firm"), "Ada Berg"), [careful], checkpointer=InMemorySaver()
    )
    config = {"callbacks": [RagGuardCallback(rg_stored)], "configurable": {"thread_id": "t"}}
    built.invoke(asked(), config)
    built.invoke(Command(resume="yes"), config)
    assert (stored.run.question, stored.run.answer, len(stored.run.steps)) == (QUESTION, "Ada Berg", 1)


@pytest.mark.parametrize("error", [OSError("the server is away"), KeyboardInterrupt()])
def test_run_that_crashed_or_was_cancelled_goes_on_from_its_checkpoint(stored, rg_stored, error):
    fails = [error]

    class Fragile(type(says())):
        def _generate(self, *args, **kwargs):
            if fails:
                raise fails.pop()
            return super()._generate(*args, **kwargs)

    graph = review(Fragile(turns=["Ada Berg founded it."]), False).compile(checkpointer=InMemorySaver())
    config = {"callbacks": [RagGuardCallback(rg_stored)], "configurable": {"thread_id": "t"}}
    with pytest.raises(type(error)):
        graph.invoke({"question": QUESTION}, config)
    graph.invoke(None, config)
    assert len(stored.runs) == 1
    assert (stored.run.status, stored.run.answer, len(stored.run.steps)) == ("ok", "Ada Berg founded it.", 1)


def test_search_result_blocks_of_a_message_are_passages(captured, config):
    @tool
    def search(query: str) -> Any:
        """Searches."""
        return [
            {"type": "search_result", "source": "https://a.example", "title": "A",
             "content": [{"type": "text", "text": OSLO}]},
        ]  # fmt: skip

    create_agent(says(call("search", query="firm"), "Ada Berg"), [search]).invoke(asked(), config)
    assert [(one.text, one.id) for one in captured.run.steps[0].candidates] == [(OSLO, "https://a.example")]


def test_splitter_that_finds_nothing_leaves_the_whole_text_and_says_so(captured, rg, caplog):
    @tool
    def search(query: str) -> str:
        """Searches."""
        return OSLO

    config = {"callbacks": [RagGuardCallback(rg, tools={"search": lambda text: []})]}
    create_agent(says(call("search", query="firm"), "Ada Berg"), [search]).invoke(asked(), config)
    assert [one.text for one in captured.run.steps[0].candidates] == [OSLO]
    assert "found no passage" in caplog.text


def test_a_ragguard_as_a_callback_says_what_to_pass():
    with RagGuard(engine=None, store=None) as rg, pytest.raises(AttributeError, match="RagGuardCallback"):
        RunnableLambda(str).invoke("x", {"callbacks": [rg]})


def test_splitters_are_imported_by_their_public_name():
    from ragguard.splitters import paragraphs

    assert paragraphs("a\n\nb") == ["a", "b"]


async def test_bare_retriever_that_timed_out_is_kept_as_abandoned(tmp_path):
    rg = RagGuard(engine=None, store=tmp_path / "kept.db")
    slow = ListRetriever(gate=asyncio.Event())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(slow.ainvoke("firms", {"callbacks": [RagGuardCallback(rg)]}), 0.05)
    await rg.aclose()
    with RagGuard(engine=None, store=tmp_path / "kept.db") as again:
        assert [(run.question, run.status) for run in again.runs()] == [("firms", "abandoned")]
