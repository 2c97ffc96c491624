"""Declarations of users, checked in the same words for every framework, and warnings about calls nobody declared."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from ragguard.capture.splitters import Splitter, found
from ragguard.errors import InvalidInput
from ragguard.runtime.faults import NOTICES, Faults

_PREFIX = "ragguard_"
AUTO = "auto"
"""The word by which every tool is a retrieval that gives a search result."""
Tools: TypeAlias = Mapping[str, Splitter] | Sequence[str] | Literal["auto"]
"""The ways to declare tools: names with splitters, names of tools that give search results, or `auto`."""
Locate: TypeAlias = Callable[[Any], object]
"""A function that finds the question in what a pipeline is given, or the answer in what it gives."""


class DeclaredTools(dict[str, Splitter]):
    """The tools that are declared as retrievals, each with the splitter of its output."""

    by_rule = False
    """True where any other tool is a retrieval whose output has the shape of a search result."""


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """The options by which the application describes its pipelines to a framework's adapter."""

    tools: DeclaredTools = field(default_factory=lambda: DeclaredTools())
    """The tools that retrieve and return text or JSON."""
    question: Locate | None = None
    answer: Locate | None = None

    @classmethod
    def checked(
        cls, tools: object, question: str | Locate | None, answer: str | Locate | None
    ) -> CaptureOptions:
        """Returns the options; raises InvalidInput for those that cannot be right."""
        find_question, find_answer = locate("question", question), locate("answer", answer)
        return cls(checked_tools(tools), find_question, find_answer)


def checked_tools(given: object) -> DeclaredTools:
    """Returns the tools that are declared as retrievals, each with its splitter; refuses anything else."""
    if given is None:
        return DeclaredTools()
    if given == AUTO:
        tools = DeclaredTools()
        tools.by_rule = True
        return tools
    if isinstance(given, (list, tuple, set, frozenset)) and all(isinstance(name, str) for name in given):
        return DeclaredTools(dict.fromkeys(given, found))
    if not isinstance(given, Mapping):
        raise InvalidInput(
            "tools",
            given,
            "a mapping from a tool's name to a splitter, such as {'search': paragraphs}; a list of names; or 'auto'",
        )
    for name, splitter in given.items():
        if not callable(splitter):
            allowed = "a function from a text to passages, such as ragguard.splitters.paragraphs or separated_by('---')"
            raise InvalidInput(f"tools[{name!r}]", splitter, allowed)
    return DeclaredTools(given)


def locate(argument: str, given: str | Locate | None) -> Locate | None:
    """Returns the function that finds the question or the answer, as `argument` names it; a key becomes one."""
    if given is None or callable(given):
        return given
    if not isinstance(given, str) or not given:
        raise InvalidInput(argument, given, f"the key that holds the {argument}, or a function that gives it")
    return lambda value: _named(given, fields_of(value), argument)


def located(argument: str, locate: Locate | None, value: object, faults: Faults) -> object:
    """Returns what a function of the application's finds in a value; None where it fails, or is not given."""
    if locate is None or value is None:
        return None
    try:
        return locate(value)
    except Exception as error:  # noqa: BLE001 - the function is the user's
        faults.note(argument, error)
        return None


def fields_of(value: object) -> Mapping[str, Any]:
    """Returns the named parts of a value: the items of a mapping, or of the mappings in a list, of which the last ones
    count; the attributes of an object."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, (list, tuple)):
        return {name: part for item in value if isinstance(item, Mapping) for name, part in item.items()}
    fields = dict(getattr(value, "__dict__", {}) or {})
    if hasattr(value, "_data") and callable(to_dict := getattr(value, "to_dict", None)):
        fields |= to_dict()  # an event of LlamaIndex keeps values without a field in a mapping
    return fields


def _named(key: str, fields: Mapping[str, Any], argument: str) -> object:
    if key not in fields:
        NOTICES.once(
            f"{argument} {key}",
            f"{argument}={key!r} is not in what the pipeline was given or gives, so the usual places are read. There: "
            f"{', '.join(sorted(map(str, fields))) or 'nothing with a name'}",
        )
    return fields.get(key)


def warn_of_unknown(given: Mapping[Any, object], what: str, known: Iterable[str]) -> None:
    """Warns once of each key with ragguard's prefix that nothing reads; `what` describes such keys in words."""
    for key in given:
        if type(key) is str and key.startswith(_PREFIX) and key not in known:
            NOTICES.once(
                f"{what} {key}",
                f"{key!r} is not a key that ragguard reads, so it is ignored. Known keys: {', '.join(sorted(known))}",
            )


