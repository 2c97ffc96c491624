"""Harder cases say what they state: the truth about every passage is held against the world itself."""

from collections import Counter

import numpy as np
import pytest

from ragguard import connect, world
from ragguard.errors import InvalidInput
from ragguard.world.cases import GRADES, HARM
from ragguard.world.facts import Fact
from ragguard.world.runs import make_run
from studies.hard_world import DEGREES, hard_cases

CASES = {hops: hard_cases(60, seed=5, hops=hops) for hops in (1, 2)}
ALL = [(case, passage) for cases in CASES.values() for case in cases for passage in case.pool()]
TRUE = set(world.default_world().all_facts)


def stated(passage):
    return [Fact(*fact) for fact in passage.metadata["facts"]]


def test_equal_arguments_give_equal_cases_and_more_begin_with_fewer() -> None:
    again = hard_cases(20, seed=5)
    assert [case.pool() for case in again] == [case.pool() for case in CASES[1][:20]]
    assert hard_cases(3, seed=6)[0].pool() != again[0].pool()


def test_the_present_world_is_as_it_was() -> None:
    """The questions are those of `world.cases`, whose passages are none of these."""
    plain = world.cases(60, seed=5)
    assert [case.question for case in plain] == [case.question for case in CASES[1]]
    kinds = {passage.metadata["kind"] for case in plain for passage in case.pool()}
    assert kinds == {"gold", "same_relation", "same_subject", "contradiction", "unrelated"}


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


def test_several_gold_passages_stand_for_each_hop() -> None:
    for hops, cases in CASES.items():
        for case in cases:
            assert [passage.metadata["hop"] for passage in case.gold] == list(range(1, hops + 1)) * 3
            assert len({passage.text for passage in case.gold}) == len(case.gold)
            assert {passage.grade for passage in case.gold} == ({5} if hops == 1 else {4, 5})


def test_distractors_come_in_every_degree_and_count_for_more_and_more_harm() -> None:
    kinds = Counter(passage.metadata["kind"] for case in CASES[1] for passage in case.distractors)
    assert set(kinds) == {*DEGREES, "partial"}
    assert all(kinds[kind] == 120 for kind in DEGREES[:2])
    assert [HARM[kind] for kind in DEGREES] == sorted(HARM[kind] for kind in DEGREES)
    assert {passage.grade for case in CASES[1] for passage in case.of_kind("partial")} == {3, 4}
    for case, passage in ALL:
        fact = case.facts[passage.metadata.get("hop", 1) - 1]
        shares = set(fact.subject.split()) & set(passage.metadata["subject"].split())
        if passage.metadata["kind"] == "near_name":
            assert passage.metadata["relation"] == fact.relation
            assert passage.metadata["subject"] != fact.subject
            assert shares
        if passage.metadata["kind"] == "same_relation":
            assert passage.metadata["relation"] == fact.relation
            assert not shares
        if passage.metadata["kind"] == "outdated":
            assert passage.text.count("In 1") == 1


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


def test_harder_cases_become_runs_as_others_do() -> None:
    run = make_run(CASES[2][0], junk=2)
    assert [step.metadata["role"] for step in run.steps] == ["gold", "gold"]


@pytest.mark.parametrize("wrong", [{"gold": 0}, {"each": -1}])
def test_counts_that_make_no_case_are_refused(wrong) -> None:
    with pytest.raises(InvalidInput):
        hard_cases(1, **wrong)


def test_grades_of_the_present_kinds_are_kept() -> None:
    assert GRADES == {"gold": 5, "same_relation": 2, "same_subject": 2, "contradiction": 1, "unrelated": 1}
