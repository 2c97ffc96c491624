"""What every framework's capture holds: one suite, with LangChain's, LlamaIndex's and Haystack's own parts."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Annotated, Any

import haystack
import pytest
from haystack.components.agents import Agent
from haystack.components.builders import PromptBuilder
from haystack.dataclasses import ChatMessage as HaystackMessage
from haystack.dataclasses import ToolCall as HaystackToolCall
from haystack.tools import ComponentTool, create_tool_from_function
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_core.tools import create_retriever_tool
from langchain_core.tools import tool as langchain_tool
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.base_retriever import BaseRetriever as IndexRetriever
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.tools import FunctionTool, RetrieverTool, ToolMetadata
from support import langchain_parts, llamaindex_parts
from support.guards import assert_spans_tell, guarding, judging
from support.scripted_engine import ScriptedEngine
from support.traced import kept_spans

import ragguard
import ragguard_haystack
import ragguard_langchain
import ragguard_llamaindex
from ragguard import RagGuard, splitters
from ragguard.capture.handle import RunHandle
from ragguard.capture.recorder import Recorder
from ragguard.capture.splitters import Splitter
from ragguard.errors import EngineRejected
from ragguard.guard import DistractorGuard, TopUtility

pytestmark = [
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning"),
    pytest.mark.filterwarnings("ignore:is_running called from within a step:DeprecationWarning"),
]
QUESTION, ANSWER = "Where was Elmer Hagblad born?", "East Dundale"
TEXTS = (
    "Elmer Hagblad was born in East Dundale.",
    "Records show West Ashwick is the birthplace of Elmer Hagblad.",
    "Elmer Hagblad is a judge, and he lives in a house by the river.",
)
Choose = Callable[[list[Any]], list[Any]]


class Framework(ABC):
    """Builds the same applications from one framework's own parts."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    @abstractmethod
    def ask(self, choose: Choose = list, *, fails: bool = False, model: bool = True) -> None:
        """Retrieves `TEXTS`, lets `choose` change the list in a part of its own, and asks a model about the rest."""

    @abstractmethod
    def guarded(self, guard: DistractorGuard) -> None:
        """Does the same with the framework's own guard in place of `choose`."""

    @abstractmethod
    def agent(self, *messages: Sequence[str]) -> None:
        """Runs an agent whose model searches for the queries of each message at once, and then answers."""

    @abstractmethod
    def looks_up(self, number: int) -> None:
        """Runs an agent whose tool `search` names what it found by ids alone; a tool `read` gives it one text."""

    @abstractmethod
    def retrieve(self, query: str) -> None:
        """Retrieves `TEXTS` in the call at work."""

    @abstractmethod
    def calls(self, lookup: Callable[[str], Any], declared: dict[str, Splitter]) -> None:
        """Runs an agent whose model calls the tool `lookup` once, with the query "Elmer"; `declared` are the tools
        that are declared as retrievals."""


class _Shelf(BaseRetriever):
    fails: bool = False

    def _get_relevant_documents(self, query: str, **_: Any) -> list[Document]:
        if self.fails:
            raise ConnectionError("no index")
        return [Document(text, id=str(number)) for number, text in enumerate(TEXTS)]


