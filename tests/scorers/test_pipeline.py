"""A run goes in, scores and failures come out; equal runs cost and say the same; nothing raises."""

import asyncio
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from support.reader import (
    FIRM,
    FIRM_QUERY,
    FOUNDER,
    FOUNDER_QUERY,
    NEAR,
    NOISE,
    TableEntailer,
    reader,
    run,
    step,
    two_hops,
)

from ragguard.errors import (
    BudgetExceeded,
    CircuitOpen,
    EngineTimeout,
    EngineUnreachable,
    InvalidInput,
    UnknownName,
)
from ragguard.metrics import ENGLISH, Language
from ragguard.records import Failure, Passage, Score, Usage
from ragguard.scorers.catalogue import FAMILIES, USUAL
from ragguard.scorers.pipeline import ScoringPipeline
from ragguard.scorers.scorer import Scorer
from ragguard.scorers.utility import Utility
from ragguard.scorers.view import Caps

ALL = (*USUAL, "grades")
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "scorers.md"


def pipeline(engine=None, **more):
    more = {"entailer": TableEntailer(), "scorers": ALL, **more}
    return ScoringPipeline(engine or reader(), **more)


def guarded():
    return run(step(FIRM_QUERY, [FIRM], candidates=[NEAR, FIRM]), step(FOUNDER_QUERY, [NOISE, FOUNDER]))


@pytest.mark.parametrize("family", FAMILIES)
async def test_the_page_says_with_which_name_the_answer_is_judged(family):
    about_the_answer = {"answer_correct", "response_grade"}
    given = {s.name for s in await pipeline(scorers=[family]).results(two_hops()) if isinstance(s, Score)}
    (row,) = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| `{family}`")]
    assert {name for name in about_the_answer if f"`{name}`" in row} == given & about_the_answer


async def test_every_name_of_the_contract_is_given():
    results = await pipeline().results(guarded())
    names = {
        level: {s.name for s in results if isinstance(s, Score) and s.level == level}
        for level in ("passage", "step", "run")
    }
    assert names["passage"] == {
        "p_abstain", "p_relevant", "utility", "distracting_effect", "answerability", "redundancy", "grade",
    }  # fmt: skip
    assert names["step"] == {
        "seper", "seper_hard", "delta_seper", "delta_seper_alone", "semantic_entropy", "delta_semantic_entropy",
        "udcg", "harm", "coverage", "delta_coverage", "alpha_ndcg", "ra_nwg", "selection_efficiency", "n_recall",
        "n_recall_5", "recall", "precision_at_grade", "harm_1", "t", "t_u", "f", "f_e", "delta_seper_selection",
        "delta_coverage_selection", "contested", "delta_udcg_selection", "credit", "loss_without",
    }  # fmt: skip
    assert names["run"] == {
        "seper_closed_book", "delta_seper_total", "udcg_context", "coverage_total", "alpha_ndcg_total", "density",
        "answer_correct", "answer_coverage", "answer_density", "response_grade", "contested",
        "enough_after", "redundant_hops",
    }  # fmt: skip
    pooled = await pipeline().results(guarded_with_pool())
    assert {"proc", "pct_proc"} <= {s.name for s in pooled if isinstance(s, Score)}


def guarded_with_pool():
    the_run = guarded()
    the_run.pool = [
        Passage(FIRM, grade=5), *map(Passage, (NEAR, NOISE, FOUNDER)), Passage("More of it.", grade=4),
    ]  # fmt: skip
    return the_run


async def test_every_key_is_different_and_every_score_is_whole():
    for the_run in (
        guarded(),
        two_hops(),
        run(step("?", [FIRM, FIRM])),
        run(step("?", [FIRM]), step("?", [FIRM])),
    ):
        results = await pipeline().results(the_run)
        keys = [score.key for score in results if isinstance(score, Score)]
        assert len(set(keys)) == len(keys)
        for score in results:
            assert score.run_id == the_run.id
            assert score.engine
            assert score.version
            assert score.prompts == "default/1"
            assert score.value == score.value
            assert score.stderr is None or score.stderr >= 0
            assert (score.position is not None) == (score.level == "passage")


