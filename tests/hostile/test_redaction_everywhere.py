"""`redact=` reaches every text of a record, wherever a user or a framework put it."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Annotated

import numpy as np
import pytest
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from llama_index.core.base.base_retriever import BaseRetriever as LlamaIndexRetriever
from llama_index.core.schema import NodeWithScore, TextNode
from support.commands import ragguard
from support.scripted_engine import ScriptedEngine
from support.traced import kept_spans

from ragguard import Passage, RagGuard
from ragguard.capture.events import StepEnded
from ragguard.errors import EngineRejected
from ragguard.records import Decision, Dropped, FieldRule, RetrievalStep, Run, SubStep
from ragguard.runtime.faults import Faults
from ragguard.storage.preparation import Redactor
from ragguard_langchain import RagGuardCallback
from ragguard_llamaindex import instrument, uninstrument

NAME = "Zoë Qvist"
QUERY = f"What does {NAME} owe?"


@dataclass
class Record:
    owner: str


EVERYTHING = {
    "text": NAME, "set": {NAME}, "bytes": NAME.encode(), "path": PurePosixPath(f"/home/{NAME}"),
    "record": Record(NAME), "error": ValueError(NAME), "deque": deque([NAME]), "numpy": np.str_(NAME),
    "array": np.array([NAME]), "tuple": (NAME, [NAME]), NAME: 1, ("key", NAME): 2, "frozen": frozenset({NAME}),
    "document": Document(page_content=NAME, metadata={"by": NAME}), "type": type(NAME, (), {}),
}  # fmt: skip


def redact(text):
    return text.replace(NAME, "[NAME]")


class Shop:
    """A whole RagGuard with everything that it writes: a store, spans, a report."""

    def __init__(self, folder, redact=redact, engine=None):
        self.folder, (self.spans, provider) = folder, kept_spans()
        self.rg = RagGuard(
            engine or ScriptedEngine(label=lambda text, label: 0.4), store=folder / "s.db", scorers=("utility",),
            redact=redact, tracer_provider=provider, capture_content=True,
        )  # fmt: skip

    def written(self):
        """All that was written, as text."""
        self.rg.flush(timeout=20)
        self.rg.close()
        store = str(self.folder / "s.db")
        ragguard("report", store, "--html", self.folder / "page.html", code=0)
        told = [path.read_bytes().decode("utf-8", "replace") for path in self.folder.iterdir()]
        told += [span.to_json() for span in self.spans.get_finished_spans()]
        told += [ragguard("report", store).output]
        return "\n".join(told)


def assert_nothing_left(text):
    forms = (
        NAME,
        repr(NAME)[1:-1],
        ascii(NAME)[1:-1],
        NAME.encode().decode("latin-1"),
        "Qvist",
        "Zo\\\\u00eb",
    )
    assert [form for form in forms if form in text] == []


@dataclass(slots=True)
class LaterStep(RetrievalStep):
    """A step of a later version, with fields that no module but the record's names."""

    comment: str = ""
    hints: list[str] | None = None
    cause: Annotated[str, FieldRule.QUOTING] = ""
    unit: Annotated[Mapping[str, float], FieldRule.OWN_WORDS] = field(default_factory=dict)


def test_a_new_text_field_is_redacted_by_its_annotation_alone():
    step = LaterStep(
        query=QUERY,
        comment=NAME,
        hints=[NAME, "none"],
        cause=f"no index for {QUERY!r}"[:-12],
        unit={NAME: 1.0},
    )
    redactor = Redactor(lambda text: None if text == QUERY else redact(text), Faults())
    kept = redactor.event(StepEnded(step)).step
    assert (kept.comment, kept.hints, kept.unit) == ("[NAME]", ["[NAME]", "none"], {NAME: 1.0})
    assert QUERY[:8] not in kept.cause


def test_a_run_by_hand(tmp_path):
    shop = Shop(tmp_path)
    passage = Passage(f"{NAME} owes much", f"doc/{NAME}/1", 0.5, EVERYTHING)
    decision = Decision(
        [passage],
        [Dropped(passage, 1, f"mentions {NAME}")],
        "pruned",
        1.0,
        f"EngineRejected: bad prompt {QUERY!r}",
        f"http://models/{NAME}",
    )
    rg = shop.rg
    with rg.run(
        QUERY, id=f"run of {NAME}", name=f"agent of {NAME}", metadata=EVERYTHING, pool=[passage]
    ) as run:
        run.retrieved(
            QUERY,
            [passage],
            tool=f"tool of {NAME}",
            decision=decision,
            metadata=EVERYTHING,
            id=f"step {NAME}",
        )
        run.failed(QUERY, RuntimeError(f"nothing for {NAME}"))
        run.answered(f"{NAME} owes 5")
    assert rg.flush(timeout=20).complete
    assert {score.run_id for score in rg.scores(run.id)} == {rg.runs()[0].id}
    assert rg.scores(f"run of {NAME}")
    written = shop.written()
    assert_nothing_left(written)
    assert "mentions [NAME]" in written


