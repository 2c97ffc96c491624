"""Cases and the runs and retrievers made of them: what they say of themselves is so, and equal arguments give equal
ones.
"""

from __future__ import annotations

import pytest

from ragguard import world
from ragguard.errors import InvalidInput
from ragguard.world.facts import Fact


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


@pytest.mark.parametrize(
    ("argument", "given"),
    [
        ("hops", {"hops": 4}),
        ("by heart", {"hops": 3, "known": True}),
        ("split", {"split": "test"}),
    ],
)
def test_wrong_argument_is_named(argument: str, given: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match=argument):
        world.cases(**{"n": 1, **given})  # type: ignore[arg-type]


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
    for hops in (2, 3):
        assert world.cases(5, seed=4, hops=hops) == world.cases(9, seed=4, hops=hops)[:5]
    assert world.cases(5, seed=4) != world.cases(5, seed=5)


def test_a_step_a_hop_with_its_gold() -> None:
    case = world.cases(1, seed=1, hops=2)[0]
    run = world.make_run(case, junk=2)
    assert [step.query for step in run.steps] == case.sub_questions
    assert [step.index for step in run.steps] == [step.turn for step in run.steps] == [0, 1]
    assert all(gold in step.passages for gold, step in zip(case.gold, run.steps, strict=True))
    assert all(len(step.passages) == 3 and step.run_id == run.id for step in run.steps)
    assert run.answer == case.answer
    assert run.references == case.references


def test_a_misled_run_answers_falsely_and_says_so() -> None:
    for seed, case in enumerate(world.cases(20, seed=2, hops=2)):
        run = world.make_run(case, seed=seed, mislead=(2,))
        step = run.steps[1]
        assert step.metadata["role"] == "misled"
        assert case.gold[1] not in step.passages
        assert run.answer not in case.references
        assert any(str(run.answer) in passage.text for passage in step.passages)


def test_useless_and_missed_and_parallel_steps() -> None:
    case = world.cases(1, seed=3, hops=2)[0]
    run = world.make_run(case, useless_steps=2, miss=(1,), parallel=True, references=False)
    roles = [step.metadata["role"] for step in run.steps]
    assert sorted(roles) == ["gold", "missed", "useless", "useless"]
    assert {step.turn for step in run.steps} == {0}
    assert run.references is None
    assert case.gold[0] not in [p for step in run.steps for p in step.passages]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("miss", {"miss": (3,)}),
        ("mislead", {"mislead": (0,)}),
        ("mislead", {"mislead": (1,)}),
    ],
)
def test_run_that_a_case_cannot_play_is_refused(name: str, wrong: dict[str, object]) -> None:
    (case,) = world.cases(1, hops=2, distractors=world.Counts(contradiction=0))
    with pytest.raises(InvalidInput, match=name):
        world.make_run(case, **wrong)  # type: ignore[arg-type]


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


def test_scores_fall_and_strange_queries_find_nothing() -> None:
    scores = [p.score or 0.0 for p in world.retriever(10)("Who founded Norvik Mills?")]
    assert scores == sorted(scores, reverse=True)
    assert world.retriever()("zzz ???") == []
    assert world.retriever()("") == []
