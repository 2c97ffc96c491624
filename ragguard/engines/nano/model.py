"""nano's network on NumPy alone: batched prefill with shared prefixes, and sampling over a key/value cache.

Scales of the norms and of attention are multiplied into the matrices when the weights are loaded. Prompts with a common
prefix (the same documents before other questions) share its keys and values, samples with a common prefix share their
state, and every chunk is small enough to stay in a core's cache. This file knows ids and arrays, no text.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file, files
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ragguard.engines.nano.blas import one_thread
from ragguard.runtime.per_process import PerProcess
from ragguard.runtime.threads import DaemonThreads

Floats: TypeAlias = NDArray[np.float32]
Ints: TypeAlias = NDArray[np.intp]
Tokens: TypeAlias = Sequence[int]

_CHUNK = 1024
"""Tokens computed at once, padding included."""
LEAST_SHARED = 8
"""The shortest prefix that is shared: shorter ones cost more to keep than to compute again."""


@dataclass(frozen=True, slots=True)
class Config:
    """The network's size, named as in a Hugging Face Llama configuration."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    head_dim: int
    intermediate_size: int
    rope_theta: float
    rms_norm_eps: float
    max_position_embeddings: int


@dataclass(frozen=True, slots=True)
class _TransformerLayer:
    qkv: Floats
    o: Floats
    gate_up: Floats
    down: Floats


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


