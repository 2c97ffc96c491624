"""Cache: asks no question twice. Memory first, then a file that processes may share.

An answer belongs to the model's fingerprint, one prompt and the parameters, never to a call; a
label's probability belongs to that one label, so that guard and scorers share it though they ask in
different company; only labels that may begin alike, and are then told apart by more than their first
token, are kept as they were asked. Equal questions that are under way are waited for, not asked again.
Samples drawn without a seed are meant to differ: they are never kept.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from ragguard.engines.base import (
    Engine,
    EngineInfo,
    LabelMode,
    LabelProbs,
    Prompt,
    PromptLike,
    Samples,
    as_labels,
    as_prompts,
    check_mode,
)
from ragguard.engines.deadline import until
from ragguard.engines.layers.kept import Drawn, Kept, Labelled
from ragguard.engines.layers.shelf import Shelf
from ragguard.errors import Closed, InvalidInput
from ragguard.records import Usage


class Cache:
    """Keeps answers in memory and, with a `path`, up to `max_stored` of them in a file.

    `max_items` is a number of label probabilities; samples weigh as much as they take. Memory needed:
    about half a kilobyte each, 25 MB with the default.
    """

    def __init__(
        self,
        engine: Engine,
        path: str | Path | None = None,
        max_items: int = 50_000,
        max_stored: int = 2_000_000,
    ) -> None:
        for name, value in (("max_items", max_items), ("max_stored", max_stored)):
            if value < 1:
                raise InvalidInput(name, value, "1 or more")
        self._engine = engine
        self._shelf = None if path is None else Shelf(Path(path), max_stored)
        self._labels = Kept(Labelled, max_items, self._shelf)
        self._draws = Kept(Drawn, max_items, self._shelf)
        self._closed = False

    async def sample(
        self,
        prompts: Sequence[PromptLike],
        n: int = 10,
        max_tokens: int = 64,
        temperature: float = 1.0,
        seed: int | None = None,
        *,
        deadline: float | None = None,
        priority: int = 0,
    ) -> Samples:
        """`n` answers to each prompt; kept only when they are drawn with a seed."""
        asked = self._begin(prompts)
        if seed is None or not asked:
            return await self._engine.sample(
                asked, n, max_tokens, temperature, seed, deadline=deadline, priority=priority
            )
        stem = f"{(await self._known(deadline)).fingerprint} sample {n} {max_tokens} {temperature!r} {seed}"
        keys = [_digest(stem, prompt).digest() for prompt in asked]
        prompt_of = dict(zip(keys, asked, strict=True))
        cost = _Cost()

        async def ask(missing: Sequence[bytes]) -> dict[bytes, Drawn]:
            some = [prompt_of[key] for key in missing]
            answer = await self._engine.sample(
                some, n, max_tokens, temperature, seed, deadline=deadline, priority=priority
            )
            cost.add(some, answer.usage)
            return {
                key: Drawn(tuple(row), answer.truncated.get(index, 0))
                for index, (key, row) in enumerate(zip(missing, answer.answers, strict=True))
            }

        found = await self._draws.get(keys, ask, deadline, priority)
        rows = [found[key] for key in keys]
        truncated = {index: row.cut for index, row in enumerate(rows) if row.cut}
        return Samples([list(row.samples) for row in rows], cost.of(asked), truncated)

    async def label_probs(
        self,
        prompts: Sequence[PromptLike],
        labels: Sequence[str],
        mode: LabelMode | None = None,
        deadline: float | None = None,
        priority: int = 0,
    ) -> LabelProbs:
        """The probability of each label as what follows each prompt; each label's is kept by itself."""
        asked = self._begin(prompts)
        labels = as_labels(labels)
        check_mode(mode)
        if not asked:
            return await self._engine.label_probs(asked, labels, mode, deadline, priority)
        info = await self._known(deadline)
        stem = f"{info.fingerprint} label_probs {mode or info.mode}"
        distinct = list(dict.fromkeys(asked))
        together = mode is None and info.mode == "first_token" and _may_begin_alike(labels)
        keys = _keys(stem, distinct, labels, together)
        asking = _Labels(self._engine, distinct, labels, together, keys, mode, deadline, priority)
        found = await self._labels.get(keys, asking.ask, deadline, priority)
        return _table(_rows(asked, distinct, keys, found), asking.cost.of(asked))

    async def info(self) -> EngineInfo:
        """What the wrapped engine is; a note where the cache's file was given up."""
        info = await self._engine.info()
        if self._shelf is not None and self._shelf.lost:
            note = f"the answer cache {self._shelf.path} was given up: answers are kept in memory only"
            info = replace(info, notes=(*info.notes, note))
        return info

    async def aclose(self) -> None:
        """Writes what is left, lets the file go and closes the wrapped engine."""
        if not self._closed:
            self._closed = True
            if self._shelf is not None:
                await self._shelf.close()
        await self._engine.aclose()

    async def _known(self, deadline: float | None) -> EngineInfo:
        """Whose answers these are. The first time, a server must be found for that."""
        async with until(deadline, "looking at the engine"):
            return await self._engine.info()

    def _begin(self, prompts: Sequence[PromptLike]) -> list[Prompt]:
        if self._closed:
            raise Closed("this engine was closed; connect again")
        return as_prompts(prompts)


