"""The guard judges what the model reads of a document, where the application says what that is."""

from __future__ import annotations

import copy
import pickle

import pytest
from langchain_core.runnables import RunnablePassthrough
from support.guards import guarding
from support.langchain_agents import ANSWER, agent, asked, search_tool
from support.langchain_parts import ListRetriever, call, documents
from support.scripted_engine import ScriptedEngine

from ragguard.errors import InvalidInput
from ragguard_langchain import DistractorFilter, GuardedRetriever, GuardMiddleware, drop_distractors

MODES = pytest.mark.parametrize("mode", ["sync", "async"])


def by_title(text, label):
    """A reader and judge for whom the answer stands in the title."""
    helps = "Oslo" in text
    return {"NO-RESPONSE": 0.1, "A": 0.9 if helps else 0.1, "B": 0.1 if helps else 0.9}.get(label)


def titled(document):
    return f"{document.metadata['title']}\n{document.page_content}"


class Titled(ListRetriever):
    """Its answers are in the titles."""

    def _get_relevant_documents(self, query, *, run_manager):
        titles = ["Rome", "Oslo", "Rome", "Oslo"]
        return [
            one.model_copy(update={"metadata": {**one.metadata, "title": title}})
            for one, title in zip(documents("shelf", 4, query), titles, strict=True)
        ]


def guard():
    return guarding(ScriptedEngine(label=by_title))


@MODES
@pytest.mark.parametrize("kind", ["filter", "retriever", "link"])
async def test_each_wrapper_judges_the_text_that_text_of_gives(captured, config, kind, mode):
    guarded, given = {
        "filter": (RunnablePassthrough() | Titled(count=4) | compressing(text_of=titled), "x"),
        "retriever": (GuardedRetriever(Titled(), guard(), text_of=titled), "x"),
        "link": (
            {"context": Titled(), "question": RunnablePassthrough()}
            | drop_distractors(guard(), text_of=titled)
            | (lambda given: given["context"]),
            "x",
        ),
    }[kind]
    found = guarded.invoke(given, config) if mode == "sync" else await guarded.ainvoke(given, config)
    assert [one.id for one in found] == ["shelf-1", "shelf-3"]
    assert [one.page_content for one in found] == ["shelf 1 about x", "shelf 3 about x"]
    dropped = [drop.passage.id for step in captured.run.steps for drop in step.decision.dropped]
    assert dropped == ["shelf-0", "shelf-2"]


def compressing(**settings):
    keep = DistractorFilter(guard(), **settings)
    return lambda found: list(keep.compress_documents(found, "x"))


@MODES
async def test_the_middleware_does_too(mode):
    built = agent(
        call("search", query="x"), ANSWER, tools=[search_tool(Titled())],
        middleware=[GuardMiddleware(guard(), text_of=titled)],
    )  # fmt: skip
    state = built.invoke(asked()) if mode == "sync" else await built.ainvoke(asked())
    (message,) = (one for one in state["messages"] if one.type == "tool")
    assert [one.id for one in message.artifact] == ["shelf-1", "shelf-3"]
    assert "shelf 0" not in message.content


@pytest.mark.parametrize(
    ("text_of", "why"), [(lambda one: 1 / 0, "ZeroDivisionError"), (lambda one: None, "NoneType")]
)
def test_a_text_that_cannot_be_had_is_the_page_content_and_said(caplog, text_of, why):
    kept = DistractorFilter(guarding(), text_of=text_of).compress_documents(documents("shelf", 4, "x"), "x")
    assert [one.id for one in kept] == ["shelf-0", "shelf-2"]
    assert why in next(record.message for record in caplog.records if "text_of" in record.message)


def test_text_of_that_is_no_function_is_refused():
    for make in (
        lambda: DistractorFilter(guarding(), text_of="title"),
        lambda: GuardedRetriever(ListRetriever(), guarding(), text_of=3),
        lambda: GuardMiddleware(guarding(), text_of="title"),
        lambda: drop_distractors(guarding(), text_of="title"),
    ):
        with pytest.raises(InvalidInput, match="text_of"):
            make()


@MODES
async def test_a_deep_copy_of_a_guarded_retriever_guards(mode):
    """Frameworks copy what they are configured with."""
    mine = guarding()
    guarded = copy.deepcopy(GuardedRetriever(ListRetriever(count=4), mine))
    found = guarded.invoke("x") if mode == "sync" else await guarded.ainvoke("x")
    assert [one.id for one in found] == ["shelf-0", "shelf-2"]
    assert guarded.guard is mine
    assert GuardedRetriever(ListRetriever(count=4), mine).model_copy(deep=True).guard is mine
    with pytest.raises(TypeError, match="Make one in each process"):
        pickle.dumps(DistractorFilter(mine))