async def test_the_whole_run_takes_few_requests():
    engine, entailer = reader(), TableEntailer()
    await pipeline(engine, entailer=entailer).results(two_hops())
    waves = [call.verb for call in engine.calls]
    # Beliefs and sub-questions; abstention, relevance, grades; then ratings. Comparisons in a few rounds.
    assert sorted(waves) == ["label_probs"] * 4 + ["sample"] * 2
    assert entailer.calls <= 9


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (EngineUnreachable("gone"), True),
        (EngineTimeout("late"), True),
        (CircuitOpen("pause"), True),
        (BudgetExceeded("spent"), False),
        (RuntimeError("a bug of the engine's"), False),
    ],
)
async def test_engine_faults_are_failures(error, again):
    results = await pipeline(reader(fault=lambda call: error)).results(two_hops())
    by_words = [result for result in results if isinstance(result, Score)]
    assert [score.name for score in by_words] == ([] if again else ["answer_correct"])
    results = [result for result in results if isinstance(result, Failure)]
    assert {result.scorer for result in results} == {
        "belief",
        "utility",
        "coverage",
        "contested",
        "answers",
        "grades",
    }
    assert {result.will_retry for result in results} == {again}
    assert all(str(error) in result.message for result in results)
    assert {result.run_id for result in results} != {""}


async def test_an_engine_that_cannot_be_reached_at_all_fails_every_scorer():
    class Gone(type(reader())):
        async def info(self):
            raise EngineUnreachable("nothing at that address")

    failures = await pipeline(Gone()).results(two_hops())
    assert [failure.scorer for failure in failures] == [
        "belief", "utility", "coverage", "contested", "answers", "grades",
    ]  # fmt: skip
    assert all(failure.will_retry for failure in failures)


async def test_a_fault_of_one_kind_leaves_the_other_scores():
    def fault(call):
        return EngineUnreachable("gone") if call.verb == "sample" else None

    results = await pipeline(reader(fault=fault)).results(two_hops())
    assert "utility" in {s.name for s in results if isinstance(s, Score)}
    assert {f.scorer for f in results if isinstance(f, Failure)} == {"belief", "coverage", "contested"}


async def test_a_plan_asks_nothing_and_foretells_the_requests():
    engine, entailer = reader(), TableEntailer()
    scoring = pipeline(engine, entailer=entailer)
    the_run = two_hops(sub_questions=[FIRM_QUERY, FOUNDER_QUERY])
    plan = await scoring.plan(the_run)
    assert not engine.calls
    assert not entailer.calls
    results = await scoring.results(the_run)
    asked = {verb: sum(call.verb == verb for call in engine.calls) for verb in ("sample", "label_probs")}
    prompts = {verb: sum(len(c.prompts) for c in engine.calls if c.verb == verb) for verb in asked}
    lines = dict.fromkeys(asked, Usage())
    for (who, verb), cost in plan.calls.items():
        lines |= {} if who == "entailer" else {verb: lines[verb] + cost}
    assert {verb: lines[verb].requests for verb in asked} == asked
    assert {verb: lines[verb].prompts for verb in asked} == prompts
    words = sum(s.usage.prompt_tokens for s in results) - 10 * len(entailer.pairs)
    tokens = lines["sample"].prompt_tokens + lines["label_probs"].prompt_tokens
    assert words < tokens < 2.5 * words, "words are fewer than tokens, but not by much"
    assert plan.price(prompt=1.0, output=0.0) == pytest.approx(plan.total.prompt_tokens / 1e6)
    assert (plan + plan).total.requests == 2 * plan.total.requests
    assert (plan + plan).runs == 2


async def test_a_plan_of_likelihoods_counts_each_text_as_one_token_written():
    plan = await pipeline(reader(), scorers=["likelihood"]).plan(two_hops())
    cost = plan.calls["engine", "continuations"]
    assert cost.output_tokens == cost.prompts > 0


