"""Cases: what they say of themselves is so, and equal arguments give equal cases."""

from __future__ import annotations

import pytest

from ragguard import world
from ragguard.errors import InvalidInput
from ragguard.world import Counts
from ragguard.world.facts import Fact, known_facts


@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("known", [False, True])
def test_the_gold_states_the_chain_of_facts(hops: int, known: bool) -> None:
    for case in world.cases(100, seed=1, hops=hops, known=known):
        assert len(case.gold) == len(case.sub_questions) == len(case.facts) == case.hops == hops
        assert case.known is known
        for passage, fact, query, hop in zip(case.gold, case.facts, case.sub_questions, (1, 2), strict=False):
            assert fact.subject in passage.text
            assert fact.object in passage.text
            assert fact.subject in query
            assert passage.metadata["hop"] == hop
        assert case.answer == case.facts[-1].object
        if hops == 2:
            assert case.bridge == case.facts[0].object == case.facts[1].subject
            assert case.bridge not in case.question
            assert case.bridge in case.sub_questions[1]
        else:
            assert case.sub_questions == [case.question]


def test_three_hops_lead_from_name_to_name() -> None:
    for case in world.cases(60, seed=1, hops=3):
        first, second, third = case.facts
        assert (first.object, second.object) == (second.subject, third.subject)
        assert len({fact.subject for fact in case.facts} | {third.object}) == 4
        assert [passage.metadata["hop"] for passage in case.gold] == [1, 2, 3]
        assert [passage.grade for passage in case.gold] == [4, 4, 5]
        assert first.subject in case.question
        assert not any(fact.object in case.question for fact in case.facts)
        assert [
            fact.subject in query for fact, query in zip(case.facts, case.sub_questions, strict=True)
        ] == [True] * 3
    assert [case.question for case in world.cases(3, seed=1, hops=3)] == [
        case.question for case in world.cases(60, seed=1, hops=3)[:3]
    ]


def test_no_three_hops_are_known_by_heart() -> None:
    with pytest.raises(InvalidInput, match="by heart"):
        world.cases(1, hops=3, known=True)


def test_distractors_are_what_their_kind_says() -> None:
    for case in world.cases(150, seed=2, hops=2):
        asked = {(fact.subject, fact.relation): fact for fact in case.facts}
        subjects = {fact.subject for fact in case.facts} | {fact.object for fact in case.facts}
        for passage in case.distractors:
            about = (passage.metadata["subject"], passage.metadata["relation"])
            kind = passage.metadata["kind"]
            fact = case.facts[passage.metadata.get("hop", 1) - 1]
            if kind == "contradiction":
                assert about in asked
                assert passage.metadata["object"] != asked[about].object
                assert passage.metadata["harm"] == 1.0
            elif kind == "same_relation":
                assert about[1] == fact.relation
                assert about[0] != fact.subject
            elif kind == "same_subject":
                assert about[0] == fact.subject
                assert about not in asked
            else:
                assert kind == "unrelated"
                assert not subjects & {about[0], passage.metadata["object"]}
            assert passage.grade == passage.metadata["grade"]


def test_near_misses_that_share_a_word_occur() -> None:
    alike = 0
    for case in world.cases(100, seed=3):
        words = set(case.facts[0].subject.split(" "))
        alike += any(
            words & set(str(p.metadata["subject"]).split(" ")) for p in case.of_kind("same_relation")
        )
    assert alike > 80


def test_known_cases_are_about_the_known_facts() -> None:
    facts = set(known_facts())
    assert all(set(case.facts) <= facts for hops in (1, 2) for case in world.cases(80, hops=hops, known=True))
    assert not any(set(case.facts) & facts for case in world.cases(200))


def test_counts_of_distractors_are_the_callers() -> None:
    (case,) = world.cases(1, hops=2, distractors=Counts(1, 0, 2, 5))
    kinds = [p.metadata["kind"] for p in case.distractors]
    assert (kinds.count("same_relation"), kinds.count("same_subject"), kinds.count("contradiction")) == (
        2,
        0,
        4,
    )
    assert kinds.count("unrelated") == 5


@pytest.mark.parametrize(("argument", "value"), [("hops", 4), ("n", -1), ("split", "test")])
def test_bad_arguments_are_named(argument: str, value: object) -> None:
    arguments = {"n": 1, argument: value}
    with pytest.raises(InvalidInput, match=argument):
        world.cases(**arguments)  # type: ignore[arg-type]


def test_a_world_is_consistent() -> None:
    facts = world.default_world().facts
    for fact in facts.all():
        if fact.relation == "spouse":
            assert facts.object(fact.object, "spouse") == fact.subject
        if fact.relation == "base":
            assert facts.object(fact.object, "firm_in") == fact.subject
    assert not facts.add(
        Fact("mayor", next(f.subject for f in facts.all() if f.relation == "mayor"), "Ada Berg")
    )


def test_cases_of_a_seed_are_the_same_and_more_begin_with_fewer() -> None:
    assert world.cases(5, seed=4, hops=2) == world.cases(9, seed=4, hops=2)[:5]
    assert world.cases(5, seed=4) != world.cases(5, seed=5)
