"""Causes of runs, and what each document did in them, counted over many runs.

A document is known by its file, address or title, or by its passage's id (`document_of`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ragguard.facts.documents import document_of
from ragguard.facts.run_view import RunView
from ragguard.facts.steps import view_step
from ragguard.records import RetrievalStep, Run

UNJUDGED = "unjudged"
"""Counted for a run whose answer was not judged: no answer, no reference to judge by, or a model that could not."""
UNEXPLAINED = "unexplained"
"""Counted for a run whose answer was judged, but whose texts do not show what decided it."""
OPEN = "open"
"""Counted for a run that has not ended."""
CAUSES: Mapping[str, str] = {
    "right": "right",
    "unsupported": "right, but no passage supports it",
    "not_found": "not found: no passage that was retrieved states the reference",
    "misled": "misled by a passage that states the wrong answer",
    "overturned": "overturned: the model knew the answer, and the passages changed it",
    "contested": "contested: one passage states the wrong answer, another one the reference",
    "dropped": "dropped: the reference was retrieved, and the model did not get it",
    "missing_hop": "missing hop: the reference was read, another hop found nothing",
    "not_used": "not used: the reference was read, and the answer is in no passage",
    "needless_abstention": "needless abstention: the reference was read, and no answer given",
    "nothing_read": "nothing read: no passage reached the model",
    UNEXPLAINED: "judged, but its texts do not show what decided it",
    UNJUDGED: "not judged",
    OPEN: "still running",
}
"""Every cause that a run can count as, with its meaning, in the order in which they are shown."""
URGENCY = (
    "misled", "overturned", "contested", "dropped", "not_found", "missing_hop", "nothing_read", "not_used",
    "needless_abstention", UNEXPLAINED, UNJUDGED, OPEN, "unsupported", "right",
)  # fmt: skip
"""Every cause in the order in which a person should look at its runs: wrong answers before right ones."""
JUDGED = frozenset(CAUSES) - {UNJUDGED, OPEN}
"""The causes of runs whose answers were judged."""


@dataclass(frozen=True, slots=True)
class DocumentUse:
    """The part of one document in one run that retrieved it."""

    id: str
    read: bool = False
    """True if the model got it."""
    used: bool = False
    """True if the answer or a reference stands in it, or a later query took words from it, or the answer loses belief
    without it."""
    misled: bool = False
    """True if it states the wrong answer of a run without a passage that states the reference."""
    contested: bool = False
    """True if it states one of two answers between which the passages of the run disagree."""

    @property
    def flags(self) -> int:
        """The four facts as one number, for a store."""
        return self.read + 2 * self.used + 4 * self.misled + 8 * self.contested

    @classmethod
    def of(cls, id: str, flags: int) -> DocumentUse:
        """Returns the use that `flags` describe."""
        return cls(id, bool(flags & 1), bool(flags & 2), bool(flags & 4), contested=bool(flags & 8))


@dataclass(frozen=True, slots=True)
class CauseNote:
    """The cause of a run, and the part of its documents."""

    cause: str
    """One of `CAUSES`."""
    documents: Sequence[DocumentUse] = ()
    retrievers: Sequence[str] = ()
    """The names of the tools or retrievers that the run used."""


def note_of(view: RunView) -> CauseNote:
    """Returns what a run counts as, by its scores."""
    return CauseNote(cause_of(view), _documents(view), retrievers_of(view.run))


def retrievers_of(run: Run) -> list[str]:
    """Returns the names of the tools or retrievers of a run's steps, each once."""
    return list(dict.fromkeys(filter(None, map(retriever_of, run.steps))))


def retriever_of(step: RetrievalStep) -> str:
    """Returns the name of a step's tool, else of its retriever; "" if neither is known."""
    retriever = step.metadata.get("retriever", "")
    return step.tool or (retriever if isinstance(retriever, str) else "")


def cause_of(view: RunView) -> str:
    """Returns what a run counts as, one of `CAUSES`."""
    run = view.run
    if run.status == "open":
        return OPEN
    if not view.answer_verdict:
        return UNJUDGED
    if not run.steps and run.answer is None:  # of a score file, which holds no steps
        return UNEXPLAINED
    return view.explanation.cause or UNEXPLAINED


