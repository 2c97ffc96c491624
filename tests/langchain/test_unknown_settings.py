"""Mistyped settings of the classes that are LangChain's own models, which ignore unknown names."""

from __future__ import annotations

import copy

import pytest
from langchain_core.runnables import ConfigurableField
from pydantic import ConfigDict, Field, model_validator
from support.guards import guarding
from support.langchain_parts import ListRetriever

from ragguard.errors import UnknownName
from ragguard_langchain import DistractorFilter, GuardedRetriever


@pytest.fixture
def guard():
    return guarding()


def test_an_unknown_setting_is_refused_by_name(guard):
    with pytest.raises(
        UnknownName, match=r"argument of GuardedRetriever: got 'textof'; allowed: text_of, guard, "
    ):
        GuardedRetriever(ListRetriever(), guard, textof=str)
    with pytest.raises(
        UnknownName, match=r"argument of DistractorFilter: got 'textof'; allowed: text_of, guard"
    ):
        DistractorFilter(guard, textof=str)


def test_the_settings_of_the_framework_are_taken(guard):
    retriever = GuardedRetriever(ListRetriever(), guard, tags=["a"], metadata={"b": 1}, name="mine")
    assert (retriever.tags, retriever.metadata, retriever.name) == (["a"], {"b": 1}, "mine")


def test_a_subclass_with_fields_of_its_own(guard):
    class Mine(GuardedRetriever):
        shelf: str = "a"
        depth: int = Field(default=1, alias="deep")

    class Counting(Mine):
        def __init__(self, retriever, guard, *, start=0, **settings):
            super().__init__(retriever, guard, **settings)
            self.metadata = {"start": start}

    mine = Counting(ListRetriever(), guard, start=3, shelf="b", deep=2)
    assert (mine.shelf, mine.depth, mine.metadata) == ("b", 2, {"start": 3})
    with pytest.raises(UnknownName, match="argument of Counting: got 'shelve'; allowed: shelf, "):
        Counting(ListRetriever(), guard, shelve="b")


def test_a_subclass_that_takes_any_name_judges_itself(guard):
    class Open(DistractorFilter):
        model_config = ConfigDict(extra="allow")

    class Renaming(DistractorFilter):
        size: int = 0

        @model_validator(mode="before")
        @classmethod
        def renamed(cls, given):
            return {**given, "size": given.pop("length", 0)}

    assert Open(guard, colour="red").colour == "red"
    assert Renaming(guard, length=3).size == 3


def test_copies_and_configurable_fields_are_made(guard):
    retriever = GuardedRetriever(ListRetriever(), guard, tags=["a"])
    assert retriever.model_copy(update={"tags": ["b"]}).tags == ["b"]
    assert copy.copy(retriever).guard is guard
    assert GuardedRetriever.model_validate({"retriever": ListRetriever(), "guard": guard}).guard is guard
    chosen = retriever.configurable_fields(tags=ConfigurableField(id="tags"))
    assert len(chosen.invoke("query", {"configurable": {"tags": ["c"]}})) > 0