class _Cost:
    """What one call cost: what was asked on its behalf; the rest of its prompts came from the cache."""

    def __init__(self) -> None:
        self._usage = Usage()
        self._asked: set[Prompt] = set()

    def add(self, prompts: Sequence[Prompt], usage: Usage) -> None:
        self._usage += usage
        self._asked.update(prompts)

    def of(self, prompts: Sequence[Prompt]) -> Usage:
        cached = len(prompts) - len(self._asked)
        return self._usage + Usage(prompts=cached, cached=cached)


@dataclass(slots=True)
class _Labels:
    """A call for labels on its way to the engine.

    An object and no closures, and the places of keys are numbers and no pairs: hundreds of calls may wait at
    once, and each object in them is work for the garbage collector, whose pauses make guards late.
    """

    engine: Engine
    prompts: Sequence[Prompt]
    labels: tuple[str, ...]
    together: bool
    """Whether a label's probability may hang on the others."""
    keys: Sequence[bytes]
    """Of the first prompt's labels, then the second's, and so on."""
    mode: LabelMode | None
    deadline: float | None
    priority: int
    cost: _Cost = field(default_factory=_Cost)

    async def ask(self, missing: Sequence[bytes]) -> dict[bytes, Labelled]:
        asking = [self._ask_alike(rows, columns) for columns, rows in self._alike(missing).items()]
        if len(asking) == 1:
            return await asking.pop()
        answers = await asyncio.gather(*asking)
        return {key: value for answer in answers for key, value in answer.items()}

    def _alike(self, missing: Sequence[bytes]) -> dict[tuple[int, ...], list[int]]:
        """Prompts that lack the same labels go in one call; as a rule, that is all of them."""
        lacking, width = frozenset(missing), len(self.labels)
        alike: dict[tuple[int, ...], list[int]] = {}
        for row in range(len(self.prompts)):
            columns = tuple([at for at in range(width) if self.keys[row * width + at] in lacking])
            if columns:
                alike.setdefault(tuple(range(width)) if self.together else columns, []).append(row)
        return alike

    async def _ask_alike(self, rows: Sequence[int], columns: Sequence[int]) -> dict[bytes, Labelled]:
        some = [self.prompts[row] for row in rows]
        labels = [self.labels[column] for column in columns]
        answer = await self.engine.label_probs(some, labels, self.mode, self.deadline, self.priority)
        self.cost.add(some, answer.usage)
        return self._labelled(answer, rows, columns)

    def _labelled(
        self, answer: LabelProbs, rows: Sequence[int], columns: Sequence[int]
    ) -> dict[bytes, Labelled]:
        return {
            self.keys[row * len(self.labels) + column]: Labelled.of(answer, at, label)
            for at, row in enumerate(rows)
            for label, column in enumerate(columns)
        }


def _digest(stem: str, prompt: Prompt) -> hashlib._Hash:
    """Of everything on which a prompt's answer depends. What may be cut belongs to it: it may be cut."""
    digest = hashlib.sha256(stem.encode())
    for message in prompt.messages:
        content = message.content.encode("utf-8", "surrogatepass")
        digest.update(f"\0{message.role} {len(content)} ".encode())
        digest.update(content)
    digest.update(repr([tuple(span) for span in prompt.cuttable]).encode())
    return digest


def _may_begin_alike(labels: Sequence[str]) -> bool:
    """Whether two labels may have one first token: only if they have one first byte."""
    return len({label.strip().encode("utf-8", "surrogatepass")[:1] for label in labels}) < len(labels)


def _keys(stem: str, prompts: Sequence[Prompt], labels: Sequence[str], together: bool) -> list[bytes]:
    """Of the first prompt's labels, then the second's, and so on."""
    company = sorted(labels) if together else ()
    named = ["\0".join((label, *company)) for label in labels]
    keys = []
    for prompt in prompts:
        digest = _digest(stem, prompt)
        keys += [_with(digest, name) for name in named]
    return keys


def _rows(
    asked: Sequence[Prompt],
    distinct: Sequence[Prompt],
    keys: Sequence[bytes],
    found: Mapping[bytes, Labelled],
) -> list[list[Labelled]]:
    """The values of each prompt that was asked, also of those that were asked twice."""
    values, width = [found[key] for key in keys], len(keys) // len(distinct)
    row_of = {prompt: values[at * width : (at + 1) * width] for at, prompt in enumerate(distinct)}
    return [row_of[prompt] for prompt in asked]


def _with(digest: hashlib._Hash, label: str) -> bytes:
    branch = digest.copy()
    branch.update(b"\0" + label.encode("utf-8", "surrogatepass"))
    return branch.digest()


def _table(rows: Sequence[Sequence[Labelled]], usage: Usage) -> LabelProbs:
    values = [value for row in rows for value in row]
    shape = (len(rows), len(rows[0]))
    bound = stderr = None
    if any(value.bound is not None for value in values):
        bound = np.array([bool(value.bound) for value in values]).reshape(shape)
    if any(value.stderr is not None for value in values):
        stderr = np.array([value.stderr or 0.0 for value in values]).reshape(shape)
    return LabelProbs(
        np.array([value.p for value in values], dtype=np.float64).reshape(shape),
        exact=all(value.exact for value in values),
        mode=values[0].mode,
        usage=usage,
        bound=bound,
        stderr=stderr,
        truncated={index: row[0].cut for index, row in enumerate(rows) if row[0].cut},
    )
