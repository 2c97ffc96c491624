"""The corpus and its retriever: real enough to search, the same every time."""

from __future__ import annotations

from ragguard import world


def test_the_corpus_has_ten_thousand_passages_mostly_true() -> None:
    passages = world.retriever().corpus.passages
    assert len(passages) == 10_000
    assert len({p.id for p in passages}) == 10_000
    false = sum(not p.metadata["true"] for p in passages)
    assert 50 < false < 1000


def test_a_hop_query_finds_its_fact() -> None:
    search = world.retriever(k=10)
    cases = world.cases(150, seed=6, hops=2)
    found = 0
    for case in cases:
        for fact, query in zip(case.facts, case.sub_questions, strict=True):
            wanted = {fact.subject, fact.object}
            found += any({p.metadata["subject"], p.metadata["object"]} == wanted for p in search(query))
    assert found / (2 * len(cases)) > 0.8


def test_noise_replaces_finds() -> None:
    case = world.cases(1, seed=7)[0]
    clean, noisy = world.retriever(8)(case.question), world.retriever(8, noise=1.0)(case.question)
    assert len(clean) == len(noisy) == 8
    assert not {p.id for p in clean} & {p.id for p in noisy}


def test_the_same_query_gives_the_same_passages() -> None:
    query = world.cases(1, seed=8)[0].question
    assert world.retriever(5, noise=0.4)(query) == world.retriever(5, noise=0.4)(query)
    seeds = [[p.id for p in world.retriever(8, noise=0.5, seed=s)(query)] for s in range(6)]
    assert len({tuple(ids) for ids in seeds}) > 1


def test_scores_fall_and_strange_queries_find_nothing() -> None:
    scores = [p.score or 0.0 for p in world.retriever(10)("Who founded Norvik Mills?")]
    assert scores == sorted(scores, reverse=True)
    assert world.retriever()("zzz ???") == []
    assert world.retriever()("") == []
