"""A Llama network on NumPy alone: prefill with shared prefixes, given texts, and sampling over a key/value cache.

Scales of the norms and of attention are multiplied into the matrices when the weights are loaded. Prompts with a common
prefix (the same documents before other questions) share its keys and values, samples with a common prefix share their
state, and every chunk is small enough to stay in a core's cache. This file knows ids and arrays, no text and no files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ragguard.engines.llama.blas import one_thread
from ragguard.engines.llama.prefixes import Tokens, chunks, shared_by_all, shared_lengths
from ragguard.runtime.per_process import PerProcess
from ragguard.runtime.threads import DaemonThreads

Floats: TypeAlias = NDArray[np.float32]
Ints: TypeAlias = NDArray[np.intp]

_WIDE = 256
"""The width from which a matrix product of one chunk is worth several threads."""


@dataclass(frozen=True, slots=True)
class Config:
    """The network's size, named as in a Hugging Face Llama configuration."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    rope_theta: float
    rms_norm_eps: float
    max_position_embeddings: int


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


def _always() -> None:
    """Lets a computation go on."""


class Network:
    """The network with its weights; without an output matrix of its own, the embedding is that, too.

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
        self.config = config
        self._embed = embed
        self._norm = norm
        self._output = (embed if output is None else output).T
        self._layers = []
        for w in layers:
            qkv = np.concatenate([w.q * np.float32(config.head_dim**-0.5), w.k, w.v]) * w.input_norm
            gate_up = np.concatenate([w.gate, w.up]) * w.post_norm
            matrices = (np.ascontiguousarray(m.T) for m in (qkv, w.o, gate_up, w.down))
            self._layers.append(_TransformerLayer(*matrices))
        half = config.head_dim // 2
        angles = np.arange(config.max_position_embeddings)[:, None] * config.rope_theta ** (
            -np.arange(half) / half
        )
        self._cos, self._sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)

    def next_logprobs(
        self,
        prompts: Sequence[Tokens],
        columns: Sequence[int] | None = None,
        still_wanted: Callable[[], None] = _always,
    ) -> Floats:
        """Returns (prompts, columns): the log-probabilities of these next tokens of each prompt, of all by default.

        `still_wanted` is called between two chunks, and raises where nobody waits for the result any more.
        """
        taken = slice(None) if columns is None else list(columns)
        width = self.config.vocab_size if columns is None else len(columns)
        out = np.empty((len(prompts), width), np.float32)

        def keep(indices: list[int], hidden: Floats) -> None:
            still_wanted()
            out[indices] = self._logprobs(hidden[:, -1])[:, taken]

        self._read(prompts, [1] * len(prompts), keep)
        return out

    def text_logprobs(
        self,
        prompts: Sequence[Tokens],
        texts: Sequence[Tokens],
        still_wanted: Callable[[], None] = _always,
    ) -> list[list[float]]:
        """Returns for each prompt the log-probabilities of the tokens of its text, which follows it."""
        out: list[list[float]] = [[] for _ in prompts]
        asked = [i for i, text in enumerate(texts) if len(text)]

        def keep(indices: list[int], hidden: Floats) -> None:
            still_wanted()
            for i, states in zip(indices, hidden, strict=True):
                text = texts[asked[i]]
                found = self._logprobs(states[-len(text) :])[np.arange(len(text)), list(text)]
                out[asked[i]] = found.astype(np.float64).tolist()

        rows = [[*prompts[i], *texts[i][:-1]] for i in asked]
        self._read(rows, [len(texts[i]) for i in asked], keep)
        return out

    def _read(
        self,
        rows: Sequence[Tokens],
        tails: Sequence[int],
        keep: Callable[[list[int], Floats], None],
    ) -> None:
        """Computes rows, prefixes that all or several share once, and hands on the states of chunks of rows, aligned at
        the end: of each row at least the last `tails` states are there."""
        head, memory = self._read_head(rows, tails)
        rest = [row[head:] for row in rows]
        groups: dict[tuple[int, ...], list[int]] = {}
        for index, shared in enumerate(shared_lengths(rest, tails)):
            groups.setdefault(tuple(rest[index][:shared]), []).append(index)
        self._finish(rows, tails, [(index, 0) for index in groups.pop((), [])], memory, keep)
        prefixes = sorted(groups, key=len)
        for chunk in chunks([len(prefix) for prefix in prefixes]):
            held = [prefixes[i] for i in chunk]
            with self._threads_for_one_chunk():
                _, read = self._run(held, memory.take(np.zeros(len(held), np.intp)) if memory else None)
            members = [(index, row) for row, prefix in enumerate(held) for index in groups[prefix]]
            self._finish(rows, tails, members, read, keep)

    def _read_head(self, rows: Sequence[Tokens], tails: Sequence[int]) -> tuple[int, Memory | None]:
        """Computes the prefix that all rows share, such as a system message; returns its length, 0 where it is not
        worth it."""
        head = shared_by_all(rows, tails)
        if not head:
            return 0, None
        with self._threads_for_one_chunk():
            return head, self._run([rows[0][:head]], None)[1]

    def _finish(
        self,
        rows: Sequence[Tokens],
        tails: Sequence[int],
        members: list[tuple[int, int]],
        memory: Memory | None,
        keep: Callable[[list[int], Floats], None],
    ) -> None:
        """Computes the tokens after the shared prefixes: `members` are rows and their places in `memory`."""
        done = memory.lengths if memory else np.zeros(1, np.intp)
        suffixes = [rows[index][done[place] :] for index, place in members]

        def finish(chunk: list[int]) -> None:
            places = np.array([members[i][1] for i in chunk])
            indices = [members[i][0] for i in chunk]
            hidden, _ = self._run(
                [suffixes[i] for i in chunk],
                memory.take(places) if memory else None,
                max(tails[index] for index in indices),
            )
            keep(indices, hidden)

        self._spread(finish, chunks([len(suffix) for suffix in suffixes]))

    def _spread(self, work: Callable[[list[int]], None], chunks: Iterable[list[int]]) -> None:
        """Calls `work` with each chunk, in several threads where there are several chunks."""
        todo = list(chunks)
        if len(todo) > 1:
            with one_thread():
                list(_threads.get().map(work, todo))
        elif todo:
            with self._threads_for_one_chunk():
                work(todo[0])

    def _threads_for_one_chunk(self) -> AbstractContextManager[None]:
        """Lets one chunk's matrix products take all cores where they are large, and one where they are small."""
        return nullcontext() if self.config.hidden_size >= _WIDE else one_thread()

    def sample(
        self,
        prompts: Sequence[Tokens],
        draws: Sequence[NDArray[np.float64]],
        temperature: float,
        ends: Container[int],
        still_wanted: Callable[[], None] = _always,
    ) -> list[list[tuple[list[int], list[float]]]]:
        """Returns for each prompt and each row of its `draws` (samples, tokens; uniform in [0, 1)) the ids and their
        log-probabilities.

        An answer ends with the first of the `ends` that is drawn, which is one of the ids. A common prefix of a
        prompt's samples is computed once.
        """
        drawn: list[list[tuple[list[int], list[float]]]] = [[([], []) for _ in rows] for rows in draws]
        self._spread(
            lambda chunk: self._sample(
                chunk, [prompts[i] for i in chunk], draws, temperature, ends, drawn, still_wanted
            ),
            chunks([len(prompt) for prompt in prompts]),
        )
        return drawn

    def _sample(
        self,
        chunk: list[int],
        prompts: list[Tokens],
        draws: Sequence[NDArray[np.float64]],
        temperature: float,
        ends: Container[int],
        drawn: list[list[tuple[list[int], list[float]]]],
        still_wanted: Callable[[], None],
    ) -> None:
        hidden, memory = self._run(prompts, None)
        logprobs = self._logprobs(hidden[:, -1])
        # The unfinished samples as (prompt, sample, state). A state is a prompt and the tokens drawn after it.
        live = [(i, j, row) for row, i in enumerate(chunk) for j in range(len(draws[i]))]
        for step in range(draws[0].shape[1]):
            still_wanted()
            states: dict[tuple[int, int], int] = {}
            unfinished = []
            cumulated: dict[int, NDArray[np.float64]] = {}
            for i, j, state in live:
                if state not in cumulated:
                    cumulated[state] = _cumulated(logprobs[state], temperature)
                token = int(np.searchsorted(cumulated[state], draws[i][j, step], side="right"))
                drawn[i][j][0].append(token)
                drawn[i][j][1].append(float(logprobs[state, token]))
                if token not in ends:
                    unfinished.append((i, j, states.setdefault((state, token), len(states))))
            if not unfinished or step + 1 == draws[0].shape[1]:
                return
            live = unfinished
            memory = memory.take(np.array([state for state, _ in states]))
            hidden, memory = self._run([[token] for _, token in states], memory)
            logprobs = self._logprobs(hidden[:, -1])

    def _run(self, rows: Sequence[Tokens], past: Memory | None, tail: int = 1) -> tuple[Floats, Memory]:
        """Returns the last `tail` states of each row, fewer where it is shorter (the first are then those of its first
        token again), and the keys and values of past and row together."""
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
        tail = min(tail, longest)
        ends = np.maximum(lengths[:, None] - np.arange(tail, 0, -1), 0)
        last = (np.arange(count)[:, None], ends)
        heads, shared, size = (
            self.config.num_attention_heads,
            self.config.num_key_value_heads,
            self.config.head_dim,
        )
        x = self._embed[ids]
        memory = Memory([], [], before + lengths)
        for layer in self._layers:
            final = layer is self._layers[-1]
            qkv = (_normed(x, self.config.rms_norm_eps) @ layer.qkv).reshape(
                count, longest, heads + 2 * shared, size
            )
            turned = _rotated(qkv[:, :, : heads + shared], cos, sin)
            queries, keys = turned[:, :, :heads], turned[:, :, heads:].transpose(0, 2, 1, 3)
            values = qkv[:, :, heads + shared :].transpose(0, 2, 1, 3)
            if final:
                # Only the last states are needed: after keys and values, only those are computed.
                queries, x = queries[last], x[last]
            asked = queries.shape[1]
            # The queries of the heads that share keys and values stand side by side.
            queries = np.ascontiguousarray(queries.transpose(0, 2, 1, 3)).reshape(count, shared, -1, size)
            if past:
                i = len(memory.keys)
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
            scores -= scores.max(axis=-1, keepdims=True)
            np.exp(scores, out=scores)
            mixed = scores.reshape(count, shared, -1, scores.shape[-1]) @ values
            mixed = mixed.reshape(count, heads, asked, size)
            mixed /= scores.sum(axis=-1).reshape(count, heads, asked, 1)
            memory.keys.append(keys)
            memory.values.append(values)
            mixed = mixed.transpose(0, 2, 1, 3).reshape(count, asked, heads * size)
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
        return x, memory

    def _logprobs(self, hidden: Floats) -> Floats:
        logits = (_normed(hidden, self.config.rms_norm_eps) * self._norm) @ self._output
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


_threads = PerProcess(lambda: DaemonThreads(min(4, os.cpu_count() or 1), "ragguard-llama"))
