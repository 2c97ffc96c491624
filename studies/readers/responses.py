"""The retrieval-response data set: graded samples, the ranked samples that they are the beginnings of, and texts.

    {"id": "N-5", "E": "L12", "Nc": 20, "Np": 4, "K": 6, "inK": [1, 0, 1, 1, 0, 0], "rank": […], "grade": 4}
    {"id": "N-5", "E": "L12", "Nc": 20, "Np": 4, "K": [2, 3, …], "P": […], "R": […], "rank": [… all 20 …]}
    {"id": "N-5", "q": "…", "p": ["…", …], "n": ["…", …]}

The graded samples alone are enough for T, T_u, F and nDCG. The ranked samples have the top 2K that F_e needs, and
the query-texts samples what an engine reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from ragguard.errors import InvalidInput
from ragguard.lab.validation.contexts import Context
from ragguard.metrics import f, f_e, ndcg, t, t_u
from ragguard.records import Passage
from ragguard.storage.files.jsonl import Fields
from studies.readers.lists import first, json_objects, numbers
from studies.selections import Selection

GRADED = ("id", "E", "Nc", "Np", "K", "inK", "rank", "grade", "P", "R", "answer_topK", "answer_ideal")
RANKED = ("id", "E", "Nc", "Np", "K", "rank", "P", "R")
TEXTS = ("id", "q", "p", "n")
"""The fields of each kind of sample. Others are refused, so that a misspelt `E` is not taken for none."""
ALPHA = 0.5
_ROUNDED = 0.01
_UNREAD = Passage("")

Key: TypeAlias = tuple[str, str, int, int]
"""The name of a ranked sample: id, E, Nc, Np."""
Ranked: TypeAlias = Mapping[Key, tuple[tuple[int, ...], frozenset[int]]]
"""The rankings of all candidates, and the K at which each was graded, by the samples' names."""
Texts: TypeAlias = Mapping[str, tuple[str, tuple[Passage, ...], tuple[Passage, ...]]]
"""The query, the positives and the negatives of each id."""


def is_graded(path: Path) -> bool:
    """True where a file holds graded samples."""
    return {"inK", "grade"} <= first(path).keys()


def is_ranked(path: Path) -> bool:
    """True where a file holds ranked samples."""
    found = first(path)
    return {"rank", "K", "Nc", "Np"} <= found.keys() and "inK" not in found


def is_texts(path: Path) -> bool:
    """True where a file holds query-texts samples."""
    return {"q", "p", "n"} <= first(path).keys()


def read(path: Path) -> Iterator[tuple[Context, Selection]]:
    """Yields each graded response as a context, and as a selection in counts.

    Reads a file of graded samples, or all parts of the data set that a folder has.
    """
    files = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
    graded = [file for file in files if is_graded(file)]
    if not graded:
        raise InvalidInput(str(path), "no graded samples", "objects with `inK` and `grade`")
    texts = _texts([file for file in files if is_texts(file)])
    beside = [file for file in files if is_ranked(file)]
    ranked = _ranked(beside) if beside else None
    for file in graded:
        for sample in _samples(file, GRADED):
            yield _context(sample, texts, ranked)


def _samples(file: Path, known: Sequence[str]) -> Iterator[Fields]:
    """Yields the samples of a file; raises for a field that such samples do not have."""
    for sample in json_objects(file):
        for name in sample.data:
            if name not in known:
                raise sample.wrong(
                    name, sample.data[name], f"no field of that name; there are {', '.join(known)}"
                )
        yield sample


def _texts(files: Sequence[Path]) -> Texts:
    return {
        sample.text("id"): (sample.text("q"), _passages(sample, "p"), _passages(sample, "n"))
        for file in files
        for sample in _samples(file, TEXTS)
    }


def _passages(sample: Fields, name: str) -> tuple[Passage, ...]:
    return tuple(map(Passage, sample.texts(name)))


def _ranked(files: Sequence[Path]) -> Ranked:
    found: dict[Key, tuple[tuple[int, ...], frozenset[int]]] = {}
    for file in files:
        for sample in _samples(file, RANKED):
            key = _key(sample)
            candidates, positives = key[2:]
            rank = tuple(map(int, numbers(sample, "rank")))
            if sorted(rank) != list(range(candidates)):
                raise sample.wrong(
                    "rank", list(rank), f"each of the Nc = {candidates} candidates once, from 0"
                )
            sizes = numbers(sample, "K")
            if list(sizes) != sorted({k for k in sizes if k in range(1, candidates + 1)}) or not sizes:
                raise sample.wrong("K", list(sizes), f"rising whole numbers from 1 to Nc = {candidates}")
            for name, of in (("P", sizes), ("R", (positives,) * len(sizes))):
                if sample.data.get(name) is None:
                    continue
                right = [
                    sum(place < positives for place in rank[: int(k)]) / n
                    for k, n in zip(sizes, of, strict=True)
                ]
                said = numbers(sample, name)
                if len(said) != len(right) or any(
                    abs(a - b) > _ROUNDED for a, b in zip(said, right, strict=True)
                ):
                    raise sample.wrong(name, list(said), f"what `rank` gives for each K: {right}")
            if key in found:
                raise sample.wrong(
                    "id", key, "id, E, Nc and Np that name one ranked sample; these are there twice"
                )
            found[key] = rank, frozenset(map(int, sizes))
    return found


