"""Settings of the classes that are models of LangChain: its own are taken, a mistyped one is refused by name."""

from __future__ import annotations

import copy

import pytest
from langchain_core.runnables import ConfigurableField
from pydantic import ValidationError
from support.guards import guarding
from support.langchain_parts import ListRetriever

from ragguard_langchain import DistractorFilter, GuardedRetriever


@pytest.fixture
def guard():
    return guarding()


def test_unknown_setting_is_refused_by_name(guard):
    with pytest.raises(ValidationError, match=r"GuardedRetriever\ntextof"):
        GuardedRetriever(ListRetriever(), guard, textof=str)
    with pytest.raises(ValidationError, match=r"DistractorFilter\ntextof"):
        DistractorFilter(guard, textof=str)


def test_settings_of_the_framework_and_of_a_subclass_are_taken(guard):
    class Mine(GuardedRetriever):
        shelf: str = "a"

    mine = Mine(ListRetriever(), guard, tags=["a"], metadata={"b": 1}, name="mine", shelf="b")
    assert (mine.tags, mine.metadata, mine.name, mine.shelf) == (["a"], {"b": 1}, "mine", "b")


def test_copies_and_configurable_fields_are_made(guard):
    retriever = GuardedRetriever(ListRetriever(), guard, tags=["a"])
    assert retriever.model_copy(update={"tags": ["b"]}).tags == ["b"]
    assert copy.copy(retriever).guard is guard
    assert GuardedRetriever.model_validate({"retriever": ListRetriever(), "guard": guard}).guard is guard
    chosen = retriever.configurable_fields(tags=ConfigurableField(id="tags"))
    assert len(chosen.invoke("query", {"configurable": {"tags": ["c"]}})) > 0
