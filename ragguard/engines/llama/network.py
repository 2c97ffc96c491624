"""A Llama or Gemma network on NumPy as a model over token ids: prefill with shared prefixes, given texts, and sampling.

Prompts with a common prefix (the same documents before other questions) share its keys and values, samples with a
common prefix share their state, and every chunk is small enough to stay in a core's cache.

OpenBLAS splits every small product over all cores and spins where a core is busy with something else: on a machine with
other work one batch took 43 s instead of 0.3 s. So whole chunks are spread over threads of our own instead, and two
networks take turns. Where NumPy is built on another library nothing is done. A process that is forked while a network
computes keeps one thread.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ragguard.engines.llama.transformer import Floats, Memory, Tokens, Transformer
from ragguard.engines.local.local_engine import Drawn, Rows, StillWanted, uniform
from ragguard.engines.requests import DrawRequest, PromptRequest
from ragguard.engines.token_model import Ids
from ragguard.runtime.per_process import PerProcess
from ragguard.runtime.threads import DaemonThreads

_WIDE = 1024
"""The width from which a matrix product of one chunk is worth several threads. In smaller ones, as of smol, threads
mostly wait for each other: on a busy machine a question of `ragguard try` cost 65 s of two cores, not 10 s of one."""
_NUMBERS = 2**23
"""The log-probabilities of all tokens that are held at once: 32 MB."""
_CHUNK = 1024
"""Tokens computed at once, padding included."""
_PADDING = 16
"""The padding, in tokens, that a chunk may have however short it is: another pass over the weights costs about as much
as half of it."""
LEAST_SHARED = 8
"""The shortest prefix that is shared: shorter ones cost more to keep than to compute again."""


class Network:
    """A transformer as a `ComputingModel`; `ends` are the tokens that end an answer."""

    def __init__(self, transformer: Transformer, ends: Set[int]) -> None:
        self.config, self._transformer, self._ends = transformer.config, transformer, ends

    def logprobs(
        self, rows: Rows, texts: Rows, then: Ids, request: PromptRequest, still_wanted: StillWanted
    ) -> list[list[float]]:
        """Returns for each row the log-probabilities of the tokens of its text, which follows it and may be empty, and
        behind them those of each token of `then` as the next one."""
        out: list[list[float]] = [[] for _ in rows]
        last = 1 if then else 0
        tails = [len(text) + last for text in texts]
        whole = [
            [*row, *text][: len(row) - 1 + tail] for row, text, tail in zip(rows, texts, tails, strict=True)
        ]

        def keep(indices: list[int], hidden: Floats) -> None:
            states = np.concatenate([own[-tails[i] :] for own, i in zip(hidden, indices, strict=True)])
            places = [(i, at) for i in indices for at in range(tails[i])]
            size = max(1, _NUMBERS // self._transformer.vocabulary)
            for start in range(0, len(places), size):
                still_wanted()
                logprobs = self._transformer.logprobs(states[start : start + size])
                for (i, at), own in zip(places[start : start + size], logprobs, strict=True):
                    text = texts[i]
                    out[i] += [float(own[text[at]])] if at < len(text) else own[list(then)].tolist()

        self._read(whole, tails, keep)
        return out

    def draw(self, rows: Rows, request: DrawRequest, still_wanted: StillWanted) -> list[list[Drawn]]:
        """Returns `n` answers to each row; with a seed, by the seed and the row alone.

        A common prefix of a row's samples is computed once.
        """
        draws = [uniform(row, request) for row in rows]
        drawn = [[Drawn([], [], False) for _ in range(request.n)] for _ in rows]

        def sample(chunk: list[int]) -> None:
            hidden, memory = self._transformer.run([rows[i] for i in chunk], None)
            # The unfinished samples as (prompt, sample, state). A state is a prompt and the tokens drawn after it.
            live = [(i, j, row) for row, i in enumerate(chunk) for j in range(request.n)]
            for step in range(request.max_tokens):
                still_wanted()
                logprobs = self._transformer.logprobs(hidden[:, -1])
                cumulated: dict[int, NDArray[np.float64]] = {}
                states: dict[tuple[int, int], int] = {}
                unfinished = []
                for i, j, state in live:
                    if state not in cumulated:
                        cumulated[state] = _cumulated(logprobs[state], request.temperature)
                    token = int(np.searchsorted(cumulated[state], draws[i][j, step], side="right"))
                    answer = drawn[i][j]
                    answer.ids.append(token)
                    answer.logprobs.append(float(logprobs[state, token]))
                    if token in self._ends:
                        drawn[i][j] = answer._replace(ended=True)
                    else:
                        unfinished.append((i, j, states.setdefault((state, token), len(states))))
                if not unfinished or step + 1 == request.max_tokens:
                    return
                live = unfinished
                memory = memory.take(np.array([state for state, _ in states]))
                hidden, memory = self._transformer.run([[token] for _, token in states], memory)

        self._spread(sample, chunks([len(row) for row in rows]))
        return drawn

    def _read(self, rows: Rows, tails: Sequence[int], keep: Callable[[list[int], Floats], None]) -> None:
        """Computes rows, prefixes that all or several share once, and hands on the states of chunks of rows, aligned at
        the end: of each row at least the last `tails` states are there."""
        memory = None
        if head := shared_by_all(rows, tails):  # such as a system message
            memory = self._remembered([rows[0][:head]], None)
        rest = [row[head:] for row in rows]
        groups: dict[tuple[int, ...], list[int]] = {}
        for index, shared in enumerate(shared_lengths(rest, tails)):
            groups.setdefault(tuple(rest[index][:shared]), []).append(index)
        self._finish(rows, tails, [(index, 0) for index in groups.pop((), [])], memory, keep)
        prefixes = sorted(groups, key=len)
        for chunk in chunks([len(prefix) for prefix in prefixes]):
            held = [prefixes[i] for i in chunk]
            read = self._remembered(held, memory.take(np.zeros(len(held), np.intp)) if memory else None)
            members = [(index, row) for row, prefix in enumerate(held) for index in groups[prefix]]
            self._finish(rows, tails, members, read, keep)

    def _remembered(self, rows: Sequence[Tokens], memory: Memory | None) -> Memory:
        """Returns the keys and values of what is remembered and of rows behind it, computed as one chunk."""
        found: list[Memory] = []
        self._spread(lambda _: found.append(self._transformer.run(rows, memory)[1]), [[]])
        return found[0]

    def _finish(
        self,
        rows: Rows,
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
            hidden, _ = self._transformer.run(
                [suffixes[i] for i in chunk],
                memory.take(places) if memory else None,
                max(tails[index] for index in indices),
            )
            keep(indices, hidden)

        self._spread(finish, chunks([len(suffix) for suffix in suffixes]))

    def _spread(self, work: Callable[[list[int]], None], chunks: Iterable[list[int]]) -> None:
        """Calls `work` with each chunk, in several threads where there are several chunks. Large products of a single
        chunk may take all cores."""
        todo = list(chunks)
        alone = len(todo) == 1 and self.config.hidden_size >= _WIDE
        with nullcontext() if alone else one_thread():
            list(_threads.get().map(work, todo) if len(todo) > 1 else map(work, todo))


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


def chunks(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yields the indices of rows, sorted by length, in chunks of bounded size and padding."""
    chunk: list[int] = []
    tokens = 0
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        tokens += lengths[i]
        padded = lengths[i] * (len(chunk) + 1)
        if chunk and (padded > _CHUNK or padded - tokens > max(_PADDING, tokens // 8)):
            yield chunk
            chunk, tokens = [], lengths[i]
        chunk.append(i)
    if chunk:
        yield chunk


def _common(one: Tokens, other: Tokens) -> int:
    """Returns the length of the longest common prefix of two prompts that leaves the last id of each out."""
    longest = min(len(one), len(other)) - 1
    return next((at for at in range(longest) if one[at] != other[at]), longest)


def shared_by_all(prompts: Sequence[Tokens], tails: Sequence[int]) -> int:
    """Returns the length of the prefix that all prompts share without their last `tails` tokens; 0 where it is not
    worth it. The first and the last in order differ the soonest."""
    if len(prompts) < 2:
        return 0
    first, last = min(map(tuple, prompts)), max(map(tuple, prompts))
    own = min(len(prompt) - tail for prompt, tail in zip(prompts, tails, strict=True))
    shared = min(_common(first, last), own)
    return shared if shared >= LEAST_SHARED else 0


def shared_lengths(prompts: Sequence[Tokens], tails: Sequence[int]) -> list[int]:
    """Returns for each prompt the length of the prefix that it shares with a group of others; 0 where none is worth it.

    Prompts are sorted, and neighbours are added to a group as long as the group saves more with them. The last `tails`
    tokens of each prompt are never part of a shared prefix.
    """
    order = sorted(range(len(prompts)), key=lambda i: tuple(prompts[i]))
    lengths = [0] * len(prompts)
    start = 0
    while start < len(order):
        length, size = len(prompts[order[start]]) - tails[order[start]], 1
        while start + size < len(order):
            other = order[start + size]
            shorter = min(length, _common(prompts[order[start + size - 1]], prompts[other]))
            shorter = min(shorter, len(prompts[other]) - tails[other])
            if shorter < LEAST_SHARED or shorter * size <= length * (size - 1):
                break
            length, size = shorter, size + 1
        if size > 1:
            for i in order[start : start + size]:
                lengths[i] = length
        start += size
    return lengths


_blas = PerProcess(threading.Lock)


@contextmanager
def one_thread() -> Iterator[None]:
    """Makes each matrix product of the process use one thread while the block runs; one block at a time."""
    controls = _controls()
    if controls is None:
        yield
        return
    get, put = controls
    with _blas.get():
        before = get()
        put(1)
        try:
            yield
        finally:
            put(before)


@cache
def _controls() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """Returns the functions that get and set the number of threads of NumPy's OpenBLAS, as its wheels bring it; None
    where there is none."""
    home = Path(np.__file__).parent
    for path in (*home.parent.glob("numpy.libs/*openblas*"), *home.glob(".dylibs/*openblas*")):
        try:
            library = ctypes.CDLL(str(path))
            get, put = (library[f"scipy_openblas_{verb}_num_threads64_"] for verb in ("get", "set"))
        except (OSError, AttributeError):
            continue
        get.restype, put.argtypes, put.restype = ctypes.c_int, [ctypes.c_int], None
        return get, put
    return None


_threads = PerProcess(lambda: DaemonThreads(min(4, os.cpu_count() or 1), "ragguard-llama"))