def _context(sample: Fields, texts: Texts, ranked: Ranked | None) -> tuple[Context, Selection]:
    key = id, search, candidates, positives = _key(sample)
    relevance = numbers(sample, "inK")
    k = len(relevance)
    if not set(relevance) <= {0.0, 1.0} or sum(relevance) > positives:
        raise sample.wrong(
            "inK", list(relevance), f"1 for a positive and 0 for another, at most Np = {positives} ones"
        )
    if _whole(sample, "K") != k or not k:
        raise sample.wrong("K", sample.data.get("K"), f"the length of `inK`, {k}, and at least 1")
    grade = sample.number("grade")
    if grade not in (1, 2, 3, 4, 5):
        raise sample.wrong("grade", sample.data.get("grade"), "a grade of the response from 1 to 5")
    question, positive, negative = texts.get(id, ("", (), ()))
    wide = None
    if question or ranked is not None:
        places = tuple(map(int, numbers(sample, "rank")))
        # The positives come first; where that is not so, every passage would get another one's grade.
        if [float(place < positives) for place in places] != list(relevance):
            raise sample.wrong(
                "rank", list(places), f"a place for each of `inK`, one below Np = {positives} for each 1"
            )
        if ranked is not None:
            wide = _wide(sample, key, places, ranked)
    passages: tuple[Passage, ...] = (_UNREAD,) * k
    if question:
        pool = [*positive[:positives], *negative[: candidates - positives]]
        if max(places) >= len(pool):
            raise sample.wrong("rank", list(places), f"places below {len(pool)}")
        passages = tuple(pool[place] for place in places)
    selection = Selection(
        data=id.split("-")[0], search=search, question=id, k=k, n_p=int(sum(relevance)), total=positives,
        n_p_2k=wide, values={
            "nDCG@K": float(ndcg(relevance, k, ideal=(1.0,) * positives)),
            "nDCG@K of the list": float(np.nan_to_num(ndcg(relevance, k))),
        },
    )  # fmt: skip
    context = Context(
        id="/".join((id, search, str(candidates), str(positives), str(k))),
        question_id=f"{id}/{candidates}/{positives}",
        question=question or id,
        passages=passages,
        relevance=relevance,
        ideal=(1.0,) * positives + (0.0,) * max(0, candidates - positives),
        answer=sample.text("answer_topK", default="") or None,
        outcome=grade,
        given=_measures(selection),
    )
    return context, selection


def _wide(sample: Fields, key: Key, places: tuple[int, ...], ranked: Ranked) -> int:
    """Returns how many of the top 2K are positives; of all candidates, where there are fewer than 2K."""
    if key not in ranked:
        raise sample.wrong("id", key, "id, E, Nc and Np of one of the ranked samples")
    rank, sizes = ranked[key]
    if places != rank[: len(places)]:
        raise sample.wrong(
            "rank", list(places), "the beginning of the ranked sample's: " + str(list(rank[: len(places)]))
        )
    if len(places) not in sizes:
        raise sample.wrong("K", len(places), f"one of the ranked sample's: {sorted(sizes)}")
    return sum(place < key[3] for place in rank[: 2 * len(places)])


def _measures(selection: Selection) -> dict[str, float]:
    """Returns the values of the paper's measures, all computed with one α."""
    found, k = selection.n_p, selection.k
    values = {"f": f(found, k, selection.total, ALPHA), "t": t(found, k, ALPHA), "t_u": t_u(found, k, ALPHA)}
    if selection.n_p_2k is not None:
        values["f_e"] = f_e(found, k, selection.n_p_2k, ALPHA)
    return {name: float(value) for name, value in values.items()}


def _key(sample: Fields) -> Key:
    candidates, positives = _whole(sample, "Nc"), _whole(sample, "Np")
    if not 1 <= positives <= candidates:
        raise sample.wrong("Np", positives, f"1 to Nc = {candidates}")
    return sample.text("id"), sample.text("E", default=""), candidates, positives


def _whole(sample: Fields, name: str) -> int:
    value = sample.number(name)
    if value is None or value < 0 or value != int(value):
        raise sample.wrong(name, sample.data.get(name), "a whole number")
    return int(value)