class LangChain(Framework):
    def ask(self, choose: Choose = list, *, fails: bool = False, model: bool = True) -> None:
        prompt = ChatPromptTemplate.from_template("{context}\nQuestion: {input}")
        said = langchain_parts.says(ANSWER) if model else RunnableLambda(lambda prompt: ANSWER)
        chain = {"context": _Shelf(fails=fails) | choose, "input": RunnablePassthrough()} | prompt | said
        chain.invoke(QUESTION, self._config())

    def guarded(self, guard: DistractorGuard) -> None:
        drops = ragguard_langchain.DistractorFilter(guard)
        self.ask(lambda found: drops.compress_documents(found, QUESTION))

    def agent(self, *messages: Sequence[str]) -> None:
        turns = [[langchain_parts.call("search", query=query) for query in queries] for queries in messages]
        tool = create_retriever_tool(_Shelf(), "search", "Searches.")
        agent = create_agent(langchain_parts.says(*turns, ANSWER), [tool])
        agent.invoke({"messages": [("user", QUESTION)]}, self._config())

    def looks_up(self, number: int) -> None:
        @langchain_tool
        def search(query: str) -> str:
            """Searches."""
            return " ".join(str(one.id) for one in _Shelf().invoke(query))

        @langchain_tool
        def read(id: str) -> str:
            """Reads."""
            return TEXTS[int(id)]

        turns = langchain_parts.call("search", query=QUESTION), langchain_parts.call("read", id=str(number))
        agent = create_agent(langchain_parts.says(*turns, ANSWER), [search, read])
        agent.invoke({"messages": [("user", QUESTION)]}, self._config())

    def retrieve(self, query: str) -> None:
        _Shelf().invoke(query)

    def calls(self, lookup: Callable[[str], Any], declared: dict[str, Splitter]) -> None:
        agent = create_agent(
            langchain_parts.says(langchain_parts.call("lookup", query="Elmer"), ANSWER),
            [langchain_tool(lookup)],
        )
        agent.invoke({"messages": [("user", QUESTION)]}, self._config(tools=declared))

    def _config(self, **options: Any) -> Any:
        rg = SimpleNamespace(recorder=self.recorder)
        return {"callbacks": [ragguard_langchain.RagGuardCallback(rg, **options)]}


class _IndexShelf(IndexRetriever):
    def __init__(self, fails: bool = False) -> None:
        super().__init__()
        self.fails = fails

    def _retrieve(self, query_bundle: Any) -> list[NodeWithScore]:
        if self.fails:
            raise ConnectionError("no index")
        return [
            NodeWithScore(node=TextNode(id_=str(n), text=text), score=1 - n / 10)
            for n, text in enumerate(TEXTS)
        ]


class _Chooses(BaseNodePostprocessor):
    choose: Any

    def _postprocess_nodes(self, nodes: list[NodeWithScore], query_bundle: Any = None) -> list[NodeWithScore]:
        return self.choose(nodes)


class LlamaIndex(Framework):
    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        ragguard_llamaindex.instrument(SimpleNamespace(recorder=recorder))

    def ask(self, choose: Choose = list, *, fails: bool = False, model: bool = True) -> None:
        chooses = [_Chooses(choose=choose)]
        if not model:
            chooses.append(_Chooses(choose=_stops))
        self._query(_IndexShelf(fails), chooses)

    def guarded(self, guard: DistractorGuard) -> None:
        self._query(_IndexShelf(), [ragguard_llamaindex.DistractorPostprocessor(guard)])

    def agent(self, *messages: Sequence[str]) -> None:
        turns = [[llamaindex_parts.call("search", input=query) for query in queries] for queries in messages]
        tool = RetrieverTool(_IndexShelf(), ToolMetadata("searches", name="search"))
        agent = FunctionAgent(tools=[tool], llm=llamaindex_parts.scripted(*turns, ANSWER))
        asyncio.run(_run(agent))

    def looks_up(self, number: int) -> None:
        def search(query: str) -> str:
            return " ".join(one.node.node_id for one in _IndexShelf().retrieve(query))

        def read(id: str) -> str:
            return TEXTS[int(id)]

        turns = llamaindex_parts.call("search", query=QUESTION), llamaindex_parts.call("read", id=str(number))
        tools = [FunctionTool.from_defaults(search), FunctionTool.from_defaults(read)]
        asyncio.run(_run(FunctionAgent(tools=tools, llm=llamaindex_parts.scripted(*turns, ANSWER))))

    def retrieve(self, query: str) -> None:
        _IndexShelf().retrieve(query)

    def calls(self, lookup: Callable[[str], Any], declared: dict[str, Splitter]) -> None:
        ragguard_llamaindex.instrument(SimpleNamespace(recorder=self.recorder), tools=declared)
        llm = llamaindex_parts.scripted(llamaindex_parts.call("lookup", query="Elmer"), ANSWER)
        asyncio.run(_run(FunctionAgent(tools=[FunctionTool.from_defaults(lookup)], llm=llm)))

    def _query(self, retriever: IndexRetriever, postprocessors: Sequence[BaseNodePostprocessor]) -> None:
        model = llamaindex_parts.Says(text=ANSWER)
        RetrieverQueryEngine.from_args(retriever, llm=model, node_postprocessors=[*postprocessors]).query(
            QUESTION
        )


