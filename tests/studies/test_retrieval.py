"""What retrieval is worth by the number of passages, compressed and re-ranked, on a small size."""

import pytest

from ragguard import connect, world
from ragguard.engines.layers import Cache
from studies.hard_world import hard_cases
from studies.pools import corpus_for
from studies.retrieval import FIRST, LAST, METHODS, fewer_sentences, found_for, study, variants

TEXTS = ["Ada Berg founded Nordvik. It was in 1950 that Bo was born.", "The town lies in Arlonia."]


def test_sentences_close_to_the_question_are_kept_in_their_order() -> None:
    # Fifteen words in all, of which nine may stay: the two closest sentences have nine.
    assert fewer_sentences("Who founded Nordvik in the town?", TEXTS) == (
        "Ada Berg founded Nordvik.",
        TEXTS[1],
    )
    assert fewer_sentences("Who founded Nordvik?", TEXTS, kept=0.01) == ("Ada Berg founded Nordvik.",)


async def test_a_re_ranker_has_the_judges_order_and_hops_take_turns() -> None:
    case = hard_cases(1, seed=6, hops=2)[0]
    corpus = corpus_for(world.default_world(), [case])
    found = found_for(corpus, case)
    assert len(found) == FIRST
    first = [corpus.passages[corpus.search(query, 1)[0][0]].text for query in case.sub_questions]
    assert [passage.text for passage in found[:2]] == first
    made = await variants(case, found, connect("nano"))
    assert set(made) == set(METHODS)
    assert len(made["re-ranked"]) == LAST
    texts = [passage.text for passage in found]
    assert set(made["re-ranked"]) <= set(texts)
    assert made["top 5"] == tuple(texts[:5])


async def test_a_small_study() -> None:
    engine = Cache(connect("nano"))
    tables = {table.name: table for table in await study(engine, questions=5, seed=1)}
    gains = {row[0]: row for row in tables["retrieval-gains"].rows}
    assert gains["1 hop: top 5"][2] > 0.5 > gains["2 hops: top 5"][2] > 0
    assert gains["1 hop: top 10"][6] > gains["1 hop: top 5"][6] > gains["1 hop: fewer sentences"][6]
    gaps = {row[0]: row for row in tables["retrieval-differences"].rows}
    assert "1 hop: top 5" not in gaps
    top, base = gains["1 hop: top 10"], gains["1 hop: top 5"]
    assert gaps["1 hop: top 10"][1] == pytest.approx(top[2] - base[2])
    costs = {row[0]: row for row in tables["retrieval-costs"].rows}
    # Belief draws ten answers with and without the context, and compares them.
    assert costs["belief"][3] > costs["utility"][3]
    assert costs["utility"][1] == 2 * LAST
