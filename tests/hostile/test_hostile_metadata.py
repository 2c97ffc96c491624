"""Documents whose metadata is a reference cycle: captured in time, kept small, and nobody else's run is lost."""

from __future__ import annotations

from itertools import count

import pytest
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from llama_index.core.base.base_retriever import BaseRetriever as LlamaIndexRetriever
from llama_index.core.schema import NodeWithScore, TextNode
from support.hostile_values import a_cycle
from support.scripted_engine import ScriptedEngine

from ragguard import Passage, RagGuard
from ragguard.capture.snapshot import MOST_PASSAGES
from ragguard.records import CUT_PASSAGES
from ragguard.text.plain import CUT
from ragguard_langchain import RagGuardCallback
from ragguard_llamaindex import instrument, uninstrument

WIDE = 20


class LangChainRetriever(BaseRetriever):
    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        return [
            Document(page_content=f"{query} {n}", id=str(n), metadata={"n": n, "node": a_cycle()})
            for n in range(WIDE)
        ]


class LlamaIndexListRetriever(LlamaIndexRetriever):
    def _retrieve(self, query_bundle):
        text = query_bundle.query_str
        return [
            NodeWithScore(node=TextNode(text=f"{text} {n}", metadata={"n": n, "node": a_cycle()}), score=0.5)
            for n in range(WIDE)
        ]


@pytest.fixture
def rg(tmp_path):
    rg = RagGuard(ScriptedEngine(label=lambda text, label: 0.4), scorers=(), store=tmp_path / "runs.db")
    yield rg
    rg.close()


def by_hand(rg, question):
    with rg.run(question, metadata={"graph": a_cycle()}) as run:
        passages = [
            Passage(f"{question} {n}", str(n), None, {"n": n, "node": a_cycle()}) for n in range(WIDE)
        ]
        run.retrieved(question, passages, metadata={"plan": a_cycle()})


def langchain(rg, question):
    LangChainRetriever().invoke(question, {"callbacks": [RagGuardCallback(rg)]})


def llamaindex(rg, question):
    instrument(rg)
    try:
        LlamaIndexListRetriever().retrieve(question)
    finally:
        uninstrument()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("retrieve", [by_hand, langchain, llamaindex])
def test_cyclic_metadata_costs_the_record_that_field_only(rg, tmp_path, retrieve):
    for number in range(5):
        retrieve(rg, f"question {number}")
    report = rg.flush(timeout=30)
    assert report
    assert not rg.recorder.faults.count
    runs = list(rg.runs())
    assert [run.question for run in runs] == [f"question {number}" for number in range(5)]
    for run in runs:
        (step,) = run.steps
        assert [passage.metadata["n"] for passage in step.passages] == list(range(WIDE))
        for passage in step.passages:
            assert passage.metadata[CUT] == "node: over 40 levels"
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 2_000_000


def test_endless_passages_are_cut_and_the_last_one_says_so(rg):
    with rg.run("question") as run:
        run.retrieved("question", (f"passage {n}" for n in count()))
    (step,) = run.steps
    assert len(step.passages) == MOST_PASSAGES
    assert CUT_PASSAGES in step.passages[-1].metadata
