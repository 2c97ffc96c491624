"""Labels that are there already: thumbs and annotations of people on runs, as lines of a file of labels.

They stand in a run's metadata: `feedback` (`run.feedback`, `/v1/feedback`, the page) and `annotations`, which the
readers of traces fill from Phoenix, Langfuse and OpenInference with author and time. Only people's do: those of models
and of code stand under `evaluations`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ragguard.lab.labels.items import LabelItem, run_items
from ragguard.lab.labels.label_file import looks_like_model
from ragguard.records import ANNOTATIONS, FEEDBACK, Run, ScoredRun

_ABOUT_ANSWER = frozenset(
    "thumb thumbs feedback user_feedback user-feedback userfeedback user_rating correct correctness answer_correct "
    "answer_correctness qa_correctness accuracy quality helpful helpfulness".split()
)
"""The names of annotations that say whether an answer is right, as far as people say it by a thumb."""
_YES = frozenset(
    "up thumbs_up thumbs-up 👍 positive good correct right yes true pass passed helpful 1 +1".split()
)
_NO = frozenset(
    "down thumbs_down thumbs-down 👎 negative bad incorrect wrong no false fail failed unhelpful 0 -1".split()
)
_USER = "a user"
"""The author of a thumb that came without one."""


class PeopleLabel(NamedTuple):
    """A label that a person gave to the answer of a run."""

    item: LabelItem
    value: float
    by: str
    at: str


def people_labels(runs: Iterable[ScoredRun], skipped: Counter[str] | None = None) -> Iterator[PeopleLabel]:
    """Yields the labels of people on the answers of runs; of several by one person the last.

    Args:
        runs: Scored runs; a label needs the judge's score of the same answer, which it corrects.
        skipped: Gets why an annotation is no label, in words, each with how often.
    """
    reasons = Counter[str]() if skipped is None else skipped
    for scored in runs:
        given = [*_annotations(scored.run)]
        if not given:
            continue
        item = next(iter(run_items(scored, "answer")), None)
        if item is None:
            reasons["of answers that no judge has judged (answer_correct)"] += len(given)
            continue
        latest: dict[str, PeopleLabel] = {}
        for annotation in given:
            value = _value(annotation)
            if value is None:
                reasons[
                    f"named {str(annotation.get('name'))!r}, which say neither yes nor no of an answer"
                ] += 1
                continue
            by = str(annotation.get("by") or _USER)
            if looks_like_model(by):
                reasons[f"by {by!r}, which looks like a model"] += 1
                continue
            latest[by] = PeopleLabel(item, value, by, str(annotation.get("at") or ""))
        yield from latest.values()


def _annotations(run: Run) -> Iterator[Mapping[str, Any]]:
    feedback, annotations = run.metadata.get(FEEDBACK), run.metadata.get(ANNOTATIONS)
    if isinstance(feedback, Mapping) and feedback.get("thumb"):
        yield {
            "name": "thumb",
            "label": feedback["thumb"],
            "by": feedback.get("by"),
            "at": feedback.get("at"),
        }
    yield from (
        (one for one in annotations or () if isinstance(one, Mapping))
        if isinstance(annotations, list)
        else ()
    )


def _value(annotation: Mapping[str, Any]) -> float | None:
    """Returns 1 for yes and 0 for no; None for an annotation that is about something else, or lies between."""
    if str(annotation.get("name") or "").strip().lower().replace(" ", "_") not in _ABOUT_ANSWER:
        return None
    label, score = annotation.get("label"), annotation.get("score")
    if isinstance(label, str) and (word := label.strip().lower().replace(" ", "_")) in _YES | _NO:
        return float(word in _YES)
    if isinstance(score, int | float) and score in (1, 0, -1):
        return float(score == 1)
    return None