async def _run(agent: FunctionAgent) -> None:
    await agent.run(user_msg=QUESTION)


def _stops(found: list[Any]) -> list[Any]:
    raise InterruptedError("nobody asks a model")


@haystack.component
class _HaystackShelf:
    def __init__(self, fails: bool = False) -> None:
        self.fails = fails

    @haystack.component.output_types(documents=list[haystack.Document])
    def run(self, query: str) -> dict[str, Any]:
        if self.fails:
            raise ConnectionError("no index")
        return {"documents": [haystack.Document(content=text, id=str(n)) for n, text in enumerate(TEXTS)]}


@haystack.component
class _HaystackChooses:
    def __init__(self, choose: Choose) -> None:
        self.choose = choose

    @haystack.component.output_types(documents=list[haystack.Document])
    def run(self, documents: list[haystack.Document]) -> dict[str, Any]:
        return {"documents": self.choose(documents)}


@haystack.component
class _HaystackModel:
    def __init__(self, *messages: HaystackMessage) -> None:
        self.messages = list(messages)

    @haystack.component.output_types(replies=list[HaystackMessage])
    def run(self, messages: list[HaystackMessage], tools: Any = None, **_: Any) -> dict[str, Any]:
        return {"replies": [self.messages.pop(0)]}


@haystack.component
class _HaystackAnswers:
    @haystack.component.output_types(replies=list[str])
    def run(self, prompt: str) -> dict[str, Any]:
        return {"replies": [ANSWER]}


def _haystack_call(query: str) -> HaystackToolCall:
    return HaystackToolCall(tool_name="search", arguments={"query": query}, id=query)


class Haystack(Framework):
    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        ragguard_haystack.instrument(SimpleNamespace(recorder=recorder))

    def ask(self, choose: Choose = list, *, fails: bool = False, model: bool = True) -> None:
        self._run(_HaystackShelf(fails), _HaystackChooses(choose), model)

    def guarded(self, guard: DistractorGuard) -> None:
        self._run(_HaystackShelf(), ragguard_haystack.DocumentGuard(guard), True, between={"query": QUESTION})

    def agent(self, *messages: Sequence[str]) -> None:
        tool = ComponentTool(_HaystackShelf(), name="search", description="searches")
        turns = [
            HaystackMessage.from_assistant(tool_calls=[_haystack_call(query) for query in queries])
            for queries in messages
        ]
        model = _HaystackModel(*turns, HaystackMessage.from_assistant(ANSWER))
        Agent(chat_generator=model, tools=[tool]).run(messages=[HaystackMessage.from_user(QUESTION)])

    def looks_up(self, number: int) -> None:
        def search(query: Annotated[str, "the words"]) -> str:
            """Searches."""
            pipeline = haystack.Pipeline()
            pipeline.add_component("retriever", _HaystackShelf())
            found = pipeline.run({"retriever": {"query": query}})["retriever"]["documents"]
            return " ".join(one.id for one in found)

        def read(id: Annotated[str, "the id"]) -> str:
            """Reads."""
            return TEXTS[int(id)]

        calls = [
            HaystackToolCall(tool_name="search", arguments={"query": QUESTION}, id="a"),
            HaystackToolCall(tool_name="read", arguments={"id": str(number)}, id="b"),
        ]
        turns = [HaystackMessage.from_assistant(tool_calls=[one]) for one in calls]
        model = _HaystackModel(*turns, HaystackMessage.from_assistant(ANSWER))
        tools = [create_tool_from_function(search), create_tool_from_function(read)]
        Agent(chat_generator=model, tools=tools).run(messages=[HaystackMessage.from_user(QUESTION)])

    def retrieve(self, query: str) -> None:
        pipeline = haystack.Pipeline()
        pipeline.add_component("retriever", _HaystackShelf())
        pipeline.run({"retriever": {"query": query}})

    def calls(self, lookup: Callable[[str], Any], declared: dict[str, Splitter]) -> None:
        ragguard_haystack.instrument(SimpleNamespace(recorder=self.recorder), tools=declared)
        call = HaystackToolCall(tool_name="lookup", arguments={"query": "Elmer"}, id="a")
        model = _HaystackModel(
            HaystackMessage.from_assistant(tool_calls=[call]), HaystackMessage.from_assistant(ANSWER)
        )
        parameters = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
        tool = haystack.tools.Tool("lookup", "looks up", parameters, lookup)
        Agent(chat_generator=model, tools=[tool]).run(messages=[HaystackMessage.from_user(QUESTION)])

    def _run(self, retriever: Any, chooses: Any, model: bool, **given: Any) -> None:
        pipeline = haystack.Pipeline()
        template = "{% for one in documents %}{{ one.content }}\n{% endfor %}Question: {{ question }}"
        pipeline.add_component("retriever", retriever)
        pipeline.add_component("between", chooses)
        pipeline.add_component("prompt", PromptBuilder(template, required_variables="*"))
        pipeline.connect("retriever.documents", "between.documents")
        pipeline.connect("between.documents", "prompt.documents")
        if model:
            pipeline.add_component("model", _HaystackAnswers())
            pipeline.connect("prompt.prompt", "model.prompt")
        pipeline.run({"retriever": {"query": QUESTION}, "prompt": {"question": QUESTION}, **given})


