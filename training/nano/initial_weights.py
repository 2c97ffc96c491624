"""The weights from which nano's training starts: random, but for a few heads that make reading easy to learn.

Left to chance, most of the training goes by before any head looks at the word before, copies what
followed a name the last time, or connects a name in a question with the same name in a document. These
circuits are well known; here they stand from the first step, roughly, and training makes them good. All
else (relations, two hops, abstention, every judgement) is learnt.
"""

from __future__ import annotations

import torch

from ragguard.engines.nano.nano_engine import load_tokenizer
from ragguard.world import grammar
from training.nano.network import Network

CONSTANT, FIRST, SECOND, VALUE = range(4)
"""Coordinates of an embedding that say: a word; the first word of a name; its second; a plain value."""


@torch.no_grad()  # type: ignore[untyped-decorator]
def set_initial_weights(network: Network) -> None:
    """Sets the initial weights of a fresh network."""
    shape, size, half = network.shape, network.shape.head_dim, network.shape.head_dim // 2
    width = shape.hidden_size
    turns = shape.rope_theta ** (-torch.arange(half) / half)
    slow = (turns < 0.01).repeat(2)
    slow[half - 1] = slow[size - 1] = False
    embed = network.embed
    embed[:, :4] = 0.0
    embed[:, CONSTANT] = 0.8
    ids = load_tokenizer().ids
    for coordinate, lists in (
        (FIRST, [firsts for firsts, _ in grammar.NAMES.values()]),
        (SECOND, [seconds for _, seconds in grammar.NAMES.values()]),
        (VALUE, list(grammar.VALUES.values())),
    ):
        embed[[ids[word] for part in lists for word in part], coordinate] = 0.5
    for layer in network.layers:
        layer.o.weight.zero_()
        layer.down.weight.zero_()
    # Codes of what a head notes, orthogonal to the four coordinates: where it reads the word, and where
    # it writes it.
    read, before, near, copied = (_code(width, size) for _ in range(4))

    first = network.layers[0]
    _clear(first, 0, size)
    _at_distance(first, 0, size, turns, CONSTANT, 1.6, slice(0, 5), 1)
    _note(first, 0, size, read, before * 0.15)

    second = network.layers[1]
    _clear(second, 0, size)
    second.q.weight[:size][slow], second.k.weight[:size][slow] = read.T[slow], before.T[slow]
    _note(second, 0, size, copied, copied * 0.6)
    _clear(second, 1, size)
    _at_distance(second, 1, size, turns, FIRST, 2.0, slice(3, 6), 4)
    _at_distance(second, 1, size, turns, SECOND, 2.0, slice(3, 6), 4)
    _note(second, 1, size, read, near * 0.25)

    third = network.layers[2]
    _clear(third, 0, size)
    third.q.weight[:size][slow], third.k.weight[:size][slow] = near.T[slow] * 1.5, near.T[slow] * 1.5
    third.q.weight[half - 1, CONSTANT] = 4.0
    third.k.weight[half - 1, [FIRST, VALUE]] = 4.0
    _note(third, 0, size, copied, copied * 1.0)


def _code(width: int, size: int) -> torch.Tensor:
    """Returns orthonormal columns, blind to the four coordinates: (width, size)."""
    code = torch.zeros(width, size)
    code[4:] = torch.linalg.qr(torch.randn(width - 4, size))[0]
    return code


def _clear(layer: torch.nn.Module, head: int, size: int) -> None:
    rows = slice(head * size, (head + 1) * size)
    layer.q.weight[rows] = 0
    layer.k.weight[rows] = 0


def _at_distance(
    layer: torch.nn.Module,
    head: int,
    size: int,
    turns: torch.Tensor,
    key: int,
    strength: float,
    pairs: slice,
    distance: int,
) -> None:
    """Makes a head look at words with a coordinate, most of all at those at a distance, by which its queries are turned
    beforehand."""
    half, start = size // 2, head * size
    angles = turns[pairs] * distance
    low, high = (
        slice(start + pairs.start, start + pairs.stop),
        slice(start + half + pairs.start, start + half + pairs.stop),
    )
    layer.q.weight[low, CONSTANT], layer.q.weight[high, CONSTANT] = (
        strength * angles.cos(),
        -strength * angles.sin(),
    )
    layer.k.weight[low, key] = strength


def _note(layer: torch.nn.Module, head: int, size: int, read: torch.Tensor, write: torch.Tensor) -> None:
    rows = slice(head * size, (head + 1) * size)
    layer.v.weight[rows] = read.T
    layer.o.weight[:, rows] = write
