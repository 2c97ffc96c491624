"""The stage of `ragguard demo`: questions about a made-up world, two searches over it, and agents that answer.

The agent of a framework is in its integration's module `demo`: this module knows no framework.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

from ragguard import world

if TYPE_CHECKING:
    from ragguard import DistractorGuard, Engine, Passage, RagGuard
    from ragguard.world import Case, Retriever

K = 5
NOISE = 0.8
"""The share of random passages among the finds of the worse search."""
_DRAWN = 160
"""How many questions are drawn; those that are shown are chosen from them."""


class Agent(NamedTuple):
    """An agent of a framework, with the search that it uses and the guard behind that search, if there is one."""

    module: ModuleType
    """The module `demo` of the framework's integration."""
    name: str
    """The name of its runs."""
    search: Retriever
    guard: DistractorGuard | None = None


class Stage:
    """Two-hop questions, and passages among which are many near misses: the same about another person or thing."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self._engine = engine
        cases, corpus = world.cases(_DRAWN, seed=seed, hops=2), world.Corpus(world.default_world())
        corpus.passages += [passage for case in cases for passage in case.pool()]
        self.search = world.Retriever(corpus, K, seed=seed)
        self.worse_search = world.Retriever(corpus, K, noise=NOISE, seed=seed)
        misses = {case.question: self._near_misses(case) for case in cases}
        answerable = [case for case in cases if misses[case.question] >= 0]
        self._cases = sorted(answerable, key=lambda case: misses[case.question], reverse=True)

    def hard(self, count: int) -> list[Case]:
        """Returns the questions with the most near misses among what is found for them."""
        return self._cases[:count]

    def plain(self, count: int) -> list[Case]:
        """Returns the questions with the fewest."""
        return self._cases[-count:]

    def answer(self, rg: RagGuard, agent: Agent, cases: Sequence[Case]) -> None:
        """Lets an agent answer the questions, captured by `rg`."""
        plans = {case.question: case.sub_questions for case in cases}
        ask = agent.module.agent(plans.__getitem__, agent.search, self._read, agent.guard)
        integration = import_module(agent.module.__name__.rpartition(".")[0])
        integration.instrument(rg)
        for case in cases:
            with rg.run(case.question, references=case.references, name=agent.name):
                ask(case.question)
        integration.uninstrument()

    def _read(self, question: str, texts: Sequence[str]) -> str:
        """Returns the model's answer from the passages that were found."""
        prompt = "\n".join([*(f"- {text}" for text in texts), f"Question: {question}", "Answer:"])
        return asyncio.run(self._engine.sample([prompt], n=1, max_tokens=8, temperature=0))[0][0].text

    def _near_misses(self, case: Case) -> int:
        """Returns how many near misses the search finds; −1 where it does not find the answer of a hop."""
        count = 0
        for gold, query in zip(case.gold, case.sub_questions, strict=True):
            found = self.search(query)
            if all(one.text != gold.text for one in found):
                return -1
            (relation, subject), facts = _fact(gold), [_fact(one) for one in found]
            count += sum(fact[0] == relation and fact[1] != subject for fact in facts)
        return count


def _fact(passage: Passage) -> tuple[object, object]:
    return passage.metadata["relation"], passage.metadata["subject"]
