"""How a guard's decision reaches the step it is about: as a custom event of LangChain's callbacks.

So it takes the way that the calls themselves take, and every handler that captures hears of it, however
it was attached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ragguard.capture.decisions import Verdict, about, merged
from ragguard.records import Decision, Passage
from ragguard_langchain.messages import Taken, unpacked

VERDICT = "ragguard_verdict"
"""The name of the event."""


@dataclass(frozen=True, slots=True, eq=False)
class Told:
    """What the event carries."""

    verdict: Verdict
    call: str = ""
    """The id of the tool call whose result was judged, where it was one."""


@dataclass(slots=True, eq=False)
class Found:
    """A retrieval that has ended, while guards behind it may still take something out."""

    step_id: str
    call: str
    taken: Taken | None
    """None for a tool's one string, which is taken apart elsewhere."""
    candidates: list[Passage] | None = None
    decision: Decision | None = None

    def decided(self, told: Told, *, alone: bool) -> Decision | None:
        """What all guards decided about it so far; None where this one did not see it."""
        if self.candidates is None:
            self.candidates = told.verdict.judged if self.taken is None else unpacked(self.taken)
        said = about(told.verdict, self.candidates, alone=alone)
        if not said.kept and not said.dropped:
            return None
        self.decision = merged(self.decision, said)
        return self.decision


def concerned(found: Sequence[Found], told: Told) -> list[tuple[Found, Decision]]:
    """The retrievals that a decision is about: those of the tool call, else those whose passages were judged."""
    if told.call:
        mine = [one for one in found if one.call == told.call]
    else:
        keys = {(passage.id, passage.text) for passage in told.verdict.judged}
        mine = [
            one
            for one in found
            if one.taken is not None and any((p.id, p.text) in keys for p in unpacked(one.taken))
        ]
    decided = [(one, one.decided(told, alone=len(mine) == 1)) for one in mine]
    return [(one, decision) for one, decision in decided if decision is not None]