class Model:
    """The network with its weights."""

    def __init__(self, config: Config, weights: dict[str, NDArray[np.float16]]) -> None:
        self.config = config
        w = {name: array.astype(np.float32) for name, array in weights.items()}
        self._embed = w["embed"]
        self._unembed = np.ascontiguousarray((w["embed"] * w["norm"]).T)
        self._layers = []
        for i in range(config.num_hidden_layers):
            scaled = w["q"][i] * np.float32(config.head_dim**-0.5)
            qkv = np.concatenate([scaled, w["k"][i], w["v"][i]]) * w["input_norm"][i]
            gate_up = np.concatenate([w["gate"][i], w["up"][i]]) * w["post_norm"][i]
            matrices = (np.ascontiguousarray(m.T) for m in (qkv, w["o"][i], gate_up, w["down"][i]))
            self._layers.append(_TransformerLayer(*matrices))
        half = config.head_dim // 2
        angles = np.arange(config.max_position_embeddings)[:, None] * config.rope_theta ** (
            -np.arange(half) / half
        )
        self._cos, self._sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)

    def next_logprobs(self, prompts: Sequence[Tokens]) -> Floats:
        """Returns (prompts, vocabulary): the log-probabilities of the next token of each prompt."""
        out = np.empty((len(prompts), self.config.vocab_size), np.float32)
        groups: dict[tuple[int, ...], list[int]] = {}
        for index, shared in enumerate(shared_lengths(prompts)):
            groups.setdefault(tuple(prompts[index][:shared]), []).append(index)
        self._finish(out, prompts, [(index, 0) for index in groups.pop((), [])], None)
        prefixes = sorted(groups, key=len)
        for chunk in _chunks([len(prefix) for prefix in prefixes]):
            held = [prefixes[i] for i in chunk]
            with one_thread():
                _, memory = self._run(held, None)
            members = [(index, row) for row, prefix in enumerate(held) for index in groups[prefix]]
            self._finish(out, prompts, members, memory)
        return out

    def _finish(
        self, out: Floats, prompts: Sequence[Tokens], members: list[tuple[int, int]], memory: Memory | None
    ) -> None:
        """Computes the tokens after the shared prefixes: `members` are prompts and their rows in `memory`."""
        done = memory.lengths if memory else np.zeros(1, np.intp)
        suffixes = [prompts[index][done[row] :] for index, row in members]

        def finish(chunk: list[int]) -> None:
            rows = np.array([members[i][1] for i in chunk])
            hidden, _ = self._run([suffixes[i] for i in chunk], memory.take(rows) if memory else None)
            out[[members[i][0] for i in chunk]] = self._logprobs(hidden)

        _spread(finish, _chunks([len(suffix) for suffix in suffixes]))

    def sample(
        self, prompts: Sequence[Tokens], draws: Sequence[NDArray[np.float64]], temperature: float, end: int
    ) -> list[list[tuple[list[int], list[float]]]]:
        """Returns for each prompt and each row of its `draws` (samples, tokens; uniform in [0, 1)) the ids and their
        log-probabilities.

        The end token is one of them where it was drawn. A common prefix of a prompt's samples is computed once.
        """
        drawn: list[list[tuple[list[int], list[float]]]] = [[([], []) for _ in rows] for rows in draws]
        _spread(
            lambda chunk: self._sample(chunk, [prompts[i] for i in chunk], draws, temperature, end, drawn),
            _chunks([len(prompt) for prompt in prompts]),
        )
        return drawn

    def _sample(
        self,
        chunk: list[int],
        prompts: list[Tokens],
        draws: Sequence[NDArray[np.float64]],
        temperature: float,
        end: int,
        drawn: list[list[tuple[list[int], list[float]]]],
    ) -> None:
        hidden, memory = self._run(prompts, None)
        logprobs = self._logprobs(hidden)
        # The unfinished samples as (prompt, sample, state). A state is a prompt and the tokens drawn after it.
        live = [(i, j, row) for row, i in enumerate(chunk) for j in range(len(draws[i]))]
        for step in range(draws[0].shape[1]):
            states: dict[tuple[int, int], int] = {}
            unfinished = []
            cumulated: dict[int, NDArray[np.float64]] = {}
            for i, j, state in live:
                if state not in cumulated:
                    cumulated[state] = _cumulated(logprobs[state], temperature)
                token = int(np.searchsorted(cumulated[state], draws[i][j, step], side="right"))
                drawn[i][j][0].append(token)
                drawn[i][j][1].append(float(logprobs[state, token]))
                if token != end:
                    unfinished.append((i, j, states.setdefault((state, token), len(states))))
            if not unfinished or step + 1 == draws[0].shape[1]:
                return
            live = unfinished
            memory = memory.take(np.array([state for state, _ in states]))
            hidden, memory = self._run([[token] for _, token in states], memory)
            logprobs = self._logprobs(hidden)

    def _run(self, rows: Sequence[Tokens], past: Memory | None) -> tuple[Floats, Memory]:
        """Returns the last hidden state of each row, and the keys and values of past and row together."""
        lengths = np.array([len(row) for row in rows], np.intp)
        count, longest = len(rows), int(lengths.max())
        ids = np.zeros((count, longest), np.intp)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = row
        before = past.lengths if past else np.zeros(count, np.intp)
        width = past.keys[0].shape[2] if past else 0
        positions = before[:, None] + np.arange(longest)
        cos, sin = self._cos[positions][:, :, None], self._sin[positions][:, :, None]
        hidden_keys = np.arange(width) >= before[:, None]
        future = np.triu(np.full((longest, longest), -np.inf, np.float32), 1)
        last = (np.arange(count), lengths - 1)
        heads, size = self.config.num_attention_heads, self.config.head_dim
        x = self._embed[ids]
        memory = Memory([], [], before + lengths)
        for layer in self._layers:
            final = layer is self._layers[-1]
            qkv = (_normed(x, self.config.rms_norm_eps) @ layer.qkv).reshape(count, longest, 3 * heads, size)
            turned = _rotated(qkv[:, :, : 2 * heads], cos, sin)
            queries, keys = turned[:, :, :heads], turned[:, :, heads:].transpose(0, 2, 1, 3)
            values = qkv[:, :, 2 * heads :].transpose(0, 2, 1, 3)
            if final:
                # Only the last token's state is needed: after keys and values, only that row is computed.
                queries, x = queries[last][:, None], x[last][:, None]
            queries = np.ascontiguousarray(queries.transpose(0, 2, 1, 3))
            if past:
                i = len(memory.keys)
                keys = np.concatenate([past.keys[i], keys], axis=2)
                values = np.concatenate([past.values[i], values], axis=2)
            scores = queries @ keys.swapaxes(-1, -2)
            if not final:
                scores[:, :, :, width:] += future
            else:
                own = np.arange(longest) >= lengths[:, None]
                np.copyto(scores[:, :, :, width:], -np.inf, where=own[:, None, None])
            if width:
                np.copyto(scores[:, :, :, :width], -np.inf, where=hidden_keys[:, None, None])
            scores -= scores.max(axis=-1, keepdims=True)
            np.exp(scores, out=scores)
            mixed = scores @ values
            mixed /= scores.sum(axis=-1, keepdims=True)
            memory.keys.append(keys)
            memory.values.append(values)
            mixed = mixed.transpose(0, 2, 1, 3).reshape(count, -1, heads * size)
            x = np.asarray(x + mixed @ layer.o, dtype=np.float32)
            wide = _normed(x, self.config.rms_norm_eps) @ layer.gate_up
            gate, up = wide[..., : self.config.intermediate_size], wide[..., self.config.intermediate_size :]
            up *= gate
            np.negative(gate, out=gate)
            np.exp(gate, out=gate)
            gate += 1.0
            up /= gate
            x += up @ layer.down
        # Where a past is shorter than the longest one, the new keys are moved to directly after it.
        if past:
            _close_gaps(memory, before, width, longest)
        return x[:, 0], memory

    def _logprobs(self, hidden: Floats) -> Floats:
        logits = _normed(hidden, self.config.rms_norm_eps) @ self._unembed
        logits -= logits.max(axis=-1, keepdims=True)
        logits -= np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        return np.asarray(logits, dtype=np.float32)


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