@pytest.mark.parametrize("capabilities", [{"batch", "n_samples"}, {"n_samples"}, set()])
async def test_a_plan_counts_requests_and_answers_as_the_engine_works(capabilities):
    engine = reader(capabilities=frozenset(capabilities))
    plan = await pipeline(engine).plan(two_hops())
    lines = {verb: cost for (who, verb), cost in plan.calls.items() if who == "engine"}
    drawn, told = lines["sample"], lines["label_probs"]
    assert told.output_tokens == told.prompts
    if "batch" in capabilities:
        assert drawn.requests < drawn.prompts
    elif "n_samples" in capabilities:
        assert (drawn.requests, told.requests) == (drawn.prompts, told.prompts)
    else:
        assert drawn.requests > drawn.prompts, "each of ten answers is a request"


async def test_a_dead_entailer_stops_those_alone_who_ask_it():
    entailer = TableEntailer()
    alive = entailer.info

    async def dead():
        raise EngineUnreachable("nothing at that address")

    entailer.info = dead
    scoring, the_run = pipeline(entailer=entailer), two_hops()
    results = await scoring.results(the_run)
    assert {r.scorer for r in results if isinstance(r, Score)} == {"utility", "coverage", "grades"}
    failed = {r.scorer: (r.error, r.will_retry) for r in results if isinstance(r, Failure)}
    assert failed == dict.fromkeys(("belief", "answers", "contested"), ("EngineUnreachable", True))
    with pytest.raises(EngineUnreachable):
        await scoring.identity()
    entailer.info = alive
    later = await scoring.results(the_run)
    assert not [r for r in later if isinstance(r, Failure)]
    # What was said meanwhile is said again in the same words, so it is kept once.
    keys = {r.key for r in later}
    assert {r.key for r in results if isinstance(r, Score)} <= keys


async def test_identity_changes_with_what_numbers_depend_on():
    base = await pipeline().identity()
    assert base == await pipeline().identity()
    assert base != await pipeline(reader(model="other")).identity()
    assert base != await pipeline(scorers=[*ALL[:1], Utility(relevance="binary"), *ALL[2:]]).identity()
    assert base != await pipeline(caps=Caps(passages=3)).identity()
    other = await pipeline(entailer=TableEntailer(model="nli")).identity()
    changed = {a.scorer for a, b in zip(base.scorers, other.scorers, strict=True) if a != b}
    assert changed == {"belief", "answers", "contested"}
    results = await pipeline().results(run(*two_hops().steps, step(FIRM_QUERY, [NOISE, FIRM])))
    assert {(s.scorer, s.version) for s in results} == {(s.scorer, s.version) for s in base.scorers}


async def test_gold_that_arrives_later_makes_new_scores_beside_the_old():
    the_run = two_hops(references=None)
    before = await pipeline().results(the_run)
    the_run.references = ["Ada Berg"]
    after = await pipeline().results(the_run)
    kept = {s.key for s in before} & {s.key for s in after}
    assert not any("seper" in key for key in kept if key[2] in ("seper", "delta_seper"))
    assert {s.key for s in after if s.name == "delta_seper"}.isdisjoint({s.key for s in before})


@dataclass(frozen=True)
class Longest:
    """A user's scorer: how long the longest passage is."""

    unit: str = "characters"
    name: str = "longest"
    version: str = "3"

    async def score(self, view, ask):
        texts = [passage.text for one in view.run.steps for passage in one.passages]
        return [Score("longest", float(max(map(len, texts))), "run", "")]


async def test_a_scorer_of_the_users_is_one_like_ours():
    assert isinstance(Longest(), Scorer)
    results = await pipeline(scorers=["utility", Longest()]).results(two_hops())
    (score,) = [s for s in results if s.name == "longest"]
    assert score.value == len(NEAR)
    assert (score.scorer, score.run_id != "", score.engine) == ("longest", True, "scripted/first_token")
    assert score.version.startswith("3-")
    settings = (
        await pipeline(
            scorers=[
                Longest(),
            ]
        ).identity(),
        await pipeline(scorers=[Longest("words")]).identity(),
    )
    assert settings[0] != settings[1]


class WithoutAsync:
    name, version = "without async", "1"

    def score(self, view, ask):
        return []


