"""Which contexts there are, how changes are read off them, and what gives way in a small window."""

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragguard.engines.prompts import load_prompts
from ragguard.facts.steps import view_step
from ragguard.records import Passage, RetrievalStep, Run
from ragguard.scorers.contexts import Window, lay_out, window
from ragguard.scorers.plan import UNKNOWN
from ragguard.scorers.probes import belief
from ragguard.scorers.view import Setting, view_run

WIDE = Window(math.inf, 0)


def steps(*texts):
    """One step a list of texts."""
    return [view_step(RetrievalStep(passages=[Passage(text) for text in one]), 20) for one in texts]


def in_turns(*texts):
    """One step a list of texts, one after another."""
    made = [RetrievalStep(passages=[Passage(text) for text in one]) for one in texts]
    return [view_step(step, 20, turn) for turn, step in enumerate(made)]


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=3)),
        min_size=1,
        max_size=6,
    ),
    st.randoms(use_true_random=False),
)
def test_changes_sum_to_the_total_whatever_runs_in_parallel(given_steps, rng):
    views = [
        view_step(RetrievalStep(passages=[Passage(t) for t in texts]), 20, turn)
        for turn, texts in sorted(given_steps)
    ]
    layout = lay_out(views, WIDE)
    belief_in = {key: rng.random() for key in layout.contexts}
    total = sum(c * belief_in[key] for one in layout.steps for key, c in one.change.items())
    assert total == pytest.approx(sum(c * belief_in[key] for key, c in layout.total.items()))


def test_the_earliest_steps_lowest_ranked_go_first_and_the_last_steps_last():
    narrow = Window(4, 0)
    context = narrow(steps(["a1", "a2", "a3"], ["b1", "b2"], ["c1", "c2"]))
    assert context.passages == ("b1", "b2", "c1", "c2")
    assert context.dropped == 3
    assert [context.passages[at] for at in context.cut_order] == ["b2", "b1", "c2", "c1"]


def test_a_passage_found_again_belongs_to_the_later_step():
    context = Window(2, 0)(steps(["a1", "a2"], ["b1", "a1"]))
    assert context.passages == ("a1", "b1")
    assert [context.passages[at] for at in context.cut_order] == ["a1", "b1"]


def test_one_passage_always_stays():
    context = Window(0, 0)(steps(["a", "b"]))
    assert context.passages == ("a",)
    assert context.dropped == 1


def room(context, question):
    """The tokens that a reader of this context length has for passages."""
    prompts, engine = load_prompts("default"), replace(UNKNOWN, context=context)
    setting = Setting(engine, engine, engine, prompts, judge_prompts=prompts)
    return window(view_run(Run(question=question), setting)).tokens


def test_the_window_leaves_room_for_question_and_answer():
    assert room(None, "who?") == math.inf
    assert 250 < room(500, "who?") < 420
    assert room(500, "who " * 50) < room(500, "who?") - 40


def test_an_engine_that_must_cut_after_all_cuts_in_the_same_order():
    context = Window(99, 0)(steps(["first one", "second one"], ["third one"]))
    prompt = belief(
        load_prompts("default"), "who?", context.passages, cut_order=context.cut_order, n=1, seed=0
    ).prompt
    cut = [prompt.messages[span.message].content[span.start : span.end] for span in prompt.cuttable]
    assert cut == ["second one", "first one", "third one"]


PAGE = Path(__file__).parents[2] / "docs" / "reference" / "scorers.md"
COSTS = [
    list(map(int, row))
    for row in re.findall(r"^\| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", PAGE.read_text(), re.M)
]


@pytest.mark.parametrize(("hops", "plain", "loss", "contexts"), COSTS)
def test_credit_takes_as_many_contexts_as_the_page_says(hops, plain, loss, contexts):
    views = in_turns(*([f"{hop}"] for hop in range(hops)))
    assert len(lay_out(views, WIDE).contexts) == plain
    layout = lay_out(views, WIDE, credit=2)
    assert len(layout.contexts) == contexts <= 2 * plain
    assert all((one.credit.orders == ()) == (hops <= 4) for one in layout.steps)
    lost = {key for one in layout.steps for key in one.credit.loss}
    assert len({*lay_out(views, WIDE).contexts, *lost}) == loss


@settings(deadline=None)
@given(
    st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=3), min_size=1, max_size=12),
    st.randoms(use_true_random=False),
)
def test_credits_sum_to_the_total_of_any_run_within_the_contexts_allowed(texts, rng):
    views = in_turns(*texts)
    plain, layout = lay_out(views, WIDE), lay_out(views, WIDE, credit=2)
    assert len(layout.contexts) <= 2 * len(plain.contexts)
    belief_in = {key: rng.random() for key in layout.contexts}

    def value(change):
        return sum(c * belief_in[key] for key, c in change.items())

    credits = [one.credit for one in layout.steps]
    assert sum(value(one.shapley) for one in credits) == pytest.approx(value(layout.total), abs=1e-9)
    for one in credits:
        if one.orders:
            assert value(one.shapley) == pytest.approx(sum(map(value, one.orders)) / len(one.orders))
    for view, one in zip(views, credits, strict=True):
        assert view.readable or (one.loss, one.shapley) == ({}, {})


def test_what_is_lost_without_a_hop_is_told_with_fewer_contexts_than_its_credit():
    views = in_turns(*([f"{hop}"] for hop in range(6)))
    credit = lay_out(views, WIDE, credit=1.5).steps[1].credit
    assert credit.loss == {tuple("012345"): 1.0, tuple("02345"): -1.0}
    assert credit.shapley is None
    assert lay_out(views, WIDE, credit=1.1).steps[0].credit.loss is None
    assert lay_out(views, WIDE, credit=1).steps[0].credit is None
    assert len(lay_out(views, WIDE, credit=2).steps[0].credit.orders) == 4
    assert lay_out(views, WIDE).steps[0].credit is None
