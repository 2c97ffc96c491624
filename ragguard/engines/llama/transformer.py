"""A transformer of Llama's or Gemma 3's architecture with NumPy only: rows of token ids in, states and
log-probabilities out, over a key/value memory.

Scales of the norms and of attention are multiplied into the matrices when the weights are loaded. This file knows ids
and arrays, no text and no files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float32]
Ints: TypeAlias = NDArray[np.intp]
Tokens: TypeAlias = Sequence[int]


@dataclass(frozen=True, slots=True)
class Config:
    """The network's size, named as in a Hugging Face Llama configuration; and how Gemma 3 differs from Llama."""

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    rope_theta: float
    rms_norm_eps: float
    max_position_embeddings: int
    embedding_scale: float = 1.0
    gelu: bool = False
    """True if the gate's activation is GELU (by tanh) in place of SiLU."""
    window: int = 0
    """How many tokens a local layer looks back, its own included; 0: all layers are global."""
    local_rope_theta: float = 0.0
    """The base of rotary positions in local layers."""
    global_every: int = 1
    """Every layer whose number, from 1, this divides is global."""

    def is_local(self, layer: int) -> bool:
        """Returns whether a layer looks back over its window alone."""
        return self.window > 0 and (layer + 1) % self.global_every > 0


class LayerWeights(NamedTuple):
    """The weights of one layer as float32, named as in a Hugging Face Llama checkpoint; matrices are (out, in)."""

    q: Floats
    k: Floats
    v: Floats
    o: Floats
    gate: Floats
    up: Floats
    down: Floats
    input_norm: Floats
    post_norm: Floats
    q_norm: Floats | None = None
    k_norm: Floats | None = None
    """The scales of the norms of each head's queries and keys, if there are such norms."""
    attention_norm: Floats | None = None
    mlp_norm: Floats | None = None
    """The scales of the norms of what attention and the MLP give, if there are such norms."""


@dataclass(slots=True)
class Memory:
    """Keys and values: layers × (rows, heads, tokens, head size); of each row the first `lengths` tokens count."""

    keys: list[Floats]
    values: list[Floats]
    lengths: Ints

    def take(self, rows: Ints) -> Memory:
        longest = int(self.lengths[rows].max())
        keys = [layer[rows, :, :longest] for layer in self.keys]
        values = [layer[rows, :, :longest] for layer in self.values]
        return Memory(keys, values, self.lengths[rows])