def _documents(view: RunView) -> list[DocumentUse]:
    """Returns what each document of a run did, a document that several hops found once."""
    run, explanation = view.run, view.explanation
    is_contested = explanation.cause == "contested"
    misled = frozenset() if is_contested else explanation.blamed
    contested = explanation.blamed | explanation.stating if is_contested else frozenset()
    led = {
        (one.step_id, one.position)
        for step in run.steps
        for lead in step.led_by or ()
        for one in lead.sources
    }
    led |= {
        (one.step_id, one.position or 0)
        for one in view.counted.all
        if one.name == "contribution" and one.label == "used"
    }
    facts: dict[str, int] = {}
    for number, step in enumerate(run.steps, 1):
        seen = view_step(step, 0)
        got = {at + 1 for at in seen.got}
        for rank, passage in enumerate(seen.all, 1):
            place = number, rank
            use = DocumentUse(
                document_of(passage), rank in got,
                used=place in explanation.stating or place in explanation.answering or (step.id, rank) in led,
                misled=place in misled, contested=place in contested,
            )  # fmt: skip
            facts[use.id] = facts.get(use.id, 0) | use.flags
    return [DocumentUse.of(id, flags) for id, flags in facts.items()]


@dataclass(frozen=True, slots=True)
class DocumentCount:
    """The number of runs in which a document was retrieved, read and used, and in which it did harm."""

    id: str
    runs: int
    read: int
    used: int
    misled: int
    contested: int


@dataclass(slots=True)
class CauseCounts:
    """The numbers of runs by cause, also by document, retriever and name of run."""

    causes: Counter[str] = field(default_factory=Counter)
    by_name: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    by_retriever: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """A run with several retrievers counts for each."""
    misleading: Sequence[DocumentCount] = ()
    """The documents that misled the most runs."""
    contested: Sequence[DocumentCount] = ()
    """The documents of the most runs in which passages disagree."""
    unused: Sequence[DocumentCount] = ()
    """The documents that were read in the most runs and used in none."""
    left_out: dict[str, int] = field(default_factory=dict)
    """How many further documents `misleading`, `contested` and `unused` would have, by these names."""

    def add(self, note: CauseNote, name: str = "") -> None:
        """Counts a run, without its documents."""
        self.causes[note.cause] += 1
        if name:
            self.by_name[name][note.cause] += 1
        for retriever in note.retrievers:
            self.by_retriever[retriever][note.cause] += 1

    @property
    def runs(self) -> int:
        """The number of runs."""
        return self.causes.total()

    @property
    def misled_by(self) -> int:
        """The number of documents that misled a run."""
        return len(self.misleading) + self.left_out.get("misleading", 0)

    @property
    def rows(self) -> list[tuple[str, int]]:
        """Every cause that a run counts as, with how many do, in the order of `CAUSES`."""
        return [(cause, self.causes[cause]) for cause in CAUSES if self.causes[cause]]

    @property
    def sentence(self) -> str:
        """All of it in one line: `200 runs: 131 right, 31 not found, 18 misled (by 4 documents)`."""
        by = (
            f" (by {self.misled_by:,} document{'' if self.misled_by == 1 else 's'})" if self.misled_by else ""
        )
        said = [
            f"{count:,} {short_words(cause)}{by if cause == 'misled' else ''}" for cause, count in self.rows
        ]
        return f"{self.runs:,} run{'' if self.runs == 1 else 's'}{': ' if said else ''}{', '.join(said)}"

    def as_dict(self) -> dict[str, Any]:
        """Returns plain data for JSON."""
        return {
            "runs": self.runs,
            "causes": dict(self.rows),
            "misled_by": self.misled_by,
            "documents": {
                name: [asdict(one) for one in getattr(self, name)]
                for name in ("misleading", "contested", "unused")
            },
            "documents_left_out": self.left_out,
            "by_name": largest_first(self.by_name),
            "by_retriever": largest_first(self.by_retriever),
        }


def short_words(cause: str) -> str:
    """Returns a cause in few words: `not found`."""
    special = {OPEN: "still running", UNJUDGED: "not judged", "unsupported": "right without support"}
    return special.get(cause, cause.replace("_", " "))


def largest_first(groups: Mapping[str, Counter[str]]) -> dict[str, dict[str, int]]:
    """Returns all groups, those with the most runs first, each with its counts in the order of `CAUSES`."""
    names = sorted(groups, key=lambda name: (-groups[name].total(), name))
    return {name: {cause: groups[name][cause] for cause in CAUSES if groups[name][cause]} for name in names}