@pytest.mark.parametrize("whole", [True, False])
async def test_a_run_that_is_handed_over(tmp_path, whole):
    shop = Shop(tmp_path)
    passage = Passage(f"{NAME} owes much", NAME, 0.5, EVERYTHING)
    step = RetrievalStep(
        id=NAME, query=QUERY, passages=[passage], candidates=[passage], tool=NAME,
        sub_steps=[SubStep(QUERY, [passage], NAME)], metadata=EVERYTHING,
    )  # fmt: skip
    run = Run(NAME, QUERY, steps=[step], metadata=EVERYTHING, name=NAME, sub_questions=[QUERY])
    if whole:
        assert await shop.rg.score(run)
    else:
        scored = [one async for one in shop.rg.score_runs([run])]
        assert scored[0].scores
    assert_nothing_left(shop.written())


class ListRetriever(BaseRetriever):
    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        if "fail" in query:
            raise LookupError(f"no shard for {query!r}")
        return [Document(page_content=f"{NAME} owes much", id=NAME, metadata=dict(EVERYTHING, score=0.5))]


class Nodes(LlamaIndexRetriever):
    def _retrieve(self, query_bundle):
        if "fail" in query_bundle.query_str:
            raise LookupError(f"no shard for {query_bundle.query_str!r}")
        return [
            NodeWithScore(node=TextNode(text=f"{NAME} owes", id_=NAME, metadata={NAME: [NAME]}), score=0.5)
        ]


def test_langchain(tmp_path):
    shop = Shop(tmp_path)
    config = {"callbacks": [RagGuardCallback(shop.rg)], "metadata": {"user": NAME}}
    ListRetriever().invoke(QUERY, config)
    with pytest.raises(LookupError):
        ListRetriever().invoke(f"fail {QUERY}", config)
    assert_nothing_left(shop.written())


def test_llamaindex(tmp_path):
    shop = Shop(tmp_path)
    instrument(shop.rg)
    try:
        Nodes().retrieve(QUERY)
        with pytest.raises(LookupError):
            Nodes().retrieve(f"fail {QUERY}")
    finally:
        uninstrument()
    assert_nothing_left(shop.written())


def refusing(call):
    """Refuses, and says what was asked."""
    return EngineRejected(f"400, the server said: cannot tokenize {call.prompts[0]!r}")


def test_an_engine_that_quotes_what_it_was_asked(tmp_path):
    """A function that knows whole texts only does not recognise a quotation; it is removed all the same."""
    shop = Shop(
        tmp_path, redact=lambda text: None if text == QUERY else text, engine=ScriptedEngine(fault=refusing)
    )
    with shop.rg.run("a question") as run:
        quoted = Decision([], [], "error", 1.0, f"EngineRejected: cannot tokenize {QUERY!r}"[:45])
        run.retrieved(QUERY, ["a passage"], decision=quoted)
        run.failed(QUERY, ValueError(f"cannot search {QUERY!r}"))
    written = shop.written()
    assert "EngineRejected" in written
    assert_nothing_left(written)
    assert QUERY[:12] not in written


def test_ids_stay_what_they_are_where_they_hold_no_text(tmp_path):
    shop = Shop(tmp_path, redact=lambda text: re.sub(r"\d", "#", text))
    with shop.rg.run("question 1") as run:
        run.retrieved(
            "query 2", [Passage("text", "doc-12"), Passage("text 2", "doc-12"), Passage("c", "plain")]
        )
    shop.rg.flush(timeout=20)
    (kept,) = shop.rg.runs()
    assert kept.id == run.id
    assert kept.question == "question #"
    first, second, third = kept.steps[0].passages
    assert first.id == second.id
    assert re.fullmatch(r"redacted-[0-9a-f]{16}", first.id)
    assert third.id == "plain"
    shop.rg.close()
