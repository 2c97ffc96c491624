"""Counts calls that were not taken as retrievals, so that a warning about a run without a retrieval can name them."""

from __future__ import annotations

import threading
from collections import Counter

from ragguard.runtime.faults import NOTICES

TOOL = "tool"
"""The kind of a call that an agent's model asked for; only such a call can be declared as a retrieval."""
_MOST_NAMES = 50
_NOT_INSIDE = (
    ". A LangChain stream begins with its first read: read it inside the run, or have it continue the run "
    "(ragguard_resume), which then gets its retrievals. A plain thread or pool of threads does not know the run: "
    "submit contextvars.copy_context().run, use asyncio.to_thread, or note the retrieval there with run.retrieved(...)"
)
_ATTACH = (
    'attach the RagGuard: LangChain with config={"callbacks": [RagGuardCallback(rg)]} or instrument(rg), '
    "LlamaIndex with instrument(rg)"
)
_MOST_WARNINGS = 3
_MOST_RUNS = 256
_NAMES_SHOWN = 8


class CallsSeen:
    """Counts calls by kind and name; of more than 50 names, the further ones count as one."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()

    def add(self, kind: str, name: str) -> None:
        """Counts a call."""
        key = (kind, name)
        if key not in self.counts and len(self.counts) >= _MOST_NAMES:
            key = (kind, "")
        self.counts[key] += 1

    def tools(self) -> list[str]:
        """The names of the tools that were called."""
        return [name for kind, name in self.counts if kind == TOOL and name]

    def __str__(self) -> str:
        kinds: dict[str, list[str]] = {}
        for (kind, name), count in self.counts.items():
            times = f" ({count} times)" if count > 1 else ""
            kinds.setdefault(kind, []).append(f"{name!r}{times}" if name else f"others{times}")
        parts = []
        for kind, names in sorted(kinds.items(), key=lambda item: item[0] != TOOL):
            more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
            parts.append(f"{kind}: {', '.join(names[:_NAMES_SHOWN])}{more}")
        return "; ".join(parts)


def what_to_do(calls: CallsSeen) -> str:
    """Describes the calls in one sentence, and says what to declare, so that retrievals in them are captured."""
    seen, tools = str(calls), calls.tools()
    begin = f"calls that were seen in place of retrievals: {seen}. What to do: " if seen else ""
    if not seen:
        begin = f"no call of a framework was seen. What to do: {_ATTACH}; "
    elif tools:
        begin += f"if {tools[0]!r} retrieves, declare it with tools={{{tools[0]!r}: SPLITTER}}; "
    return (
        f"{begin}for a retrieval in your own code, call ragguard.retrieved(query, documents) or "
        "run.retrieved(query, passages)"
    )


class CallLog:
    """Counts the calls of all runs together, and of each of the latest 256 open runs."""

    def __init__(self) -> None:
        self.total = CallsSeen()
        self._of_run: dict[str, CallsSeen] = {}
        self._named: set[str] = set()
        """The tools that a warning has named."""
        self._warned = 0
        self.declared: set[str] = set()
        """The tools that were declared as retrievals."""
        self.retrieving: set[str] = set()
        """The tools that have given documents: a failure of one of these is a retrieval that failed."""
        self._lock = threading.RLock()

    def seen(self, run_id: str, kind: str, name: str) -> None:
        """Counts a call of a run; the run need not be known to the recorder."""
        with self._lock:
            self.total.add(kind, name)
            calls = self._of_run.get(run_id)
            if calls is None:
                if len(self._of_run) >= _MOST_RUNS:
                    del self._of_run[next(iter(self._of_run))]
                calls = self._of_run[run_id] = CallsSeen()
            calls.add(kind, name)

    def warn_of_uncalled(self) -> None:
        """Warns once of declared tools that were never called, where tools were called that are not declared: one of
        these may be meant."""
        with self._lock:
            uncalled, others = sorted(self.declared - self.retrieving), self.total.tools()
        if uncalled and others:
            names, there = (", ".join(map(repr, some[:_NAMES_SHOWN])) for some in (uncalled, others))
            NOTICES.once(
                "declared tools that were not called",
                f"tools= declares {names}, of which no call was seen so far; called, and no retrievals: {there}. If "
                "one of these is meant, declare it by its own name",
            )

    def forget(self, run_id: str) -> CallsSeen:
        """Removes a run that has ended; returns the calls that were seen in it."""
        with self._lock:
            return self._of_run.pop(run_id, None) or CallsSeen()

    def without_steps(self, run_id: str, *, captured: int, handles: bool = False) -> None:
        """Warns that a run ended without a step, where a tool was called in it, none was ever `captured`, or
        `rg.run(...)` held it, which nobody writes around what retrieves nothing."""
        calls = self.forget(run_id)
        if calls.tools() or not captured or handles:  # else retrievals are captured, and this run needed none
            self.warn(run_id, calls)

    def warn(self, run_id: str, calls: CallsSeen) -> None:
        """Warns that nothing in a run was taken as a retrieval: once a process, and once more where tools were called
        in such a run that were in none before, three times at most."""
        with self._lock:
            new = set(calls.tools()) - self._named
            if (self._warned and not new) or self._warned >= _MOST_WARNINGS:
                return
            self._named |= new
            self._warned += 1
            subject = f"a run without a retrieval {self._warned}"
        elsewhere = "" if calls.counts else _NOT_INSIDE
        NOTICES.once(
            subject,
            lambda: (
                f"the run {run_id!r} ended without a retrieval, so there is nothing to score, if it needed one; "
                f"{what_to_do(calls)}{elsewhere}. (Logged once a process for each tool, three times at most)"
            ),
        )
