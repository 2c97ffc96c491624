"""Labels as tokens: the plan asks each thing once, and combines to the product along each label."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragguard.engines.label_tokens import checked_logprob, colliding, plan_labels
from ragguard.errors import EngineProtocolError

labels = st.lists(
    st.lists(st.integers(0, 5), min_size=1, max_size=4).map(tuple), min_size=1, max_size=6, unique=True
)


def model(after, token):
    """A made-up conditional log-probability."""
    return -1.0 - ((hash((after, token)) % 97) / 40)


def answers(plan, prompts=3):
    return [
        np.array([[model(ask.after, token) - prompt for token in ask.tokens] for prompt in range(prompts)])
        for ask in plan.asks
    ]


@given(labels)
def test_a_sequence_is_the_product_along_its_tokens(ids):
    plan = plan_labels(ids, "sequence")
    p = plan.combine(answers(plan))
    assert p.shape == (3, len(ids))
    for column, label in enumerate(ids):
        for prompt in range(3):
            expected = sum(model(label[:at], token) - prompt for at, token in enumerate(label))
            assert math.isclose(p[prompt, column], math.exp(expected), rel_tol=1e-9)


@given(labels)
def test_plan_of_labels_that_begin_alike_asks_for_no_token_twice(ids):
    plan = plan_labels(ids, "sequence")
    assert len({ask.after for ask in plan.asks}) == len(plan.asks)
    for ask in plan.asks:
        assert len(set(ask.tokens)) == len(ask.tokens)
    assert sum(len(ask.tokens) for ask in plan.asks) == len(
        {label[: at + 1] for label in ids for at in range(len(label))}
    )


@given(labels)
def test_first_tokens_need_one_ask(ids):
    plan = plan_labels(ids, "first_token")
    (ask,) = plan.asks
    assert ask.after == ()
    assert set(ask.tokens) == {label[0] for label in ids}
    assert colliding(ids) == (len(ask.tokens) < len(ids))
    p = plan.combine(answers(plan))
    assert np.allclose(p[0], [math.exp(model((), label[0])) for label in ids])


def test_a_flag_anywhere_along_a_label_is_its_flag():
    plan = plan_labels([(1, 2), (1, 3), (4,)], "sequence")
    flags = [np.zeros((1, len(ask.tokens)), dtype=bool) for ask in plan.asks]
    index, ask = next((i, ask) for i, ask in enumerate(plan.asks) if ask.after == (1,))
    flags[index][0, ask.tokens.index(3)] = True
    assert plan.any_of(flags).tolist() == [[False, True, False]]


@pytest.mark.parametrize("value", [-(10**400), 10**400, math.nan, 0.5, True, None, "-1"])
def test_what_is_no_log_probability_is_an_error_of_the_model(value):
    with pytest.raises(EngineProtocolError, match=r"the model gave .* as a log-probability"):
        checked_logprob(value)
