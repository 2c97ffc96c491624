"""Agents under OpenInference's instrumentation: their spans give the runs and scores that ragguard's hooks give."""

import pytest
from langchain_classic.retrievers import ContextualCompressionRetriever, EnsembleRetriever
from langchain_core.documents import BaseDocumentCompressor
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import QueryFusionRetriever
from openinference.instrumentation.langchain import LangChainInstrumentor
from openinference.instrumentation.llama_index import LlamaIndexInstrumentor
from support import llamaindex_parts
from support.langchain_agents import PARALLEL, QUESTION, SEQUENTIAL, agent, asked
from support.langchain_parts import ListRetriever, says
from support.scripted_engine import ScriptedEngine
from support.traced import exported, instrumented, numbers

import ragguard_langchain
import ragguard_langchain.demo
import ragguard_llamaindex
import ragguard_llamaindex.demo
from ragguard import RagGuard, world
from ragguard.traces import read

pytestmark = [
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning"),
    pytest.mark.filterwarnings("ignore:is_running called from within a step:DeprecationWarning"),
]


def seen(run):
    """What both ways have to say of a run: everything that scores depend on, but for K, which no span tells."""
    return run.question, run.answer, [
        (step.query, step.turn, step.status, step.tool, passages(step.candidates), passages(step.passages))
        for step in sorted(run.steps, key=lambda step: (step.turn, step.query))
    ]  # fmt: skip


def passages(found):
    return [(one.id, one.text, one.score) for one in found]


def both(framework, instrumentor, work):
    """The runs of some work: as captured by hooks, and as read from the spans of another instrumentation."""
    with RagGuard("nano", store=None, scorers=[]) as rg, instrumented(instrumentor) as exporter:
        framework.instrument(rg)
        try:
            work()
        finally:
            framework.uninstrument()
        rg.flush(10)
        return list(rg.runs()), [found.run for found in read(exported(exporter))]


class FirstDocument(BaseDocumentCompressor):
    def compress_documents(self, documents, query, callbacks=None):
        return documents[:1]


class LastNode(BaseNodePostprocessor):
    def _postprocess_nodes(self, nodes, query_bundle=None):
        return nodes[-1:]


def chain(retriever):
    prompt = ChatPromptTemplate.from_template("{context} Q: {question}")
    joined = retriever | (lambda found: "\n".join(one.page_content for one in found))
    return {"context": joined, "question": RunnablePassthrough()} | prompt | says("Ada")


def ensemble():
    return EnsembleRetriever(
        retrievers=[ListRetriever(shelf="a"), ListRetriever(shelf="b")], weights=[0.5, 0.5]
    )


def compression():
    return ContextualCompressionRetriever(base_compressor=FirstDocument(), base_retriever=ListRetriever())


LANGCHAIN = {
    "an agent": lambda: agent(*SEQUENTIAL).invoke(asked()),
    "parallel tools": lambda: agent(*PARALLEL).invoke(asked()),
    "a chain": lambda: chain(ListRetriever()).invoke(QUESTION),
    "an ensemble": lambda: chain(ensemble()).invoke(QUESTION),
    "a compressor": lambda: chain(compression()).invoke(QUESTION),
    "a bare retriever": lambda: ListRetriever().invoke(QUESTION),
}


def engine(retriever, **options):
    return RetrieverQueryEngine.from_args(retriever, llm=llamaindex_parts.Says(), **options)


def fusion():
    shelves = [llamaindex_parts.ListRetriever("a"), llamaindex_parts.ListRetriever("b")]
    return QueryFusionRetriever(shelves, llm=llamaindex_parts.Says(), num_queries=1, use_async=False)


LLAMAINDEX = {
    "an engine": lambda: engine(llamaindex_parts.ListRetriever()).query(QUESTION),
    "a postprocessor": lambda: engine(
        llamaindex_parts.ListRetriever(), node_postprocessors=[LastNode()]
    ).query(QUESTION),
    "a fusion": lambda: engine(fusion()).query(QUESTION),
    "a bare retriever": lambda: llamaindex_parts.ListRetriever().retrieve(QUESTION),
}


SHAPES = [(ragguard_langchain, LangChainInstrumentor, work) for work in LANGCHAIN.values()]
SHAPES += [(ragguard_llamaindex, LlamaIndexInstrumentor, work) for work in LLAMAINDEX.values()]


@pytest.mark.parametrize(("framework", "instrumentor", "work"), SHAPES, ids=[*LANGCHAIN, *LLAMAINDEX])
def test_spans_of_openinference_give_the_run_and_the_scores_of_our_hooks(framework, instrumentor, work):
    (captured,), (traced,) = both(framework, instrumentor(), work)
    assert seen(traced) == seen(captured)
    assert traced.steps
    assert numbers(traced, ScriptedEngine()) == numbers(captured, ScriptedEngine())


@pytest.mark.parametrize(("framework", "instrumentor"), [
    (ragguard_langchain, LangChainInstrumentor), (ragguard_llamaindex, LlamaIndexInstrumentor),
])  # fmt: skip
def test_the_agents_of_the_demo_get_the_same_scores(framework, instrumentor):
    case, search = world.cases(1, hops=2)[0], world.retriever(k=3)
    ask = framework.demo.agent(
        lambda _: case.sub_questions, search, lambda _, lines: lines[0].split()[0], None
    )

    (captured,), (traced,) = both(framework, instrumentor(), lambda: ask(case.question))
    assert seen(traced) == seen(captured)
    assert len(traced.steps) == 2
    assert numbers(traced, "nano") == (found := numbers(captured, "nano"))
    assert {"utility", "delta_seper"} <= {name for name, *_ in found}
