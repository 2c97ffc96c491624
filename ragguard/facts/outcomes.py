"""The outcome of a run for somebody who looks at many, and the documents of its passages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from ragguard.facts.explanation import Cause
from ragguard.facts.run_facts import findable, mentions
from ragguard.facts.run_view import PassageView, RunView
from ragguard.records import Passage

Outcome = Literal["right", "misled", "contested", "not_found", "dropped", "wrong", "unjudged"]
OUTCOMES: Mapping[Outcome, str] = {
    "right": "right",
    "misled": "misled: a passage that was read states the wrong answer",
    "contested": "wrong: passages that were read disagree",
    "not_found": "not found: no passage that was read states the reference",
    "dropped": "dropped: the reference was found, and the model did not get it",
    "wrong": "wrong for another reason",
    "unjudged": "not judged",
}
"""Every outcome with its meaning, in the order in which they are shown."""
_OF_CAUSE: Mapping[Cause, Outcome] = {
    "right": "right",
    "unsupported": "right",
    "misled": "misled",
    "contested": "contested",
    "not_found": "not_found",
    "missing_hop": "not_found",
    "nothing_read": "not_found",
    "dropped": "dropped",
}
_NAMES = ("source", "file_name", "filename", "file_path", "path", "url", "title")
"""The metadata keys under which retrievers name the document of a passage, the most telling first."""


def outcome_of(view: RunView) -> Outcome:
    """Returns the outcome of a run; `wrong` for a wrong answer or an abstention whose cause is another or not known."""
    return _OF_CAUSE.get(view.explanation.cause) or ("wrong" if view.answer_verdict else "unjudged")


def document_of(passage: Passage) -> str:
    """Returns the name of the document that a passage is from: its file, address or title, else the passage's id."""
    for key in _NAMES:
        if isinstance(name := passage.metadata.get(key), str) and name:
            return name
    return str(passage.id)


def needed(view: RunView, ranks: Mapping[int, set[int]]) -> Iterator[PassageView]:
    """Yields those passages of a run, given by their ranks by the number of their hop, in which a reference stands."""
    references = findable(view.run.references or ())
    for hop in view.hops:
        for one in hop.passages:
            if one.rank in ranks.get(hop.number, ()) and mentions(one.passage.text, references):
                yield one
