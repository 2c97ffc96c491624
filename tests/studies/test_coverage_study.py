"""What contexts cover beside what responses cover."""

import numpy as np
import pytest
from scipy.stats import kendalltau
from support.rows import rows_of

from ragguard import connect, world
from ragguard.engines.layers import Cache
from ragguard.records import Passage
from ragguard.scorers.coverage import Ratings
from ragguard.scorers.probes import Reading
from ragguard.world import Fact
from studies.coverage import METRICS, data_sets, study, system_interval, system_tau
from studies.reports import Part, Report, join
from studies.responses import Judged, Responses, ideal, measured, rated

pytestmark = pytest.mark.slow

PARTS = (
    Part("Who founded Norvik Labs?", ("Ada Berg",), Fact("founder", "Norvik Labs", "Ada Berg")),
    Part("Where was Ada Berg born?", ("Port Dunby",), Fact("birthplace", "Ada Berg", "Port Dunby")),
)


def judged() -> tuple[Judged, Responses]:
    """Two relevant passages, one that says nothing, and responses from each."""
    kinds = ("gold", "gold", "unrelated")
    base = tuple(Passage("four words are here", metadata={"kind": kind}) for kind in kinds)
    report = Report("r", PARTS, base)
    one = Judged(report, np.array([[5.0, 0], [0, 3], [1, 2]]), (0, 1), np.array([True, True]))
    first, second = ideal(report)
    ratings = Ratings(tuple(part.question for part in PARTS))
    for text, row in ((first, (5, 0)), (second, (0, 3))):
        ratings.rows[text] = [Reading(value, expectation=value) for value in row]
    said = Responses(
        {("r", (0, 1)): [first, second], ("r", (0, 2)): [first], ("r", ()): []},
        {("r", (0, 1)): 1.0, ("r", (0, 2)): 0.5, ("r", ()): 0.0},
        {"r": ratings},
    )
    return one, said


def test_contexts_and_responses_are_measured_by_hand() -> None:
    one, said = judged()
    found = measured({"all": [(0, 1)], "half": [(0, 2)], "none": [()]}, [one], said)
    values = {name: rows[:, 0].tolist() for name, rows in found.values.items()}
    assert found.names == ("all", "half", "none")
    assert values["Cov(Z)"] == [1, 0.5, 0]
    assert values["Cov(Z), η = 5"] == [0.5, 0.5, 0]
    assert values["Cov(y)"] == [1, 0.5, 0]
    assert values["Recall"] == [1, 0.5, 0]
    assert values["MAP"] == [1, 0.5, 0]
    assert values["right"] == [1, 0.5, 0]
    # As long as the oracle's context, and half of what it covers: the root of a half.
    assert values["Den(Z)"] == pytest.approx([1, 0.5**0.5, 0])
    # The first of two ranks of the greedy order 1 + 1/log2(3).
    assert values["α-nDCG@k"] == pytest.approx([1, 1 / (1 + 1 / np.log2(3)), 0])


def test_systems_are_compared_by_their_means() -> None:
    outcome = np.array([[0.0, 0.2], [0.4, 0.6], [0.8, 1.0]])
    assert system_tau(outcome, outcome) == pytest.approx(1)
    assert system_tau(-outcome, outcome) == pytest.approx(-1)
    # One pair of three in the other order.
    assert system_tau(np.array([[0.0, 0.0], [2, 2], [1, 1]]), outcome) == pytest.approx(1 / 3)
    assert system_tau(np.ones((3, 2)), outcome) == 0
    assert np.isnan(system_tau(outcome, np.ones((3, 2))))
    rng = np.random.default_rng(1)
    metric, result = rng.integers(4, size=(2, 12, 1)).astype(float)
    assert system_tau(metric, result) == pytest.approx(kendalltau(metric[:, 0], result[:, 0]).statistic)
    low, high = system_interval(outcome, outcome)
    assert (low, high) == pytest.approx((1, 1))


def test_data_sets_have_six_sub_questions() -> None:
    relevant = {"Parts": {18}, "Hops": {18}, "Hard": {12}}
    for name, reports in data_sets(2, seed=0).items():
        assert all(len(report.parts) == 6 for report in reports)
        assert {sum(report.relevant) for report in reports} == relevant[name]


async def test_passages_are_rated_and_the_oracle_holds_what_is_needed() -> None:
    reports = [join(world.cases(2, seed=5), "two", statements=2)]
    one = (await rated(reports, connect("nano")))[0]
    assert one.answerable.all()
    assert len(one.oracle) == 2
    assert all(one.report.relevant[at] for at in one.oracle)
    assert (one.ratings[list(one.oracle)].max(axis=0) >= 3).all()


async def test_a_small_study() -> None:
    # What is asked again is answered from memory: the recipe is to ask the same again.
    engine = Cache(connect("nano"))
    tables = {table.name: table for table in await study(engine, questions=1, seed=1)}
    rows = rows_of(tables["coverage-pipelines"])
    assert rows["oracle retrieval Z*"]["Parts: Cov(Z)"] == 1
    assert rows["oracle result y*"]["Parts: Cov(y)"] == 1
    assert rows["no retrieval"]["Parts: Cov(y)"] == 0
    assert rows["sharp"]["Parts: Cov(Z)"] <= 1
    assert [row[0] for row in tables["coverage-matrix"].rows][:2] == ["Parts: Cov(Z)", "Parts: Recall"]
    assert len(METRICS) == 6
    again = await study(engine, questions=1, seed=1)
    assert [table.as_dict() for table in again] == [table.as_dict() for table in tables.values()]
