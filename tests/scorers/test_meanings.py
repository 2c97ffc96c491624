"""Answers are clustered as the metric does it, with no comparison that is not needed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragguard.errors import LowLabelMass
from ragguard.metrics import cluster
from ragguard.scorers.estimates import Meanings
from ragguard.scorers.question import EntailAnswer


class Ask:
    """Answers from a table of unordered pairs that mean the same; counts."""

    def __init__(self, same=(), mass=1.0, p=None):
        self.same = {frozenset(pair) for pair in same}
        self.mass, self.p, self.rounds = mass, p or {}, []

    async def __call__(self, questions):
        self.rounds.append([(q.pair.premise, q.pair.hypothesis) for q in questions])
        return [EntailAnswer(self.relation(*pair), self.mass) for pair in self.rounds[-1]]

    def relation(self, one, other):
        if (one, other) in self.p:
            return self.p[one, other]
        return (0.9, 0.05, 0.05) if frozenset((one, other)) in self.same else (0.1, 0.2, 0.7)

    @property
    def pairs(self):
        return [pair for round_ in self.rounds for pair in round_]


async def test_the_same_words_are_never_compared():
    ask = Ask()
    meanings = Meanings("q", ask)
    words = [meanings.words(text) for text in ("Ada Berg", "ada berg.", "The Ada Berg", " ", "NO-RESPONSE")]
    assert await meanings.cluster([words]) == [[0, 0, 0, 1, 1]]
    assert ask.pairs == []


@pytest.mark.timeout(60)
@pytest.mark.parametrize("tau", [1.1, float("nan")])
async def test_clustering_ends_for_any_threshold_and_an_answer_means_itself(tau):
    assert await Meanings("q", Ask(same=[("a", "b")]), tau=tau).cluster([["a", "b", "a"]]) == [[0, 1, 0]]


async def test_each_pair_is_compared_once_at_first_with_the_first_of_a_meaning_and_back_only_where_it_follows():
    ask = Ask(same=[("a1", "a2"), ("a1", "a3"), ("b1", "b2")])
    meanings = Meanings("q", ask)
    contexts = [["a1", "b1", "a2", "b2", "a3"], ["b1", "b2", "a1"]]
    assert await meanings.cluster(contexts) == [[0, 1, 0, 1, 0], [0, 0, 1]]
    assert len(set(ask.pairs)) == len(ask.pairs)
    # The first answers of both contexts go out together; then what follows is asked about the other way round; then
    # the other answers of different meanings are compared.
    assert [set(round_) for round_ in ask.rounds if round_] == [
        {("a1", "b1"), ("a1", "a2"), ("a1", "b2"), ("a1", "a3"), ("b1", "b2"), ("b1", "a1")},
        {("a2", "a1"), ("a3", "a1"), ("b2", "b1")},
        {("b1", "a2"), ("b1", "a3"), ("a2", "b2"), ("b2", "a3"), ("b2", "a1")},
    ]


async def test_an_answer_that_follows_from_another_without_the_way_back_means_something_else():
    p = {("Oslo, Norway", "Oslo"): (0.9, 0.1, 0.0), ("Oslo", "Oslo, Norway"): (0.2, 0.8, 0.0)}
    assert await Meanings("q", Ask(p=p)).cluster([["Oslo, Norway", "Oslo"]]) == [[0, 1]]
    assert await Meanings("q", Ask(p=p)).cluster([["Oslo", "Oslo, Norway"]]) == [[0, 1]]


@settings(deadline=None)
@given(st.integers(1, 8), st.randoms(use_true_random=False))
def test_clusters_are_those_of_the_metric(n, rng):
    import asyncio

    names = [f"answer {i}" for i in range(n)]
    same = [(a, b) for i, a in enumerate(names) for b in names[:i] if rng.random() < 0.4]
    answers = [rng.choice(names) for _ in range(10)]
    full = np.array([[a == b or (a, b) in same or (b, a) in same for b in answers] for a in answers])
    found = asyncio.run(Meanings("q", Ask(same)).cluster([answers]))[0]
    assert found == cluster(full).tolist()


async def test_equivalence_by_threshold_or_by_what_is_most_probable():
    p = {("a", "b"): (0.45, 0.3, 0.25), ("b", "a"): (0.9, 0.05, 0.05)}
    for equivalence, expected in [("threshold", [0, 1]), ("strict", [0, 0])]:
        meanings = Meanings("q", Ask(p=p), equivalence=equivalence)
        assert await meanings.cluster([["a", "b"]]) == [expected]


@pytest.mark.parametrize(
    ("there", "back", "loose", "bi"),
    [
        ((0.8, 0.1, 0.1), (0.8, 0.1, 0.1), True, True),
        ((0.8, 0.1, 0.1), (0.1, 0.8, 0.1), True, False),
        ((0.1, 0.8, 0.1), (0.1, 0.8, 0.1), False, False),
        ((0.8, 0.1, 0.1), (0.1, 0.1, 0.8), False, False),
    ],
)
async def test_a_meaning_is_the_references_loosely_or_both_ways(there, back, loose, bi):
    p = {("a", "r"): there, ("r", "a"): back}
    for match, expected in [("loose", loose), ("bi", bi)]:
        meanings = Meanings("q", Ask(p=p), match=match)
        await meanings.learn([("a", "r"), ("r", "a")])
        assert meanings.matches("a", "r") is expected


async def test_no_answer_means_nothing_but_another_no_answer():
    ask = Ask()
    meanings = Meanings("q", ask)
    nothing = meanings.words("I don't know.")
    await meanings.learn([(nothing, "r")])
    assert not meanings.matches(nothing, "r")
    assert meanings.matches(nothing, meanings.words("unanswerable"))
    assert ask.pairs == []


async def test_a_judge_that_would_rather_chat_is_an_error_of_that_context_alone():
    meanings = Meanings("q", Ask(mass=0.2))
    clusters = await meanings.cluster([["a", "b"], ["c", "c"]])
    assert isinstance(clusters[0], LowLabelMass)
    assert clusters[1] == [0, 0]
