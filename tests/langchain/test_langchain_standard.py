"""LangChain's own tests of a retriever, on the guarded one."""

from __future__ import annotations

from langchain_tests.integration_tests import RetrieversIntegrationTests
from support.guards import guarding
from support.langchain_parts import ListRetriever, documents

from ragguard_langchain import GuardedRetriever


class Sized(ListRetriever):
    """A shelf whose size may also be said in a call."""

    def _get_relevant_documents(self, query, *, run_manager, k=None):
        return documents(self.shelf, k or self.count, query)


class Guarded(GuardedRetriever):
    """One that is made from a size alone, as LangChain's tests make theirs; its guard drops nothing."""

    def __init__(self, k: int = 3) -> None:
        super().__init__(Sized(count=k), guarding(threshold=-1.0))


class TestGuardedRetriever(RetrieversIntegrationTests):
    @property
    def retriever_constructor(self):
        return Guarded

    @property
    def retriever_query_example(self):
        return "Who founded the firm based in Oslo?"