class Transformer:
    """The layers with their weights; without an output matrix of its own, the embedding is that, too.

    `layers` may be a generator: only one layer's weights are held beside what is made of them.
    """

    def __init__(
        self,
        config: Config,
        embed: Floats,
        norm: Floats,
        layers: Iterable[LayerWeights],
        output: Floats | None = None,
    ) -> None:
        self.config, self.vocabulary = config, len(embed)
        self._embed = embed
        self._norm = norm
        self._output = (embed if output is None else output).T
        self._layers: list[list[Floats]] = []
        """The matrices of each layer: queries, keys and values; output; gate and up; down."""
        self._norms: list[_Norms] = []
        scale = np.float32(config.head_dim**-0.5)
        for w in layers:
            qkv = np.concatenate([w.q if w.q_norm is not None else w.q * scale, w.k, w.v]) * w.input_norm
            gate_up = np.concatenate([w.gate, w.up]) * w.post_norm
            self._layers.append([np.ascontiguousarray(m.T) for m in (qkv, w.o, gate_up, w.down)])
            heads = None
            if w.q_norm is not None and w.k_norm is not None:
                counts = [config.num_attention_heads, config.num_key_value_heads]
                heads = np.repeat(np.stack([w.q_norm * scale, w.k_norm]), counts, axis=0)
            self._norms.append(_Norms(heads, w.attention_norm, w.mlp_norm))
        self._turns = {False: _turns(config, config.rope_theta)}
        """The cosines and sines of positions: of global layers, and of local ones under True."""
        if config.window:
            self._turns[True] = _turns(config, config.local_rope_theta)

    def run(self, rows: Sequence[Tokens], past: Memory | None, tail: int = 1) -> tuple[Floats, Memory]:
        """Returns the last `tail` states of each row, fewer where it is shorter (the first are then those of its first
        token again), and the keys and values of past and row together."""
        lengths = np.array([len(row) for row in rows], np.intp)
        count, longest = len(rows), int(lengths.max())
        ids = np.zeros((count, longest), np.intp)
        for index, row in enumerate(rows):
            ids[index, : len(row)] = row
        before = past.lengths if past else np.zeros(count, np.intp)
        width = past.keys[0].shape[2] if past else 0
        positions = before[:, None] + np.arange(longest)
        turns = {
            local: (cos[positions][:, :, None], sin[positions][:, :, None])
            for local, (cos, sin) in self._turns.items()
        }
        hidden_keys = np.arange(width) >= before[:, None]
        future = np.triu(np.full((longest, longest), -np.inf, np.float32), 1)
        tail = min(tail, longest)
        ends = np.maximum(lengths[:, None] - np.arange(tail, 0, -1), 0)
        last = (np.arange(count)[:, None], ends)
        config = self.config
        heads, shared, size = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        # Of the keys that a local layer does not see any more, only rows longer than the window have some.
        narrow = config.window and int((before + lengths).max()) > config.window
        x = self._embed[ids]
        if config.embedding_scale != 1.0:
            x *= np.float32(config.embedding_scale)
        memory = Memory([], [], before + lengths)
        for i, (to_qkv, to_output, to_gate_up, down) in enumerate(self._layers):
            final, local, norms = i + 1 == len(self._layers), config.is_local(i), self._norms[i]
            qkv = (_normed(x, config.rms_norm_eps) @ to_qkv).reshape(count, longest, -1, size)
            turned = qkv[:, :, : heads + shared]
            if norms.heads is not None:
                turned = _normed(turned, config.rms_norm_eps) * norms.heads
            turned = _rotated(turned, *turns[local])
            queries, keys = turned[:, :, :heads], turned[:, :, heads:].transpose(0, 2, 1, 3)
            values = qkv[:, :, heads + shared :].transpose(0, 2, 1, 3)
            if final:
                # Only the last states are needed: after keys and values, only those are computed.
                queries, x = queries[last], x[last]
            asked = queries.shape[1]
            # The queries of the heads that share keys and values stand side by side.
            queries = np.ascontiguousarray(queries.transpose(0, 2, 1, 3)).reshape(count, shared, -1, size)
            if past:
                keys = np.concatenate([past.keys[i], keys], axis=2)
                values = np.concatenate([past.values[i], values], axis=2)
            scores = (queries @ keys.swapaxes(-1, -2)).reshape(count, shared, heads // shared, asked, -1)
            if final:
                own = np.arange(longest) > ends[:, :, None]
                np.copyto(scores[..., width:], -np.inf, where=own[:, None, None])
            else:
                scores[..., width:] += future
            if width:
                np.copyto(scores[..., :width], -np.inf, where=hidden_keys[:, None, None, None])
            if local and narrow:
                here = before[:, None] + (ends if final else np.arange(longest)[None])
                there = np.concatenate([np.broadcast_to(np.arange(width), (count, width)), positions], axis=1)
                gone = here[:, :, None] - there[:, None] >= config.window
                np.copyto(scores, -np.inf, where=gone[:, None, None])
            scores -= scores.max(axis=-1, keepdims=True)
            np.exp(scores, out=scores)
            mixed = scores.reshape(count, shared, -1, scores.shape[-1]) @ values
            mixed = mixed.reshape(count, heads, asked, size)
            mixed /= scores.sum(axis=-1).reshape(count, heads, asked, 1)
            memory.keys.append(keys)
            memory.values.append(values)
            mixed = mixed.transpose(0, 2, 1, 3).reshape(count, asked, heads * size)
            x = np.asarray(x + _scaled(mixed @ to_output, norms.attention, config), dtype=np.float32)
            wide = _normed(x, config.rms_norm_eps) @ to_gate_up
            gate, up = wide[..., : config.intermediate_size], wide[..., config.intermediate_size :]
            up *= gate
            if config.gelu:  # by tanh, of which a logistic of twice the value is the half above zero
                gate *= _GELU * (1 + 0.044715 * gate * gate)
            np.negative(gate, out=gate)
            np.minimum(gate, _MOST_EXPONENT, out=gate)
            np.exp(gate, out=gate)
            gate += 1.0
            up /= gate
            x += _scaled(up @ down, norms.mlp, config)
        # Where a past is shorter than the longest one, the new keys are moved to directly after it.
        for short in np.flatnonzero(before < width):
            for layer in (*memory.keys, *memory.values):
                layer[short, :, before[short] : before[short] + longest] = layer[short, :, width:].copy()
        return x, memory

    def logprobs(self, hidden: Floats) -> Floats:
        """Returns the log-probabilities of all tokens behind each state."""
        logits = (_normed(hidden, self.config.rms_norm_eps) * self._norm) @ self._output
        logits -= logits.max(axis=-1, keepdims=True)
        logits -= np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        return np.asarray(logits, dtype=np.float32)


class _Norms(NamedTuple):
    """The scales of the norms of one layer that are not multiplied into its matrices; None for one that it lacks."""

    heads: Floats | None
    """The scales of the queries and keys of each head: (heads, head size)."""
    attention: Floats | None
    mlp: Floats | None


_MOST_EXPONENT = np.float32(80)
"""An exponent over which float32 overflows soon, and a logistic is 0 all the same."""
_GELU = np.float32(2 * np.sqrt(2 / np.pi))


def _turns(config: Config, theta: float) -> tuple[Floats, Floats]:
    """Returns the cosines and sines of all positions, (positions, half of a head)."""
    half = config.head_dim // 2
    angles = np.arange(config.max_position_embeddings)[:, None] * theta ** (-np.arange(half) / half)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def _scaled(x: NDArray[Any], norm: Floats | None, config: Config) -> NDArray[Any]:
    """Returns what a part of a layer adds to the states, normed if the layer has a norm for it."""
    return x if norm is None else np.asarray(_normed(x, config.rms_norm_eps) * norm)


def _normed(x: Floats, eps: float) -> Floats:
    """Applies RMSNorm without its scale."""
    squares = np.einsum("...i,...i->...", x, x)[..., None]
    scale = 1.0 / np.sqrt(squares / np.float32(x.shape[-1]) + np.float32(eps))
    return np.asarray(x * scale, dtype=np.float32)


def _rotated(x: Floats, cos: Floats, sin: Floats) -> Floats:
    half = x.shape[-1] // 2
    out = np.empty_like(x)
    one, two = x[..., :half], x[..., half:]
    out[..., :half] = one * cos - two * sin
    out[..., half:] = two * cos + one * sin
    return out