@pytest.fixture(params=[LangChain, LlamaIndex, Haystack])
def framework(request, captured):
    """Whatever a test does, the recorder sees no fault and is left empty."""
    recorder = Recorder(captured)
    yield request.param(recorder)
    ragguard_llamaindex.uninstrument()
    ragguard_haystack.uninstrument()
    assert recorder.faults.count == 0
    assert len(recorder.here.runs) == len(recorder.here.steps) == 0


def texts(passages) -> list[str]:
    return [one.text for one in passages]


def test_question_retrieval_and_answer_are_a_run_of_one_step(framework, captured):
    framework.ask()
    run = captured.run
    (step,) = run.steps
    assert (run.question, run.answer, run.status) == (QUESTION, ANSWER, "ok")
    assert (step.query, step.status, step.turn) == (QUESTION, "ok", 0)
    assert texts(step.passages) == texts(step.candidates) == list(TEXTS)
    assert [one.id for one in step.passages] == ["0", "1", "2"]
    assert "ragguard.delivered" not in step.metadata


@pytest.mark.parametrize(
    ("choose", "left"),
    [(lambda found: found[:1], [0]), (lambda found: found[::-1], [2, 1, 0]), (lambda found: [], [])],
    ids=["cut", "reordered", "none left"],
)
def test_passages_that_a_later_part_left_are_read_in_its_order(framework, captured, choose, left):
    framework.ask(choose)
    (step,) = captured.run.steps
    assert texts(step.passages) == [TEXTS[number] for number in left]
    assert texts(step.candidates) == list(TEXTS)


def test_run_without_a_model_call_leaves_unknown_what_was_read(framework, captured):
    with suppress(InterruptedError):
        framework.ask(model=False)
    (step,) = captured.run.steps
    assert (len(step.passages), step.metadata["ragguard.delivered"]) == (3, "unknown")


def test_retriever_that_fails_is_a_failed_step(framework, captured):
    with pytest.raises(Exception, match="no index"):
        framework.ask(fails=True)
    (step,) = captured.run.steps
    assert (captured.run.status, step.status, step.passages) == ("error", "error", [])
    assert "no index" in step.error


def test_part_that_fails_after_the_retrieval_fails_the_run_and_not_the_step(framework, captured):
    def fails(found):
        raise OSError("no reranker")

    with pytest.raises(Exception, match="no reranker"):
        framework.ask(fails)
    (step,) = captured.run.steps
    assert (captured.run.status, step.status) == ("error", "ok")
    assert "no reranker" in captured.run.metadata["error"]
    assert (len(step.passages), step.metadata["ragguard.delivered"]) == (3, "unknown")


def test_nothing_is_captured_in_a_pause_and_an_open_run_stays_open(framework, captured):
    with ragguard.paused():
        framework.ask()
    assert captured.events == []
    with RunHandle(framework.recorder, QUESTION):
        with ragguard.paused():
            framework.ask()
        framework.ask()
    assert len(captured.run.steps) == 1


