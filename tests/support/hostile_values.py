"""Values that nobody should pass and somebody will: drawn from a seed, the same ones for the same seed."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal as BigNumber
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from ragguard.records import (
    Decision,
    Dropped,
    Failure,
    Passage,
    RetrievalStep,
    Run,
    Score,
    SubStep,
    TraceContext,
)


class Uncopyable(Mapping[str, Any]):
    """A mapping that raises whatever is read of it."""

    def _refuse(self, *_: object) -> Any:
        raise RuntimeError("no")

    __getitem__ = __iter__ = __len__ = _refuse


class Unfriendly:
    """Raises whatever is done with it."""

    def _refuse(self, *_: object) -> Any:
        raise RuntimeError("refused")

    __str__ = __repr__ = __len__ = __iter__ = __bool__ = __float__ = __int__ = __index__ = _refuse
    __eq__ = __lt__ = __contains__ = __getitem__ = __fspath__ = __format__ = _refuse  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ValueError(f"refused {name}")


class Lazy(Mapping[Any, Any]):
    """A mapping whose values cannot be loaded."""

    def __iter__(self) -> Any:
        return iter(("text", "metadata", "id"))

    def __len__(self) -> int:
        return 3

    def __getitem__(self, key: object) -> Any:
        raise ConnectionError("gone")


class Unprintable:
    """An object that ends the program when it is read as a text."""

    def __str__(self) -> str:
        raise SystemExit("not today")

    __repr__ = __str__


class Growing(Mapping[Any, Any]):
    """A mapping that another thread changes while it is read."""

    def __iter__(self) -> Any:
        yield "text"
        raise RuntimeError("dictionary changed size during iteration")

    def __len__(self) -> int:
        return 1

    def __getitem__(self, key: object) -> Any:
        return "a"


class Document:
    """A document whose properties raise."""

    @property
    def page_content(self) -> str:
        raise OSError("no text")

    @property
    def metadata(self) -> dict[str, Any]:
        raise OSError("no metadata")


class Text(str):
    """A text with an opinion of its own on what it looks like."""

    def __str__(self) -> str:
        raise ValueError("no")


class Colour(Enum):
    RED = 1


@dataclass
class Point:
    x: object
    y: object


def a_cycle() -> dict[str, Any]:
    """A mapping that holds itself three times."""
    node: dict[str, Any] = {"title": "t"}
    node |= {"parent": node, "children": [node, node]}
    return node


def a_circle() -> list[Any]:
    """A list that holds itself."""
    items: list[Any] = ["a"]
    items.append(items)
    return items


TEXTS = (
    "", "a", "who founded it?", "x" * 5000, "nul \x00 inside", "half \ud800 a pair", "\udfff",
    "\x1b[31mred", "🎈" * 50,
    "ünï", "\n\n", "NaN", "1", "-1", "ok", "error", "full", "drop_oldest", "nano", "http://", "http://host:99999",
    "hf:",
    "vllm:", "/dev/null/x", "utility", "ndcg", "<script>", "%s %d {0} {x}", "[bold]", "' OR 1=1 --",
)  # fmt: skip
NUMBERS = (
    0, 1, -1, 2, 3, 5, 2**31, 2**63, -(2**63) - 1, 2**200, 10**5000, True, False, 0.0, -0.0, 0.5, 1.0, 1e308, -1e308,
    5e-324, math.nan, math.inf, -math.inf, BigNumber("1.5"), BigNumber("NaN"), 1j, np.int64(3), np.float32(0.5),
    np.float64("nan"), np.bool_(True), np.uint8(255),
)  # fmt: skip


class Values:
    """Draws values from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._kinds: tuple[Callable[[], Any], ...] = (
            lambda: self.random.choice(TEXTS), lambda: self.random.choice(TEXTS), self.number, self.number,
            self.list, self.mapping, self.array, self.array, self.record, self.strange, lambda: None,
        )  # fmt: skip
        self._depth = 0

    def any(self) -> Any:
        """A value of any kind."""
        self._depth += 1
        try:
            return None if self._depth > 4 else self.random.choice(self._kinds)()
        finally:
            self._depth -= 1

    def or_any(self, good: Callable[[], Any], share: float = 0.5) -> Any:
        """A value that is right, as often as `share` says, else one of any kind."""
        return good() if self.random.random() < share else self.any()

    def number(self) -> Any:
        """A number, if one of few."""
        return self.random.choice(NUMBERS)

    def list(self) -> Any:
        """A list, a tuple, a set, a generator of values."""
        items = [self.any() for _ in range(self.random.randrange(5))]
        kind = self.random.randrange(7)
        if kind == 0:
            return tuple(items)
        if kind == 1:
            return (item for item in items)
        if kind == 2:
            return deque(items)
        if kind == 3:
            return {repr(type(item)) for item in items}
        return items

    def mapping(self) -> Any:
        """A mapping with keys of several kinds."""
        keys: tuple[Any, ...] = (
            "text",
            "id",
            "score",
            "metadata",
            "a",
            1,
            None,
            ("t", 1),
            b"k",
            "page_content",
            "documents",
        )
        return {self.random.choice(keys): self.any() for _ in range(self.random.randrange(5))}

    def array(self) -> Any:
        """An array of any shape and type, or nested lists of numbers."""
        shape = tuple(self.random.randrange(4) for _ in range(self.random.randrange(4)))
        numbers = [
            self.random.choice((0.0, 0.3, 1.0, 2.0, -1.0, math.nan, math.inf, 5.0))
            for _ in range(math.prod(shape))
        ]
        array = np.array(numbers).reshape(shape)
        kind = self.random.randrange(9)
        if kind == 0:
            return array.tolist()
        if kind == 1:
            return array > 0.5
        if kind == 2:
            return array.astype(object)
        if kind == 3:
            return array.astype(str)
        if kind == 4:
            return np.nan_to_num(array).astype(int)
        if kind == 5:
            return array + 1j
        if kind == 6:
            return np.clip(np.nan_to_num(array), 0, 1)
        if kind == 7:
            return [[0.5], [0.1, 0.2]]
        return array

    def passage(self) -> Any:
        """A passage, or what could be taken for one."""
        kind = self.random.randrange(6)
        if kind == 0:
            return Passage(self.any(), self.any(), self.any(), self.any(), self.any())
        if kind == 1:
            return {"text": self.any(), "metadata": self.any(), "score": self.any(), "id": self.any()}
        if kind == 2:
            return SimpleNamespace(page_content=self.any(), metadata=self.any(), id=self.any())
        if kind == 3:
            return self.any()
        return Passage(self.random.choice(TEXTS), self.random.choice(TEXTS), 0.5, {"a": self.any()})

    def passages(self) -> Any:
        """Passages of all kinds."""
        return [self.passage() for _ in range(self.random.randrange(4))]

    def decision(self) -> Any:
        """A guard's decision with a field that is wrong."""
        passages = self.passages()
        return Decision(
            self.or_any(lambda: passages), [Dropped(self.passage(), self.any(), self.any(), self.any())], self.any(),
            self.any(), self.any(), self.any(), self.any(),
        )  # fmt: skip

    def step(self) -> Any:
        """A step made by hand, most of it wrong."""
        return RetrievalStep(
            id=self.any(), run_id=self.any(), index=self.any(), turn=self.any(), query=self.any(),
            passages=self.or_any(self.passages), candidates=self.or_any(self.passages), started_ns=self.any(),
            ended_ns=self.any(), status=self.any(), tool=self.any(),
            sub_steps=self.or_any(lambda: [SubStep(self.any(), self.passages(), self.any())]), error=self.any(),
            decision=self.or_any(self.decision), trace=self.or_any(lambda: TraceContext("1" * 32, "2" * 16)),
            metadata=self.any(),
        )  # fmt: skip

    def run(self) -> Any:
        """A run made by hand: nearly right, or hardly."""
        if self.random.random() < 0.5:
            fields = ("question", "references", "answer", "status", "metadata", "sub_questions", "pool", "name",
                      "started_ns", "ended_ns", "trace", "steps", "id")  # fmt: skip
            run = Run(question="who?", steps=[RetrievalStep(query="q", passages=[Passage("a")])])
            setattr(run, self.random.choice(fields), self.any())
            return run
        return Run(
            self.any(), self.any(), references=self.any(), answer=self.any(),
            steps=self.or_any(lambda: [self.step() for _ in range(self.random.randrange(3))]), status=self.any(),
            metadata=self.any(), sub_questions=self.any(), pool=self.any(), name=self.any(), started_ns=self.any(),
            ended_ns=self.any(), trace=self.any(),
        )  # fmt: skip

    def record(self) -> Any:
        """Returns a record of the package with hostile values in its fields."""
        kind = self.random.randrange(6)
        if kind == 0:
            return Passage(self.random.choice(TEXTS))
        if kind == 1:
            return Passage(self.any(), self.any(), self.any(), self.any())
        if kind == 2:
            return Run(question=self.random.choice(TEXTS))
        if kind == 3:
            return RetrievalStep(query=self.random.choice(TEXTS))
        if kind == 4:
            return Score(self.any(), self.any(), "run", "r")
        return Failure("s", "E", "m")

    def strange(self) -> Any:
        """Returns a value that raises or misbehaves when it is used."""
        return self.random.choice(
            (
                Unfriendly, a_cycle, a_circle, Lazy, Growing, Document, lambda: Text("a"), lambda: object(),
                lambda: Colour.RED, lambda: Point(1, a_cycle()), lambda: ValueError("x"), lambda: int, lambda: print,
                lambda: b"\xff\x00", lambda: Path("/nowhere/at/all"), lambda: datetime(2024, 1, 1, tzinfo=UTC),
                lambda: timedelta(seconds=-1), lambda: range(3), lambda: memoryview(b"a"),
                lambda: lambda *_: int("no number"),
                lambda: {"a": {"b": {"c": a_circle()}}}, lambda: Ellipsis, lambda: NotImplemented,
            )
        )()  # fmt: skip
