"""Rows of lessons as arrays of ids, with the mask that hides the questions of a row from each other."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ragguard.engines.nano.nano_engine import Tokenizer, load_tokenizer
from ragguard.engines.prompts import Task, load_prompts
from ragguard.world.grammar import NAMES
from training.nano.lessons import Level, Row, make_row

FIRST_WORD, LATER_WORD, END_WORD, REPEATED_NAME = 1.0, 0.5, 0.2, 0.4
"""The weight of a predicted token in the loss.

A name begun before is completed by copying: worth learning wherever it stands.
"""


@dataclass(slots=True)
class Batch:
    """`branch` is 0 for documents, the number of the question otherwise, -1 for padding."""

    ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    branch: NDArray[np.int64]
    targets: NDArray[np.int64]
    weights: NDArray[np.float32]


def turn_ids(tokenizer: Tokenizer, task: Task, slots: dict[str, str]) -> list[int]:
    """The words of one question as they follow the documents, up to the sign after which the answer comes."""
    (message,) = load_prompts("nano").render(task, **slots).messages
    return [*tokenizer.encode(message.content), tokenizer.answer]


def document_ids(tokenizer: Tokenizer, passages: list[str]) -> list[int]:
    return [tokenizer.begin, *(i for passage in passages for i in tokenizer.encode("- " + passage))]


def fill_row(row: Row, batch: Batch, at: int) -> None:
    """Writes a row into a batch: its documents, then as many of its questions as fit."""
    tokenizer = load_tokenizer()
    names_from = tokenizer.ids[NAMES["person"][0][0]]
    length = batch.ids.shape[1]
    prefix = document_ids(tokenizer, row.passages)
    ids, positions, branch = list(prefix), list(range(len(prefix))), [0] * len(prefix)
    targets, weights = [0] * len(prefix), [0.0] * len(prefix)
    seen: set[tuple[int, int]] = set()
    for i, pair in enumerate(pairwise(prefix)):
        if pair[0] >= names_from and pair[1] >= names_from:
            if pair in seen:
                targets[i], weights[i] = pair[1], REPEATED_NAME
            seen.add(pair)
    for number, (task, slots, answer) in enumerate(row.turns, 1):
        asked = turn_ids(tokenizer, task, slots)
        said = [*_answer_ids(tokenizer, answer), tokenizer.end]
        whole = asked + said[:-1]
        if len(ids) + len(whole) > length:
            break
        following = [*whole[1:], said[-1]]
        graded = [REPEATED_NAME if pair in seen else 0.0 for pair in pairwise(asked)]
        graded += [FIRST_WORD, *([LATER_WORD] * (len(said) - 2)), END_WORD]
        ids += whole
        positions += range(len(prefix), len(prefix) + len(whole))
        branch += [number] * len(whole)
        targets += following
        weights += graded
    used = len(ids)
    batch.ids[at, :used] = ids
    batch.positions[at, :used] = positions
    batch.branch[at, :used] = branch
    batch.targets[at, :used] = targets
    batch.weights[at, :used] = weights


def _answer_ids(tokenizer: Tokenizer, answer: str) -> list[int]:
    lines = [tokenizer.encode(line) for line in answer.split("\n")]
    return [i for n, line in enumerate(lines) for i in ([tokenizer.ids["\n"]] if n else []) + line]


def make_batch(seed: int, step: int, rows: int, length: int, level: Level) -> Batch:
    """The batch of a step."""
    shape = (rows, length)
    batch = Batch(
        np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.full(shape, -1, np.int64), np.zeros(shape, np.int64),
        np.zeros(shape, np.float32),
    )  # fmt: skip
    for at in range(rows):
        fill_row(make_row(seed, step * rows + at, level), batch, at)
    return batch