def test_call_inside_a_run_of_the_user_joins_it(framework, captured):
    with RunHandle(framework.recorder, QUESTION, references=[ANSWER]) as run:
        framework.ask()
        framework.ask()
        run.answered("West Ashwick")
    assert (captured.run.answer, captured.run.references) == ("West Ashwick", [ANSWER])
    assert [step.turn for step in captured.run.steps] == [0, 1]


def test_of_several_calls_in_a_run_the_last_answer_counts_and_a_warning_says_so(framework, captured, caplog):
    with caplog.at_level(logging.WARNING, "ragguard"), RunHandle(framework.recorder, QUESTION):
        framework.ask()
        framework.ask()
    assert captured.run.answer == ANSWER
    assert "got more than one answer" in caplog.text


def test_guard_drops_passages_and_its_decision_is_the_steps(framework, captured):
    guard = DistractorGuard("nano", policies=[TopUtility(1)], budget_ms=60_000)
    framework.guarded(guard)
    (step,) = captured.run.steps
    assert step.decision.status == "pruned"
    assert texts(step.passages) == texts(step.decision.kept)
    assert {drop.passage.text for drop in step.decision.dropped} == set(TEXTS) - set(texts(step.passages))
    assert sorted(drop.position for drop in step.decision.dropped) == [
        number for number, text in enumerate(TEXTS, 1) if text not in texts(step.passages)
    ]


def test_guard_in_shadow_lets_all_through_and_its_decision_says_what_would_go(framework, captured):
    framework.guarded(DistractorGuard("nano", policies=[TopUtility(1)], budget_ms=60_000, shadow=True))
    (step,) = captured.run.steps
    assert (step.decision.status, step.decision.dropped) == ("shadow", [])
    assert texts(step.passages) == texts(step.decision.kept) == list(TEXTS)
    assert [TEXTS[drop.position - 1] for drop in step.decision.would_drop] == [
        drop.passage.text for drop in step.decision.would_drop
    ]
    assert len(step.decision.would_drop) == 2
    assert step.places == 3


def test_hops_of_an_agent_follow_each_other_in_one_run(framework, captured):
    framework.agent(["Elmer Hagblad"], ["born"])
    run = captured.run
    assert (run.question, run.answer) == (QUESTION, ANSWER)
    assert [(step.query, step.tool, step.turn) for step in run.steps] == [
        ("Elmer Hagblad", "search", 0),
        ("born", "search", 1),
    ]
    assert all(texts(step.passages) == list(TEXTS) for step in run.steps)


@pytest.mark.parametrize("number", [0, 2])
def test_passage_named_by_id_is_read_where_another_tool_gives_its_text(framework, captured, number):
    framework.looks_up(number)
    (step,) = captured.run.steps
    assert texts(step.candidates) == list(TEXTS)
    assert texts(step.passages) == [TEXTS[number]]
    assert "ragguard.delivered" not in step.metadata


def lookup(query: str) -> str:
    """Gives two texts."""
    return "\n\n".join(TEXTS[:2])


def test_text_of_a_declared_tool_is_split_into_passages(framework, captured):
    framework.calls(lookup, {"lookup": splitters.paragraphs})
    (step,) = captured.run.steps
    assert (step.query, step.tool, step.status) == ("Elmer", "lookup", "ok")
    assert texts(step.passages) == list(TEXTS[:2])


def test_data_of_a_declared_tool_are_one_passage_an_item(framework, captured):
    def lookup(query: str) -> dict[str, Any]:
        """Gives what search services give."""
        return {
            "results": [{"url": "u1", "content": TEXTS[0], "score": 0.9}, {"url": "u2", "content": TEXTS[1]}]
        }

    framework.calls(lookup, {"lookup": splitters.json_items})
    (step,) = captured.run.steps
    assert [(one.id, one.text) for one in step.passages] == [("u1", TEXTS[0]), ("u2", TEXTS[1])]


def test_splitter_that_fails_leaves_the_whole_text(framework, captured):
    framework.calls(lookup, {"lookup": splitters.json_items})
    (step,) = captured.run.steps
    assert texts(step.passages) == ["\n\n".join(TEXTS[:2])]
    assert "JSONDecodeError" in step.metadata["ragguard.split_error"]