TOOL = "tool"
"""The kind of a call that an agent's model asked for; only such a call can be declared as a retrieval."""
Calls: TypeAlias = Counter[tuple[str, str]]
"""The numbers of calls that were not taken as retrievals, by kind and name."""
_NOT_INSIDE = (
    ". A LangChain stream begins with its first read: read it inside the run, or have it continue the run "
    "(ragguard_resume), which then gets its retrievals. A plain thread or pool of threads does not know the run: "
    "submit contextvars.copy_context().run, use asyncio.to_thread, or note the retrieval there with run.retrieved(...)"
)
_ATTACH = (
    'attach the RagGuard: LangChain with config={"callbacks": [RagGuardCallback(rg)]} or instrument(rg), '
    "LlamaIndex with instrument(rg)"
)
_MOST_NAMES, _NAMES_SHOWN = 50, 8
_MOST_RUNS = 256


def _tools_in(calls: Calls) -> list[str]:
    return [name for kind, name in calls if kind == TOOL and name]


def what_to_do(calls: Calls) -> str:
    """Describes the calls in one sentence, and says what to declare, so that retrievals in them are captured."""
    seen = [f"{kind} {name!r}" if name else f"other {kind}s" for kind, name in calls]
    begin = f"no call of a framework was seen. What to do: {_ATTACH}; "
    if seen:
        more = f" and {len(seen) - _NAMES_SHOWN} more" if len(seen) > _NAMES_SHOWN else ""
        begin = f"calls that were seen in place of retrievals: {', '.join(seen[:_NAMES_SHOWN])}{more}. What to do: "
    if tools := _tools_in(calls):
        begin += f"if {tools[0]!r} retrieves, declare it with tools={{{tools[0]!r}: SPLITTER}}; "
    return (
        f"{begin}for a retrieval in your own code, call ragguard.retrieved(query, documents) or "
        "run.retrieved(query, passages)"
    )


class CallLog:
    """Counts the calls that were not taken as retrievals: of all runs together, and of the latest 256 open ones."""

    def __init__(self) -> None:
        self.total: Calls = Counter()
        self._of_run: dict[str, Calls] = {}
        self.declared: set[str] = set()
        """The tools that were declared as retrievals."""
        self.retrieving: set[str] = set()
        """The tools that have given documents: a failure of one of these is a retrieval that failed."""
        self._lock = threading.RLock()

    def seen(self, run_id: str, kind: str, name: str) -> None:
        """Counts a call of a run, which need not be known to the recorder; names beyond 50 count as one."""
        with self._lock:
            if run_id not in self._of_run and len(self._of_run) >= _MOST_RUNS:
                del self._of_run[next(iter(self._of_run))]
            for calls in (self.total, self._of_run.setdefault(run_id, Counter())):
                is_known = (kind, name) in calls or len(calls) < _MOST_NAMES
                calls[kind, name if is_known else ""] += 1

    def warn_of_uncalled(self) -> None:
        """Warns once of declared tools that were never called, where tools were called that are not declared: one of
        these may be meant."""
        uncalled, others = sorted(self.declared - self.retrieving), _tools_in(self.total)
        if uncalled and others:
            names, there = (", ".join(map(repr, some[:_NAMES_SHOWN])) for some in (uncalled, others))
            NOTICES.once(
                "declared tools that were not called",
                f"tools= declares {names}, of which no call was seen so far; called, and no retrievals: {there}. If "
                "one of these is meant, declare it by its own name",
            )

    def of(self, run_id: str) -> Calls:
        """Returns the calls that were seen in a run that has ended, and forgets them."""
        with self._lock:
            return self._of_run.pop(run_id, None) or Counter()

    def without_steps(self, run_id: str, calls: Calls, *, is_expected: bool) -> None:
        """Warns that a run ended without a step, where a tool was called in it or a retrieval `is_expected`: once a
        process for the same tools."""
        tools = sorted(set(_tools_in(calls)))
        if not tools and not is_expected:
            return
        elsewhere = "" if calls else _NOT_INSIDE
        NOTICES.once(
            f"a run without a retrieval {tools}",
            f"the run {run_id!r} ended without a retrieval, so there is nothing to score, if it needed one; "
            f"{what_to_do(calls)}{elsewhere}. (Logged once a process for the same tools)",
        )
