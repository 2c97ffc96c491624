"""A selection beside the best there was: only where there was more to select from."""

import pytest
from support.reader import FIRM, FIRM_QUERY, FOUNDER, NEAR, NOISE, named, reader, run, step, two_hops

from ragguard import metrics
from ragguard.records import Failure, Passage, Score
from ragguard.scorers.grades import Grades
from ragguard.scorers.pipeline import ScoringPipeline


async def grades(the_run, engine=None, **more):
    return await ScoringPipeline(engine or reader(), scorers=["grades"], **more).results(the_run)


def value(results, name, stage="passages"):
    scores = named(results, name, stage)
    return scores[0].value if scores else None


def names(results, stage="passages"):
    return {score.name for score in results if score.stage == stage}


async def test_every_passage_is_graded_for_its_own_steps_query():
    results = await grades(two_hops())
    assert [score.value for score in results if score.name == "grade"] == [5, 2, 1, 5]
    assert results[0].expectation == pytest.approx(0.8 * 5 + 0.05 * (1 + 2 + 3 + 4))


async def test_beside_its_own_candidates_alone_a_selection_has_an_efficiency_and_no_proc():
    results = await grades(run(step(FIRM_QUERY, [NEAR], candidates=[FIRM, NEAR, NOISE])))
    assert {"proc", "pct_proc"}.isdisjoint(names(results))
    assert value(results, "selection_efficiency") == metrics.ra_nwg([5, 2, 1], [2], 1) == 0
    assert value(results, "n_recall") == 0
    assert names(results, "candidates") == {"precision_at_grade", "harm", "harm_1", "t", "t_u"}
    assert value(results, "harm", "candidates") == pytest.approx(2 / 3)
    assert value(results, "harm") == 1.0


async def test_a_step_has_f_recall_and_grade_5_alone_where_the_grades_of_the_rest_are_known():
    results = await grades(run(step(FIRM_QUERY, [FIRM], candidates=[FIRM, NEAR, NOISE])))
    assert value(results, "f") == metrics.f(1, 1, 1) == 1
    assert value(results, "f_e") == metrics.f_e(1, 1, 1) == 1
    assert value(results, "recall") == value(results, "n_recall_5") == 1
    assert value(results, "t_u") == metrics.t_u(1, 1)
    assert value(results, "harm_1", "candidates") == pytest.approx(1 / 3)
    missed = await grades(run(step(FIRM_QUERY, [NEAR], candidates=[FIRM, NEAR, NOISE])))
    assert value(missed, "f") == value(missed, "f_e") == value(missed, "recall") == 0


async def test_steps_with_the_same_query_share_a_pool():
    results = await grades(run(step(FIRM_QUERY, [NEAR]), step(FIRM_QUERY, [FIRM])))
    first = [score for score in results if score.step_id == results[0].step_id]
    assert value(first, "proc") == metrics.proc([2, 5], [2], 1) == 0
    assert value(first, "ra_nwg") == 0
    second = [score for score in results if score.step_id != results[0].step_id]
    assert value(second, "proc") == value(second, "pct_proc") == value(second, "ra_nwg") == 1
    assert "selection_efficiency" not in names(results)


async def test_a_given_pool_is_the_pool_and_its_grades_stand():
    engine = reader()
    pool = [Passage(FIRM, grade=4), Passage(FOUNDER, grade=5), Passage("Something else.", grade=3)]
    pool += [Passage(NEAR), Passage(NOISE)]
    results = await grades(two_hops(pool=pool), engine)
    assert [(s.value, s.label) for s in results if s.name == "grade"] == [
        (4, "given"),
        (2, ""),
        (1, ""),
        (5, "given"),
    ]
    graded = [4, 2, 5, 3, 1]
    assert value(results, "ra_nwg") == metrics.ra_nwg(graded, [4, 2], 2)
    assert value(results, "proc") == metrics.proc(graded, [4, 2], 2)
    assert {s.reference_source for s in results if s.name == "ra_nwg"} == {"gold"}
    assert sum(len(call.prompts) for call in engine.calls) == 4
    without = await grades(two_hops())
    assert {s.references_hash for s in results}.isdisjoint({s.references_hash for s in without})


FIVE, TWO = Passage(FIRM, grade=5), Passage(FIRM, id="again", grade=2)


@pytest.mark.parametrize(
    ("pool", "first", "second"),
    [([FIVE, TWO], [NEAR], [NEAR]), ([], [FIVE, TWO], [NEAR]), ([FIVE], [NEAR], [TWO]), ([], [FIVE], [TWO])],
)
async def test_passage_with_two_grades_for_one_query_is_a_failure_and_no_number(pool, first, second):
    the_run = run(step(FIRM_QUERY, [NEAR]), step(FIRM_QUERY, [NEAR]), pool=pool)
    the_run.question = FIRM_QUERY
    for one, passages in zip(the_run.steps, (first, second), strict=True):
        one.passages = one.candidates = [p if isinstance(p, Passage) else Passage(p) for p in passages]
    (failure,) = await grades(the_run)
    assert (failure.error, failure.scorer) == ("ScoringError", "grades")
    assert "give it one" in failure.message


async def test_a_pool_without_what_was_retrieved_is_a_failure_and_no_number():
    results = await grades(run(step(FIRM_QUERY, [FIRM, NEAR]), pool=[Passage(FOUNDER, grade=5)]))
    (failure,) = [one for one in results if isinstance(one, Failure)]
    assert "2 of the retrieved texts are not in the run's pool" in failure.message
    given = {score.name for score in results if isinstance(score, Score)}
    assert given == {"grade", "precision_at_grade", "harm", "harm_1", "t", "t_u"}


async def test_a_grade_that_fails_leaves_the_step_out():
    engine = reader()
    plain = engine.label
    engine.label = lambda text, label: 0.01 if NEAR in text else plain(text, label)
    results = await grades(two_hops(), engine)
    (failure,) = [result for result in results if isinstance(result, Failure)]
    assert failure.error == "LowLabelMass"
    scored = {score.step_id for score in named(results, "harm", None)}
    assert len(scored) == 1
    assert failure.step_id not in scored


async def test_the_caps_of_rare_grades_have_names():
    pool = [Passage(FIRM, grade=5), Passage(NEAR, grade=4), Passage(NOISE, grade=1)]
    the_run = run(step(FIRM_QUERY, [NEAR]), pool=pool)
    found = [
        value(await ScoringPipeline(reader(), scorers=[scorer]).results(the_run), "ra_nwg")
        for scorer in (Grades(), Grades(cap4=0.1))
    ]
    assert found == [0.5, 0.1]
