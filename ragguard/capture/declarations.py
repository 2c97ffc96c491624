"""Declarations of users, checked in the same words for every framework, and warnings about calls nobody declared."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from ragguard.capture.shapes import fields_of
from ragguard.capture.splitters import Splitter, passages_in_text
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

    tools: DeclaredTools
    """The tools that retrieve and return text or JSON."""
    question: Locate | None
    answer: Locate | None

    @classmethod
    def checked(
        cls, tools: object, question: str | Locate | None, answer: str | Locate | None
    ) -> CaptureOptions:
        """Returns the options; raises InvalidInput for those that cannot be right."""
        return cls(checked_tools(tools), locate("question", question), locate("answer", answer))


def checked_tools(given: object) -> DeclaredTools:
    """Returns the tools that are declared as retrievals, each with its splitter; refuses anything else."""
    tools = DeclaredTools()
    tools.by_rule = given == AUTO
    if given is None or tools.by_rule:
        return tools
    if isinstance(given, (list, tuple, set, frozenset)) and all(isinstance(name, str) for name in given):
        return DeclaredTools(dict.fromkeys(given, passages_in_text))
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


def _named(key: str, fields: Mapping[str, Any], argument: str) -> object:
    if key not in fields:
        NOTICES.once(
            f"{argument} {key}",
            f"{argument}={key!r} is no field of the pipeline's input or output, so the usual fields are read. It has: "
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
_STREAMS = (
    ". A LangChain stream begins with its first read: read it inside the run, or have it continue the run "
    "(ragguard_resume), which then gets its retrievals"
)
_NOT_INSIDE = (
    ". A plain thread or pool of threads does not know the run: "
    "submit contextvars.copy_context().run, use asyncio.to_thread, or note the retrieval there with run.retrieved(...)"
)
_ATTACH = (
    'attach the RagGuard: LangChain with config={"callbacks": [RagGuardCallback(rg)]} or instrument(rg), '
    "LlamaIndex with instrument(rg)"
)
_MOST_NAMES, _NAMES_SHOWN = 50, 8
_SEARCHES = re.compile(
    "search|retriev|find|look_?up|quer(y|ies)|fetch|wiki|docs|knowledge|rag", re.IGNORECASE
)
"""Parts of the names of tools that search."""


class CallLog:
    """The calls of one process that were not taken as retrievals, and the tools that were declared."""

    def __init__(self) -> None:
        self._others: dict[tuple[str, str], None] = {}
        """The calls that were not taken as retrievals, each once, by kind and name."""
        self.declared: set[str] = set()
        """The tools that were declared as retrievals."""
        self.retrieving: set[str] = set()
        """The tools that have given documents: a failure of one of these is a retrieval that failed."""

    def seen(self, kind: str, name: str) -> None:
        """Notes a call that was not taken as a retrieval; names beyond 50 are not kept."""
        self._others[kind, name if len(self._others) < _MOST_NAMES else ""] = None

    def warn_of_uncalled(self) -> None:
        """Warns once of declared tools that were never called, where tools were called that are not declared: one of
        these may be meant."""
        uncalled, others = sorted(self.declared - self.retrieving), self._tools()
        if uncalled and others:
            names, there = (", ".join(map(repr, some[:_NAMES_SHOWN])) for some in (uncalled, others))
            NOTICES.once(
                "declared tools that were not called",
                f"tools= declares {names}, but no call of it was seen so far. Called so far, and not taken for "
                f"retrievals: {there}. If you mean one of them, give its exact name",
            )

    def what_to_do(self) -> str:
        """Describes the calls in one sentence, and says what to declare, so that retrievals in them are captured."""
        seen = [f"{kind} {name!r}" if name else f"other {kind}s" for kind, name in list(self._others)]
        begin = f"no call of a framework was seen. What to do: {_ATTACH}; "
        if seen:
            more = f" and {len(seen) - _NAMES_SHOWN} more" if len(seen) > _NAMES_SHOWN else ""
            begin = f"calls that were seen instead of retrievals: {', '.join(seen[:_NAMES_SHOWN])}{more}. What to do: "
        if tools := sorted(self._tools(), key=lambda name: _SEARCHES.search(name) is None):
            begin += f"if {tools[0]!r} retrieves, declare it with tools={{{tools[0]!r}: SPLITTER}}; "
        return (
            f"{begin}for a retrieval in your own code, call ragguard.retrieved(query, documents) or "
            "run.retrieved(query, passages)"
        )

    def without_steps(self, run_id: str, *, is_expected: bool) -> None:
        """Warns that a run ended without a step, where a retrieval `is_expected` or tools were called in this process:
        once for the same tools."""
        tools = sorted(self._tools())
        streams = _STREAMS if "ragguard_langchain" in sys.modules else ""
        if tools or is_expected:
            NOTICES.once(
                f"a run without a retrieval {tools}",
                f"the run {run_id!r} ended without a retrieval, so there is nothing to score. If it should have "
                f"retrieved: "
                f"{self.what_to_do()}{streams}{_NOT_INSIDE}. (Logged once a process for the same tools)",
            )

    def _tools(self) -> list[str]:
        return [name for kind, name in list(self._others) if kind == TOOL and name]
