"""Which run the captured events belong to, where that is not certain before the store has looked.

Ids come from users, from clients' headers and from frameworks' threads of conversation. A hook may not wait for a
disk, so it asks for an id; the store's writer finds out whether another run has it, or which run is continued, and
says so here.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Literal, TypeAlias

Otherwise: TypeAlias = Literal["begin", "begin with a step", "drop"]
"""What becomes of a part that continues a run where there is no such run: it begins one of its own, does so with its
first step, or is not recorded (its first part was not sampled)."""
ASKED = "ragguard.asked_id"
"""Metadata key of a run that asked for an id which another run has."""
IDS_KEPT = 10_000
"""How many given ids a process remembers; of older ones the store knows."""


@dataclass(slots=True, eq=False)
class RunIdentity:
    """The id that a run asks for, and the one that it has."""

    asked: str
    """The run's id, unless `thread` or another run's earlier claim to it say otherwise."""
    resumes: bool = False
    """True where the run continues the one that has the id."""
    thread: str = ""
    """What the run waited for that is continued, such as LangGraph's thread."""
    otherwise: Otherwise = "begin"
    stored: str = ""
    """The id in the store, once the writer has decided; '' before."""

    instead_of: str = ""
    """The id that was given and is another run's in this process, so that `asked` is a fresh one; '' otherwise."""

    @property
    def id(self) -> str:
        """The run's id as far as it is known."""
        return self.stored or self.asked

    @property
    def continues(self) -> bool:
        """True where it may be a further part of a run."""
        return self.resumes or bool(self.thread)


class GivenIds:
    """The ids that users gave to the runs of this process, within a bound. Not thread-safe."""

    def __init__(self, limit: int = IDS_KEPT) -> None:
        self._ids: OrderedDict[str, None] = OrderedDict()
        self._limit = limit

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._ids

    def discard(self, run_id: str) -> None:
        """Forgets an id."""
        self._ids.pop(run_id, None)

    def add(self, run_id: str) -> None:
        """Remembers an id; the oldest goes when there are too many."""
        self._ids[run_id] = None
        self._ids.move_to_end(run_id)
        if len(self._ids) > self._limit:
            self._ids.popitem(last=False)


def renamed(asked: str, given: str) -> str:
    """The warning about an id that another run has."""
    return (
        f"the run id {asked!r} is that of another run, so this one is recorded as {given!r}. Leave id= out and keep "
        "such a name in metadata=, or say that the run continues the other one (resume=True; `ragguard_resume` in a "
        "framework's metadata or tags)"
    )
