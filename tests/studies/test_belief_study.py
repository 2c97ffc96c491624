"""SePer's experiments: what passages are worth, what is said of them, and the tables."""

import numpy as np
import pytest

from ragguard import connect, world
from ragguard.engines.base import Sample
from ragguard.records import Passage, RetrievalStep, Run
from ragguard.scorers.belief import Belief
from ragguard.scorers.contexts import CLOSED_BOOK
from ragguard.scorers.estimates import Meanings
from ragguard.scorers.pipeline import ScoringPipeline
from ragguard.scorers.view import view_run
from studies.belief import (
    METHODS,
    REPEATS,
    DataSet,
    Reading,
    stability,
    study,
)
from studies.beliefs import Asked, Beliefs, Believed, _growing


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


def test_belief_from_the_first_answers_alone() -> None:
    async def nobody(questions: object) -> list[object]:
        raise AssertionError("equal words need no comparison")

    meanings = Meanings("who?", nobody)  # type: ignore[arg-type]
    samples = [Sample("Ada", (-1.0,)), Sample("", (-1.0,)), Sample("Ada", (-1.0,)), Sample("", (-1.0,))]
    soft, hard = _growing([samples], ["Ada"], meanings)
    assert soft.tolist() == [pytest.approx([1, 1 / 2, 2 / 3, 1 / 2])]
    assert hard.tolist() == [pytest.approx([1, 1 / 2, 2 / 3, 1 / 2])]


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


async def test_a_small_study() -> None:
    told: list[tuple[str, int, int]] = []
    tables = await study(connect("nano"), questions=2, seed=1, progress=lambda *at: told.append(at))
    by_name = {table.name: table for table in tables}
    # More answers differ less between draws.
    sigma = {row[0]: row[1] for row in by_name["belief-stability"].rows}
    assert sigma["1 hop: 20 answers"] < sigma["1 hop: 1 answers"]
    assert [row[0] for row in by_name["belief-utility"].rows] == [*METHODS, "Contexts"]
    assert by_name["belief-utility"].rows[-1][-1] == 12
    assert [row[0] for row in by_name["belief-samples"].rows] == list(range(1, 21))
    assert told[-1][1] == told[-1][2] == 6
    assert REPEATS > 1
    # What states the answer moves belief most, known by heart it moves nothing.
    moved = {row[0]: row[3] for row in by_name["belief-properties"].rows}
    assert moved["1 hop: states the answer"] > 0.5
    assert moved["1 hop, known by heart: states the answer"] == pytest.approx(0, abs=0.05)