def test_declared_tool_that_raises_is_a_failed_step(framework, captured):
    def lookup(query: str) -> str:
        """Fails."""
        raise OSError("no network")

    with suppress(Exception):
        framework.calls(lookup, {"lookup": splitters.paragraphs})
    (step,) = captured.run.steps
    assert (step.status, step.passages) == ("error", [])
    assert "no network" in step.error


def test_tool_that_retrieves_and_then_fails_is_a_failed_step_with_its_candidates(framework, captured):
    def lookup(query: str) -> str:
        """Retrieves, and fails."""
        framework.retrieve(query)
        raise OSError("no network")

    with suppress(Exception):
        framework.calls(lookup, {})
    (step,) = captured.run.steps
    assert (step.query, step.tool, step.status, step.passages) == ("Elmer", "lookup", "error", [])
    assert "no network" in step.error
    assert texts(step.candidates) == list(TEXTS)


def test_tool_that_nobody_declared_is_no_step_and_is_named_with_the_way_out(framework, captured, caplog):
    framework.calls(lookup, {"search_the_wiki": splitters.paragraphs})
    assert captured.events == []
    assert "tools={'lookup': SPLITTER}" in caplog.text


@pytest.mark.parametrize(
    ("fault", "status", "reason"), [("late", "timeout", ""), ("dead", "error", "EngineRejected")]
)
def test_guard_that_cannot_judge_keeps_everything(framework, captured, fault, status, reason):
    late = ScriptedEngine(label=judging, gate=asyncio.Event())
    dead = ScriptedEngine(label=judging, fault=lambda call: EngineRejected("500 from the server"))
    guards = {"late": guarding(late, budget_ms=50), "dead": guarding(dead)}
    framework.guarded(guards[fault])
    (step,) = captured.run.steps
    assert (step.decision.status, step.decision.dropped) == (status, [])
    assert reason in step.decision.reason
    assert (texts(step.passages), step.status, captured.run.status) == (list(TEXTS), "ok", "ok")


@pytest.mark.parametrize("make", [LangChain, LlamaIndex, Haystack])
def test_guarded_step_is_scored_before_and_after_and_its_spans_tell_what_was_dropped(make, tmp_path):
    engine = ScriptedEngine(label=lambda text, label: judging("a 1 about" if "river" in text else "", label))
    exporter, provider = kept_spans()
    with RagGuard(
        engine=engine, scorers=("utility",), store=tmp_path / "runs.db", tracer_provider=provider
    ) as rg:
        make(rg.recorder).guarded(guarding(rg.engine))
        ragguard_llamaindex.uninstrument()
        ragguard_haystack.uninstrument()
        assert rg.flush(timeout=30)
        (run,) = rg.runs()
        scores = rg.scores(run.id)
    (step,) = run.steps
    assert [drop.position for drop in step.decision.dropped] == [3]
    assert {score.stage for score in scores if score.name == "udcg"} == {"candidates", "passages"}
    assert {score.position for score in scores if score.name == "utility"} == {1, 2, 3}
    # The guard and the scorer ask the same questions, so that the engine's cache answers one of them.
    assert len({str(prompt) for one in engine.calls for prompt in one.prompts}) == 6
    assert_spans_tell(exporter.get_finished_spans(), kept=2, dropped=[3])


def test_searches_of_one_message_share_a_turn(framework, captured):
    framework.agent(["Elmer", "Hagblad"], ["born"])
    assert sorted((step.turn, step.query) for step in captured.run.steps) == [
        (0, "Elmer"),
        (0, "Hagblad"),
        (1, "born"),
    ]


def test_guard_is_given_documents_in_plain_code_and_gives_the_very_objects_back():
    guard = DistractorGuard("nano", policies=[TopUtility(2)], budget_ms=60_000)
    documents = [Document(TEXTS[0]), (Document(TEXTS[1]), 0.5), NodeWithScore(node=TextNode(text=TEXTS[2]))]
    decision = guard.prune(QUESTION, documents)
    (drop,) = decision.dropped
    assert drop.passage.text == TEXTS[drop.position - 1]
    left = [one for number, one in enumerate(documents, 1) if number != drop.position]
    assert all(one is other for one, other in zip(decision.of(documents), left, strict=True))
