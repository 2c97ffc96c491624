"""The graded samples of the retrieval-response data set: which of the top K were positives, and the response's grade.

    {"id": "N-5", "E": "L12", "Nc": 20, "Np": 4, "K": 6, "inK": [1, 0, 1, 1, 0, 0], "rank": […], "grade": 4}

Texts are in another part of it, the query-texts samples `{"id", "q", "p": […], "n": […]}`. A folder with both parts
gives contexts with texts; the graded samples alone are enough for all measures of selection.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ragguard.metrics import f, t, t_u
from ragguard.records import Passage
from ragguard.validate.contexts import Context
from ragguard.validate.readers.fields import Fields, first, json_objects

ALPHA = 0.5


def is_graded(path: Path) -> bool:
    """Whether a file holds graded samples."""
    return {"inK", "grade"} <= first(path).keys()


def is_texts(path: Path) -> bool:
    """Whether a file holds query-texts samples."""
    return {"q", "p", "n"} <= first(path).keys()


def read(graded: list[Path], texts: list[Path]) -> Iterator[Context]:
    """The graded samples of these files, with the texts of those."""
    known = {
        sample.text("id"): (sample.text("q"), sample.texts("p"), sample.texts("n"))
        for path in texts
        for sample in json_objects(path)
    }
    for path in graded:
        for sample in json_objects(path):
            yield _context(sample, known)


def _context(sample: Fields, known: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]]) -> Context:
    id, model = sample.text("id"), sample.text("E", default="")
    relevance = sample.numbers("inK")
    candidates, positives = _whole(sample, "Nc"), _whole(sample, "Np")
    if not set(relevance) <= {0.0, 1.0} or sum(relevance) > positives:
        raise sample.wrong(
            "inK", list(relevance), f"1 for a positive and 0 for another, at most Np = {positives} ones"
        )
    texts: list[str] = [""] * len(relevance)
    question = ""
    if id in known:
        question, positive, negative = known[id]
        pool = [*positive[:positives], *negative[: candidates - positives]]
        places = [int(place) for place in sample.numbers("rank")]
        # The positives come first; where that is not so, every passage would get another one's grade.
        if [float(place < positives) for place in places] != list(relevance):
            raise sample.wrong(
                "rank", places, f"a place for each of `inK`, one below Np = {positives} for each 1"
            )
        try:
            texts = [pool[place] for place in places]
        except IndexError as error:
            raise sample.wrong("rank", places, f"places below {len(pool)}") from error
    return Context(
        id="/".join((id, model, str(candidates), str(positives), str(len(relevance)))),
        question_id=f"{id}/{candidates}/{positives}",
        question=question or id,
        passages=tuple(Passage(text) for text in texts),
        relevance=relevance,
        ideal=(1.0,) * positives + (0.0,) * max(0, candidates - positives),
        answer=sample.text("answer_topK", default="") or None,
        outcome=sample.number("grade"),
        given=_measures(relevance, positives),
    )


def _measures(relevance: tuple[float, ...], positives: int) -> dict[str, float]:
    """The paper's measures, at one α for all; F_e needs the top 2K, which a graded sample does not hold."""
    found, k = sum(relevance), len(relevance)
    values = {"f": f(found, k, positives, ALPHA), "t": t(found, k, ALPHA), "t_u": t_u(found, k, ALPHA)}
    return {name: float(value) for name, value in values.items()}


def _whole(sample: Fields, name: str) -> int:
    value = sample.number(name)
    if value is None or value < 0 or value != int(value):
        raise sample.wrong(name, sample.data.get(name), "a whole number")
    return int(value)