def _close_gaps(memory: Memory, before: Ints, width: int, longest: int) -> None:
    short = np.flatnonzero(before < width)
    for layers in (memory.keys, memory.values):
        for layer in layers:
            for row in short:
                layer[row, :, before[row] : before[row] + longest] = layer[row, :, width:].copy()


def _cumulated(logprobs: Floats, temperature: float) -> NDArray[np.float64]:
    """Returns the cumulated probabilities from which a token is drawn; temperature 0: a step at the most probable."""
    if temperature == 0.0:
        steps = np.zeros(len(logprobs))
        steps[int(logprobs.argmax()) :] = 1.0
    else:
        scaled = logprobs.astype(np.float64) / temperature
        steps = np.cumsum(np.exp(scaled - scaled.max()))
        steps /= steps[-1]
    steps[-1] = 1.0
    return steps


def _chunks(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yields the indices of rows, sorted by length, in chunks of bounded size."""
    chunk: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if chunk and lengths[i] * (len(chunk) + 1) > _CHUNK:
            yield chunk
            chunk = []
        chunk.append(i)
    if chunk:
        yield chunk


def _spread(work: Callable[[list[int]], None], chunks: Iterable[list[int]]) -> None:
    """Calls `work` with each chunk, in several threads where there are several chunks."""
    with one_thread():
        todo = list(chunks)
        if len(todo) == 1:
            work(todo[0])
        else:
            list(_threads.get().map(work, todo))


def _common(one: Tokens, other: Tokens) -> int:
    """Returns the length of the longest common prefix of two prompts that leaves the last id of each out."""
    longest = min(len(one), len(other)) - 1
    if one[:longest] == other[:longest]:
        return longest
    low, high = 0, longest
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle)
    return low


def shared_lengths(prompts: Sequence[Tokens]) -> list[int]:
    """Returns for each prompt the length of the prefix that it shares with a group of others; 0 where none is worth it.

    Prompts are sorted, and neighbours are added to a group as long as the group saves more with them.
    """
    order = sorted(range(len(prompts)), key=lambda i: tuple(prompts[i]))
    lengths = [0] * len(prompts)
    start = 0
    while start < len(order):
        length, size = len(prompts[order[start]]) - 1, 1
        while start + size < len(order):
            shorter = min(length, _common(prompts[order[start + size - 1]], prompts[order[start + size]]))
            if shorter < LEAST_SHARED or shorter * size <= length * (size - 1):
                break
            length, size = shorter, size + 1
        if size > 1:
            for i in order[start : start + size]:
                lengths[i] = length
        start += size
    return lengths


_threads = PerProcess(lambda: DaemonThreads(min(4, os.cpu_count() or 1), "nano"))


@cache
def load_model() -> Model:
    """Returns the network with the weights that ship with the package."""
    with as_file(files(__package__) / "weights.npz") as path, np.load(path) as arrays:
        config = Config(**json.loads(bytes(arrays["config"]).decode()))
        return Model(config, {name: arrays[name] for name in arrays.files if name != "config"})
