"""The network on NumPy: the same numbers however prompts are batched, shared or continued."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragguard import world
from ragguard.engines.base import Message, Prompt
from ragguard.engines.llama import network
from ragguard.engines.llama.network import LEAST_SHARED, Network, one_thread, shared_lengths
from ragguard.engines.local.local_engine import Drawn
from ragguard.engines.nano.nano_engine import load_network, load_tokenizer
from ragguard.engines.prompts import load_prompts
from ragguard.engines.requests import DrawRequest

TOKENIZER = load_tokenizer()
ASKED = DrawRequest((), 1, 1, 1.0)
"""A request whose priority alone is used."""


def prompts_of(n: int, *, documents: int = 4) -> list[list[int]]:
    """Prompts of many lengths, some of them about the same documents."""
    prompts = load_prompts("nano")
    ids = []
    for number, case in enumerate(world.cases(n, seed=30)):
        texts = [p.text for p in case.pool()[: 1 + number % documents]]
        asked = (
            prompts.render("abstention", texts, query=case.question),
            prompts.render("answer", texts, question=case.question),
            prompts.render("relevance", texts[:1], query=case.question),
        )
        ids += [TOKENIZER.encode_chat(rendered.messages) for rendered in asked]
    return ids


def next_logprobs(model: Network, ids: list[list[int]]) -> np.ndarray:
    """Returns (prompts, vocabulary): the log-probabilities of all next tokens."""
    every = range(len(TOKENIZER.words))
    return np.array(model.logprobs(ids, [()] * len(ids), every, ASKED, lambda: None))


def test_a_batch_gives_what_each_prompt_gives_alone() -> None:
    model, ids = load_network(), prompts_of(40)
    together = next_logprobs(model, ids)
    alone = np.concatenate([next_logprobs(model, [row]) for row in ids])
    assert np.abs(together - alone).max() < 1e-3
    assert np.allclose(np.exp(together).sum(axis=1), 1.0, atol=1e-4)


def drawn_from(model: Network, ids: list[list[int]], **settings: object) -> list[list[Drawn]]:
    prompts = tuple(Prompt((Message("user", "only its length counts"),)) for _ in ids)
    return model.draw(ids, DrawRequest(prompts, **{"temperature": 1.0, **settings}), lambda: None)


def test_samples_follow_the_distribution() -> None:
    model = load_network()
    row = TOKENIZER.encode_chat(
        load_prompts("nano").render("answer_closed", question="Who founded Norvik Mills?").messages
    )
    (drawn,) = drawn_from(model, [row], n=20_000, max_tokens=1, seed=2)
    counts = np.bincount([tokens[0] for tokens, *_ in drawn], minlength=len(TOKENIZER.words)) / 20_000
    assert np.abs(counts - np.exp(next_logprobs(model, [row])[0])).max() < 0.01


def test_temperature_of_zero_is_greedy_and_a_low_one_sharpens() -> None:
    model, ids = load_network(), prompts_of(4)

    def kinds(temperature: float) -> list[set[int]]:
        drawn = drawn_from(model, ids, n=20, max_tokens=1, seed=1, temperature=temperature)
        return [{tokens[0] for tokens, *_ in samples} for samples in drawn]

    assert kinds(0.0) == [{best} for best in next_logprobs(model, ids).argmax(axis=1)]
    assert sum(map(len, kinds(0.3))) < sum(map(len, kinds(3.0)))


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=24).map(lambda row: [9, *row]), max_size=14))
def test_shared_beginnings_are_common_and_leave_something(rows: list[list[int]]) -> None:
    lengths = shared_lengths(rows, [1] * len(rows))
    groups: dict[tuple[int, ...], int] = {}
    for row, length in zip(rows, lengths, strict=True):
        assert length == 0 or LEAST_SHARED <= length < len(row)
        groups[tuple(row[:length])] = groups.get(tuple(row[:length]), 0) + 1
    assert all(count > 1 for prefix, count in groups.items() if prefix)


@pytest.mark.parametrize("length", [1, 2, 700])
def test_lengths_at_the_edges(length: int) -> None:
    row = [TOKENIZER.begin, *([TOKENIZER.ids["Ada"]] * (length - 1))]
    assert np.isfinite(next_logprobs(load_network(), [row, row[:1]])).all()


def test_threads_of_openblas_are_given_back() -> None:
    if network._controls() is None:
        pytest.skip("NumPy here stands on another library")
    threads, put = network._controls()
    before = threads()
    put(4)
    with one_thread():
        assert threads() == 1
    assert threads() == 4
    put(before)
