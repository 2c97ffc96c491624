"""Joined questions, searches of known quality, and pipelines over them."""

from ragguard import world
from ragguard.world import Counts
from studies.hard_world import hard_cases
from studies.pipelines import DEPTH, chance, diverse, pipelines
from studies.reports import join, join_hard


def test_a_base_holds_every_fact_as_often_as_wanted_and_no_falsehood() -> None:
    cases = world.cases(3, seed=4)
    report = join(cases, "three", statements=3)
    facts = [
        (p.metadata["subject"], p.metadata["object"])
        for p, good in zip(report.base, report.relevant, strict=True)
        if good
    ]
    for case in cases:
        assert facts.count((case.facts[0].subject, case.facts[0].object)) == 3
    assert len(facts) == 9
    assert len({passage.text for passage in report.base}) == len(report.base)
    assert all(passage.metadata["kind"] != "contradiction" for passage in report.base)
    assert all(part.question in report.question for part in report.parts)


def test_a_worse_search_finds_less() -> None:
    reports = [
        join([case], f"r{n}")
        for n, case in enumerate(world.cases(40, seed=4, distractors=Counts(4, 3, 0, 8)))
    ]
    found = [sum(report.relevant[report.ranked(error)[0]] for report in reports) for error in (0.1, 0.5, 3.0)]
    assert found[0] > found[1] > found[2]


def test_diverse_order_puts_a_repeated_text_last() -> None:
    texts = ["ada founded the firm", "ada founded the firm indeed", "oslo lies in norway"]
    assert diverse((0, 1, 2), texts) == (0, 2, 1)
    assert diverse((0, 1, 2), texts, weight=1.0) == (0, 1, 2)


def test_pipelines_reorder_what_their_search_found() -> None:
    report = join(world.cases(6, seed=4), "six", statements=3)
    made = {name: pipeline(report) for name, pipeline in pipelines(0).items()}
    for name, order in made.items():
        if "+" in name:
            assert sorted(order) == sorted(made[name.split(" +")[0]][:DEPTH])
    drawn = chance(report, "fair", 1, 10, 0)
    assert len(drawn) == 10
    assert drawn == chance(report, "fair", 1, 10, 0)
    assert drawn != chance(report, "fair", 2, 10, 0)


def test_harder_reports_have_passages_that_answer_two_questions() -> None:
    cases = hard_cases(3, seed=4, gold=2)
    report = join_hard(cases, "x")
    assert [part.question for part in report.parts] == [case.question for case in cases]
    assert sum(report.relevant) == 6
    answers = [case.answer for case in cases]
    gold = [passage for passage, good in zip(report.base, report.relevant, strict=True) if good]
    assert [sum(answer in passage.text for answer in answers) for passage in gold] == [2, 1] * 3
    for passage, good in zip(report.base, report.relevant, strict=True):
        if not good and passage.metadata["kind"] != "partial":
            facts = [[fact.relation, fact.subject, fact.object] for case in cases for fact in case.facts]
            assert not [fact for fact in passage.metadata["facts"] if fact in facts]
