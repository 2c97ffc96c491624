"""SePer's experiments: what passages are worth, what is said of them, and the tables."""

import math

import numpy as np
import pytest

from ragguard import connect, world
from ragguard.engines.base import Sample
from ragguard.records import Passage, RetrievalStep, Run
from ragguard.scorers.belief import Belief
from ragguard.scorers.contexts import CLOSED_BOOK
from ragguard.scorers.meanings import Meanings
from ragguard.scorers.pipeline import ScoringPipeline
from ragguard.scorers.view import view_run
from studies.belief import (
    METHODS,
    REPEATS,
    DataSet,
    Reading,
    by_number,
    data_sets,
    gains,
    readings_of,
    stability,
    study,
)
from studies.beliefs import Asked, Beliefs, Believed, _growing
from studies.reasons import ON_NANO


def believed(before: float, after: dict[str, float], **more: float) -> dict[tuple[str, ...], Believed]:
    """Beliefs by context's only passage, as the study gets them."""
    nothing = np.empty(0)
    found = {
        (text,): Believed({"seper": value, "seper_hard": value, **more}, nothing, nothing)
        for text, value in after.items()
    }
    return {
        CLOSED_BOOK: Believed({"seper": before, "seper_hard": before, "entropy": 3.0}, nothing, nothing),
        **found,
    }


def test_worth_of_a_passage_follows_from_what_it_states() -> None:
    unknown, known, chain = world.cases(1)[0], world.cases(1, known=True)[0], world.cases(1, hops=2)[0]
    assert {one.kind: one.worth for one in readings_of(unknown, 0)}["states the answer"] == 1
    assert {one.kind: one.worth for one in readings_of(known, 0)}["states the answer"] == 0
    worth = {one.kind: one.worth for one in readings_of(chain, 0)}
    assert (worth["first hop"], worth["second hop"], worth["both hops"]) == (0.5, 0.5, 1)
    assert worth["near miss, same relation"] == worth["near miss, same subject"] == worth["unrelated"] == 0
    assert math.isnan(worth["contradicts"])


def test_gains_are_changes_and_less_doubt_is_a_gain() -> None:
    answers = [believed(0.2, {"gold": 0.9}, entropy=1.0)]
    reading = [Reading(0, "states the answer", ("gold",), 1.0)]
    assert gains(reading, answers, "ΔSePer, soft") == pytest.approx([0.7])
    assert gains(reading, answers, "Entropy") == pytest.approx([2.0])
    assert math.isnan(gains(reading, answers, "Perplexity")[0])


def test_questions_that_need_no_passage_are_left_out_of_one_column() -> None:
    gold = [Reading(at, "states the answer", ("gold",), 1.0) for at in range(3)]
    readings = [
        [gold[0], Reading(0, "contradicts", ("lie",), math.nan)],
        [gold[1]],
        [Reading(2, "known", ("gold",), 0.0)],
        [Reading(3, "known", ("gold",), 0.0)],
        [Reading(4, "first hop", ("gold",), 0.5), Reading(4, "both hops", ("gold", "lie"), 1.0)],
        [],
    ]
    answers = [believed(0.9, {"gold": 1.0}), believed(0.1, {"gold": 1.0})] + [
        believed(0.1, {"gold": 1.0})
    ] * 4
    sets, left_out = data_sets(readings, answers, 2)
    assert left_out == 1
    assert [len(s.readings) for s in sets] == [1, 3, 1, 2]
    assert sets[0].questions == [1]


def test_belief_from_the_first_answers_alone() -> None:
    async def nobody(questions: object) -> list[object]:
        raise AssertionError("equal words need no comparison")

    meanings = Meanings("who?", nobody)  # type: ignore[arg-type]
    samples = [Sample("Ada", (-1.0,)), Sample("", (-1.0,)), Sample("Ada", (-1.0,)), Sample("", (-1.0,))]
    soft, hard = _growing([samples], ["Ada"], meanings)
    assert soft.tolist() == [pytest.approx([1, 1 / 2, 2 / 3, 1 / 2])]
    assert hard.tolist() == [pytest.approx([1, 1 / 2, 2 / 3, 1 / 2])]


def test_the_curve_is_of_changes() -> None:
    def one(before: list[float], after: list[float]) -> dict[tuple[str, ...], Believed]:
        rows = {CLOSED_BOOK: before, ("p",): after}
        return {key: Believed({}, np.array([row]), np.array([row])) for key, row in rows.items()}

    data_set = DataSet(
        "x", tuple(Reading(at, "k", ("p",), worth) for at, worth in enumerate((0.0, 0.5, 1.0)))
    )
    # One answer: no change differs; two: the changes are 0, 0.5, 1.
    curve = by_number(data_set, [one([0, 0], [0, 0]), one([1, 0.5], [1, 1]), one([0, 0], [0, 1])], "soft")
    assert curve.tolist() == [pytest.approx([0, 1])]