class Calling:
    """A scorer whose `score` is an object: whether a call gives a coroutine is seen when it is called."""

    name, version = "calling", "1"

    def __init__(self, score):
        self.score = partial(score)


@pytest.mark.parametrize("score", [lambda view, ask: [], lambda: None, lambda view, ask: 1 / 0])
async def test_a_call_of_a_scorer_that_fails_takes_no_other_scores_with_it(score):
    results = await pipeline(scorers=["utility", Calling(score)]).results(two_hops())
    assert [one.scorer for one in results if isinstance(one, Failure)] == ["calling"]
    assert {one.scorer for one in results if isinstance(one, Score)} == {"utility"}


@pytest.mark.parametrize(
    ("scorers", "error"),
    [
        (["belive"], UnknownName),
        ([3], InvalidInput),
        (["utility", Utility()], InvalidInput),
        ([Longest], InvalidInput),
        ([WithoutAsync()], InvalidInput),
    ],
)
def test_scorers_that_cannot_be_are_refused_at_once(scorers, error):
    with pytest.raises(error, match="scorers"):
        pipeline(scorers=scorers)


def test_any_number_of_event_loops_may_use_it():
    scoring = pipeline()
    first, second = (asyncio.run(scoring.results(two_hops())) for _ in range(2))
    assert [s.value for s in first] == [s.value for s in second]


async def test_closing_closes_what_it_asks():
    engine, judge, entailer = reader(), reader(), TableEntailer()
    await pipeline(engine, judge=judge, entailer=entailer).aclose()
    assert (engine.closed, judge.closed, entailer.closed) == (1, 1, 1)


async def test_without_an_entailer_the_judge_compares_answers():
    engine, judge = reader(model="reader"), reader(model="judge")
    plain = judge.label
    judge.label = lambda text, label: (
        {"A": 0.0, "B": 0.1, "C": 0.9}[label] if "<answer 1>" in text else plain(text, label)
    )
    results = await ScoringPipeline(engine, judge=judge, scorers=["belief"]).results(two_hops())
    assert [round(s.value, 1) for s in results if s.name == "seper_hard"] == [0.2, 1.0]
    assert all(call.labels == ("A", "B", "C") for call in judge.calls)


async def test_a_passage_of_ten_megabytes_and_binary_junk_do_no_harm():
    huge = "x y " * 2_500_000
    junk = bytes(range(256)).decode("latin-1") + "\ud800"
    results = await pipeline(caps=Caps(prompt_tokens=5_000)).results(
        run(step(FIRM_QUERY, [huge]), step(junk, [junk]))
    )
    assert {f.error for f in results if isinstance(f, Failure)} <= {"CapExceeded"}
    assert any(isinstance(r, Score) and r.name == "utility" for r in results)


async def test_another_language_is_said_once_where_a_model_of_its_own_compares(caplog):
    the_run = two_hops()
    the_run.question = "オスロの会社を創業したのは誰ですか"
    await pipeline(scorers=["belief"], entailer=None).results(the_run)
    await pipeline(scorers=["belief"]).results(two_hops())
    assert "multilingual" not in caplog.text
    for language in (ENGLISH, Language(articles=("der", "die", "das"))):
        await pipeline(scorers=["belief"], language=language).results(the_run)
    assert sum("multilingual" in record.message for record in caplog.records) == 1


async def test_texts_in_a_language_without_declared_phrases_are_warned_of_once(caplog):
    text = "Der Hafen wurde im Jahr 1189 gegründet, als der Kaiser der Stadt ein Privileg gab, und er liegt an dem "
    text += "Fluss, "
    text += (
        "rund hundert Kilometer vom Meer entfernt, so dass viele Schiffe ihn nur bei Flut erreichen können."
    )
    german = run(step("Wann wurde der Hafen gegründet?", [text]))
    caplog.set_level("WARNING")
    declared = pipeline(scorers=["utility"], language=Language(abstentions=("ich weiß es nicht",)))
    await declared.results(german)
    assert "phrases" not in caplog.text
    for _ in range(2):
        await pipeline(scorers=["utility"]).results(german)
    assert caplog.text.count("only English phrases for “I don't know” are known") == 1
