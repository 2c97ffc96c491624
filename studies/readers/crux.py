"""A CRUX folder: topics with their sub-questions, ratings of passages for each of these, and a `NAME.run` a system.

topics.jsonl    {"id": "…", "topic": "…", "subtopics": ["…", …]}
ratings.jsonl   {"id": "…", "docid": "…", "rating": [5, 0, 3, …]}, a rating a sub-question

CRUX's scripts also write `SPLIT_topics_exam_questions.jsonl` (`example_id`, `topic`, `questions`) and
`SPLIT_judgements.jsonl` (`example_id`, `pid`, `rating`); both are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np

from ragguard.lab.validation.contexts import Context
from ragguard.lab.validation.rankings import Question, qrel_files, ranked_contexts, read_qrels
from ragguard.metrics import alpha_ndcg, answerable_questions, coverage
from ragguard.storage.files.jsonl import json_lines
from studies.readers.lists import numbers

ENOUGH = 3
"""The least rating with which a passage answers a sub-question."""
Ratings = dict[str, dict[str, tuple[float, ...]]]
"""Topic → passage → rating of each sub-question."""


def read(path: Path, k: int) -> Iterator[Context]:
    """Yields the contexts of all systems, with their coverage and α-nDCG as given numbers."""
    questions = {
        fields.text("id", "example_id"): Question(
            fields.text("topic"), (), fields.texts("subtopics", "questions")
        )
        for file in topic_files(path)
        for fields in json_lines(file)
    }
    ratings = read_ratings(rating_files(path), questions)
    judged = qrel_files(path)
    grades = read_qrels(judged) if judged else {
        topic: {document: float(max(rating, default=0) >= ENOUGH) for document, rating in by_document.items()}
        for topic, by_document in ratings.items()
    }  # fmt: skip
    for context in ranked_contexts(path, k, grades, questions):
        yield replace(context, given=measures(context, ratings.get(context.question_id, {})))


def topic_files(path: Path) -> list[Path]:
    """Returns the files of topics in a folder."""
    return sorted(path.glob("*topics*.jsonl"))


def rating_files(path: Path) -> list[Path]:
    """Returns the files of ratings in a folder."""
    return sorted(path.glob("*ratings*.jsonl")) + sorted(path.glob("*judgements*.jsonl"))


def read_ratings(files: Sequence[Path], questions: dict[str, Question]) -> Ratings:
    """Returns the ratings of every passage, one for each sub-question."""
    found: Ratings = {}
    for fields in chain.from_iterable(map(json_lines, files)):
        topic, rating = fields.text("id", "example_id"), numbers(fields, "rating")
        asked = questions.get(topic)
        if asked is not None and len(rating) != len(asked.sub_questions):
            raise fields.wrong(
                "rating", list(rating), f"{len(asked.sub_questions)} numbers, one a sub-question"
            )
        known = found.setdefault(topic, {}).setdefault(fields.text("docid", "pid"), rating)
        if known != rating:
            raise fields.wrong("rating", list(rating), f"one rating a passage: it has {list(known)} already")
    return found


def measures(context: Context, rated: dict[str, tuple[float, ...]]) -> dict[str, float]:
    """Returns the coverage and the α-nDCG of a context over the sub-questions that some rated passage answers.

    The ideal of the α-nDCG is the best context of the same length from all rated passages. A context without passages
    covers nothing and has no α-nDCG.
    """
    asked = len(context.sub_questions)
    if not rated or not asked:
        return {}
    none = (0.0,) * asked
    whole = np.array(list(rated.values()))
    answerable = answerable_questions(whole, ENOUGH)
    if not answerable.any():
        return {}
    if not context.passages:
        return {"coverage": 0.0}
    ratings = np.array([rated.get(passage.id, none) for passage in context.passages])
    return {
        "coverage": float(coverage(ratings, ENOUGH, answerable)),
        "alpha_ndcg": float(alpha_ndcg(ratings, ENOUGH, ideal=whole, k=len(ratings))),
    }
