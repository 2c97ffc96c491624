"""The head of the page: how runs came out, which hops and documents did it, and what a guard dropped or would drop."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ragguard.analysis.wording import ShadowStep, about_shadow, line_of, shadow_steps
from ragguard.facts.causes import CAUSES, OPEN, UNJUDGED, URGENCY, CauseCounts
from ragguard.facts.documents import document_of, needed
from ragguard.facts.run_view import RunView
from ragguard.text.plain import counted

_SHOWN = 8
"""The most hops, and documents, that are listed."""
_ASKED_FOR = ("misled", "not_found")
"""The causes that are counted also if there is none."""
_TEXT = 120
"""The most characters of a passage that stand beside its document's name."""


@dataclass(slots=True)
class _HopCounts:
    """The runs of the hops of one number, and what these did there."""

    runs: int = 0
    paid: int = 0
    lost: list[int] = field(default_factory=list)
    misled: list[int] = field(default_factory=list)
    empty: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _DocumentCounts:
    """The runs in which the passages of one document did harm."""

    text: str = ""
    """The beginning of the passage that did most harm so far."""
    wrong: list[int] = field(default_factory=list)
    astray: list[int] = field(default_factory=list)
    misleading: list[int] = field(default_factory=list)
    read: int = 0


class PageHead:
    """Counts runs one after the other; runs are named by their place on the page."""

    def __init__(self) -> None:
        self._hops: defaultdict[int, _HopCounts] = defaultdict(_HopCounts)
        self._documents: defaultdict[str, _DocumentCounts] = defaultdict(_DocumentCounts)
        self._shadow: list[ShadowStep] = []
        self._dropped = self._seen = 0
        self._needed: list[int] = []
        self._needed_in_shadow: list[int] = []
        self._worth = ""
        self._judged_passages = 0
        self._misleading: Counter[int] = Counter()
        """The misleading passages that were read, by the place of their run."""

    def add(self, place: int, view: RunView) -> None:
        """Counts the run at a place of the page."""
        wrong = view.explanation.blamed
        astray = view.explanation.led_astray if wrong else frozenset()
        if view.misleading:
            self._misleading[place] = view.misleading
        for hop in view.hops:
            counts = self._hops[hop.number]
            counts.runs += 1
            if worth := hop.worth:
                self._worth = self._worth or worth.name
                counts.paid += worth.paid
                if worth.lowered:
                    counts.lost.append(place)
            if any(number == hop.number for number, _ in wrong):
                counts.misled.append(place)
            if hop.seen.empty:
                counts.empty.append(place)
            for view_of_passage in hop.passages:
                if not view_of_passage.read:
                    continue
                passage = view_of_passage.passage
                self._judged_passages += view_of_passage.utility is not None
                document = self._documents[document_of(passage)]
                document.read += 1
                for harm, places in (
                    ((hop.number, view_of_passage.rank) in wrong, document.wrong),
                    ((hop.number, view_of_passage.rank) in astray, document.astray),
                    (view_of_passage.effect == "misleads", document.misleading),
                ):
                    if harm and places[-1:] != [place]:
                        places.append(place)
                    if harm and (not document.text or places is document.wrong):
                        document.text = line_of(passage.text)[:_TEXT]
        self._count_guard(place, view)

    def _count_guard(self, place: int, view: RunView) -> None:
        dropped: dict[int, set[int]] = {}
        would: dict[int, set[int]] = {}
        for hop in view.hops:
            if decision := hop.step.decision:
                dropped[hop.number] = {drop.position for drop in decision.dropped}
                would[hop.number] = {drop.position for drop in decision.would_drop}
                self._seen += len(decision.kept) + len(decision.dropped)
        self._dropped += sum(map(len, dropped.values()))
        if any(needed(view, dropped)):
            self._needed.append(place)
        if any(needed(view, would)):
            self._needed_in_shadow.append(place)
        self._shadow += shadow_steps(view)

    def as_data(self, counts: CauseCounts) -> dict[str, Any]:
        """Returns plain data for the page, with the causes of the same runs."""
        documents = sorted(
            self._documents.items(),
            key=lambda item: (-len(item[1].wrong), -len(item[1].astray), -len(item[1].misleading), item[0]),
        )
        return {
            "causes": [
                [name, words, counts.causes[name]]
                for name, words in CAUSES.items()
                if counts.causes[name] or name in _ASKED_FOR
            ],
            "urgency": URGENCY,
            "guard": {"dropped": self._dropped, "seen": self._seen, "needed": self._needed},
            "worth": self._worth,
            "hops": [
                {"hop": number, "runs": hop.runs, "paid": hop.paid, "lost": hop.lost, "misled": hop.misled,
                 "empty": hop.empty}
                for number, hop in sorted(self._hops.items())[:_SHOWN]
            ],
            "documents": [
                {"name": name, "text": harm.text, "read": harm.read, "wrong": harm.wrong, "astray": harm.astray,
                 "misleading": harm.misleading}
                for name, harm in documents[:_SHOWN]
                if harm.wrong or harm.astray or harm.misleading
            ],
            "quiet": self._quiet(counts),
            "junk": self._junk(),
        }  # fmt: skip

    def _quiet(self, counts: CauseCounts) -> str:
        """Returns what may be said if no hop and no document stands out: only of what was judged."""
        unjudged = counts.causes[UNJUDGED] + counts.causes[OPEN]
        sentences = []
        if unjudged < counts.runs:
            sentences.append("no answer that was judged is wrong because of a passage")
        if self._worth:
            sentences.append("no hop changed the belief measurably")
        if not sentences:
            return "Nothing was judged, so that no hop and no document can be named: no answer, and no hop's worth."
        rest = f" The answers of {counted(unjudged, 'run')} were not judged." if unjudged else ""
        return f"No hop or document stands out: {' and '.join(sentences)}.{rest}"

    def _junk(self) -> Mapping[str, Any]:
        """Returns what may be said of passages that a guard dropped, or could drop."""
        if self._shadow:
            cost = len(self._needed_in_shadow)
            said = "No reference stands in any of them." if not cost else (
                f"In {counted(cost, 'run')} a reference stands in one of them: dropping it may cost the answer."
            )  # fmt: skip
            return {"said": f"{about_shadow(self._shadow)} {said}", "runs": self._needed_in_shadow}
        if self._dropped:
            cost = len(self._needed)
            said = "no reference stands in any of them" if not cost else (
                f"in {counted(cost, 'run')} a reference stood in one of them"
            )  # fmt: skip
            whole = f"The guard dropped {self._dropped:,} of {counted(self._seen, 'passage')}: {said}."
            return {"said": whole, "runs": self._needed}
        if not self._judged_passages:
            said = "No passage was judged, so that nothing is known of junk: it takes a model that judges passages."
            return {"said": said, "runs": []}
        if not self._misleading:
            said = (
                f"None of the {counted(self._judged_passages, 'passage')} that were judged misleads by its utility; no "
                "guard dropped any."
            )
            return {"said": said, "runs": []}
        passages, runs = counted(self._misleading.total(), "passage"), counted(len(self._misleading), "run")
        return {
            "said": f"No guard ran. By its utility, {passages} that the model read in {runs} may mislead. With "
            "DistractorGuard(engine, shadow=True) nothing is dropped, and this page says what would be, and the cost.",
            "runs": list(self._misleading),
        }
