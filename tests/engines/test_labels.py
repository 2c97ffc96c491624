"""Labels as tokens: the plan asks each thing once, and combines to the product along each label."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ragguard.engines.labels import colliding, plan_labels

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