def test_stability_is_the_spread_between_draws() -> None:
    """Two draws of one answer each: beliefs 0 and 1 in one context (σ 0.707), equal in the other two."""

    def one(*draws: list[float]) -> Believed:
        return Believed({}, np.array(draws), np.array(draws))

    data_set = DataSet(
        "1 hop", tuple(Reading(at, "k", ("p",), worth) for at, worth in enumerate((0.0, 0.5, 1.0)))
    )
    closed = one([0.0], [0.0])
    believed = [
        {CLOSED_BOOK: closed, ("p",): one([0.0], [1.0])},
        {CLOSED_BOOK: closed, ("p",): one([0.5], [0.5])},
        {CLOSED_BOOK: closed, ("p",): one([1.0], [1.0])},
    ]
    (row,) = stability([data_set], believed).rows
    told = dict(zip(stability([data_set], believed).columns, row, strict=True))
    assert told["σ of SePer"] == pytest.approx(np.sqrt(0.5) / 3)
    assert told["σ/mean of SePer"] == pytest.approx(np.sqrt(0.5) / 3 / (4 / 6))
    # The correlations of the two draws are 1 and 0.
    assert told["σ of the correlation"] == pytest.approx(np.sqrt(0.5))
    assert told["r of the first draw"] == pytest.approx(1)
    assert (told["contexts"], told["draws"]) == (3, 2)


async def test_beliefs_are_those_of_a_run() -> None:
    case = world.cases(1, seed=2)[0]
    gold = case.gold[0].text
    engine = connect("nano")
    run = Run(question=case.question, references=case.references,
              steps=[RetrievalStep(query=case.question, passages=[Passage(gold)])])  # fmt: skip
    pipeline = ScoringPipeline(engine, scorers=[Belief(samples=6)])
    scores = {score.name: score.value for score in await pipeline.results(run) if hasattr(score, "value")}
    seed = view_run(run, await pipeline._ready()).seed
    beliefs = Beliefs(engine, engine, samples=6, draws=6, seed=seed)
    found = (await beliefs.of([Asked(case.question, tuple(case.references), ((gold,),))]))[0]
    after, before = found[(gold,)].measures, found[CLOSED_BOOK].measures
    assert after["seper"] == pytest.approx(scores["seper"])
    assert after["seper_hard"] == pytest.approx(scores["seper_hard"])
    assert after["semantic_entropy"] == pytest.approx(scores["semantic_entropy"])
    assert after["seper"] - before["seper"] == pytest.approx(scores["delta_seper"])


async def test_the_same_seed_gives_the_same_beliefs() -> None:
    case = world.cases(1, seed=3)[0]
    asked = [Asked(case.question, tuple(case.references), ((case.distractors[0].text,),), repeats=2)]
    engine = connect("nano")
    one, same, other = [
        (await Beliefs(engine, engine, samples=3, draws=4, seed=seed).of(asked))[0][CLOSED_BOOK]
        for seed in (1, 1, 2)
    ]
    assert one.measures == same.measures != other.measures
    assert one.soft.shape == (2, 4)
    assert np.array_equal(one.soft, same.soft)


async def test_a_small_study() -> None:
    told: list[tuple[str, int, int]] = []
    tables = await study(connect("nano"), questions=2, seed=1, progress=lambda *at: told.append(at))
    by_name = {table.name: table for table in tables}
    assert list(by_name) == [
        "belief-utility", "belief-intervals", "belief-samples", "belief-stability", "belief-properties",
    ]  # fmt: skip
    # More answers differ less between draws.
    sigma = {row[0]: row[1] for row in by_name["belief-stability"].rows}
    assert sigma["1 hop: 20 answers"] < sigma["1 hop: 1 answers"]
    known = {name for name in ON_NANO if name.startswith("belief-")}
    assert known <= {table.name for table in tables}
    assert all(len(row) == len(table.columns) for table in tables for row in table.rows)
    assert [row[0] for row in by_name["belief-utility"].rows] == [*METHODS, "Contexts"]
    assert by_name["belief-utility"].rows[-1][-1] == 12
    assert [row[0] for row in by_name["belief-samples"].rows] == list(range(1, 21))
    assert told[-1][1] == told[-1][2] == 6
    assert REPEATS > 1
    # What states the answer moves belief most, known by heart it moves nothing.
    moved = {row[0]: row[3] for row in by_name["belief-properties"].rows}
    assert moved["1 hop: states the answer"] > 0.5
    assert moved["1 hop, known by heart: states the answer"] == pytest.approx(0, abs=0.05)
