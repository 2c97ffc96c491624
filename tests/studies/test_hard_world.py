"""Harder cases say what they state: the truth about every passage is held against the world itself."""

from collections import Counter

import numpy as np

from ragguard import connect, world
from ragguard.world.facts import Fact
from studies.hard_world import hard_cases

CASES = {hops: hard_cases(60, seed=5, hops=hops) for hops in (1, 2)}
ALL = [(case, passage) for cases in CASES.values() for case in cases for passage in case.pool()]
TRUE = set(world.default_world().all_facts)


def stated(passage):
    return [Fact(*fact) for fact in passage.metadata["facts"]]


def test_equal_arguments_give_equal_cases_and_more_begin_with_fewer() -> None:
    again = hard_cases(20, seed=5)
    assert [case.pool() for case in again] == [case.pool() for case in CASES[1][:20]]
    assert hard_cases(3, seed=6)[0].pool() != again[0].pool()


def test_passages_state_one_to_three_facts_one_to_the_point() -> None:
    counts = Counter(len(stated(passage)) for _, passage in ALL)
    assert set(counts) == {1, 2, 3}
    assert all(count > len(ALL) / 10 for count in counts.values())
    for _, passage in ALL:
        facts = stated(passage)
        assert passage.text.count(".") == len(facts)
        point = (passage.metadata["relation"], passage.metadata["subject"], passage.metadata["object"])
        assert Fact(*point) in facts
        false = [fact for fact in facts if fact not in TRUE]
        assert len(false) == (passage.metadata["kind"] == "outdated")


def test_only_gold_and_partial_passages_state_what_is_needed() -> None:
    for case, passage in ALL:
        needed = {(fact.relation, fact.subject) for fact in case.facts}
        answers = [fact for fact in stated(passage) if fact in case.facts]
        if passage.metadata["kind"] in ("gold", "partial"):
            assert answers == [case.facts[passage.metadata["hop"] - 1]]
        else:
            assert not answers
            lies = [fact for fact in stated(passage) if (fact.relation, fact.subject) in needed]
            assert len(lies) == (passage.metadata["kind"] == "outdated")


async def test_nano_knows_every_word_and_finds_it_harder() -> None:
    """Misled more by each degree from other relations to near names, and by what is out of date most of all."""
    engine = connect("nano")
    prompts = {}
    for case, passage in ALL:
        if case.hops == 1:
            prompt = f"- {passage.text}\nQuestion: {case.question}\nAnswer or NO-RESPONSE:"
            prompts.setdefault(passage.metadata["kind"], []).append(prompt)
    answered = {}
    for kind, asked in prompts.items():
        answered[kind] = 1 - float(np.mean((await engine.label_probs(asked, ["NO-RESPONSE"])).p))
    assert answered["gold"] > 0.9
    assert answered["unrelated"] < 0.05
    assert answered["unrelated"] < answered["same_relation"] < answered["near_name"] < answered["outdated"]
