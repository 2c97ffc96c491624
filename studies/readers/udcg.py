"""The annotated contexts of UDCG's repository: passages with relevance, and p(abstain) for each model that was asked.

    {"example_id": "…", "question": "…", "passages": [{"doc_id", "text", "is_relevant",
     "models_info": {"MODEL": {"no_res_prob": 0.1}}}], "udcg": {"MODEL": 0.5}}

An older release writes `no_res_prob_MODEL` and `udcg_MODEL` instead. What is published there has no outcomes: add an
`outcome`, or `answers` to have the contexts answered and graded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from ragguard.lab.validation.contexts import Context
from ragguard.lab.validation.rankings import outcome_of
from ragguard.metrics import udcg, utility
from ragguard.storage.files.jsonl import Fields
from studies.readers.lists import json_objects, objects, passages_of

_OURS = "udcg ("
_OLD_PROBABILITY, _OLD_UDCG = "no_res_prob_", "udcg_"


def read(path: Path) -> Iterator[Context]:
    """Yields the examples of a file as contexts; one without passages has an empty context's UDCG for each model."""
    found = list(_examples(path))
    nothing = {name: float(udcg([], k=1)) for one in found for name in one.given if name.startswith(_OURS)}
    for one in found:
        yield one if one.passages else replace(one, given=nothing | dict(one.given))


def _examples(path: Path) -> Iterator[Context]:
    for number, fields in enumerate(json_objects(path), 1):
        question = fields.text("question")
        passages = objects(fields, "passages")
        relevance = tuple(_relevant(passage) for passage in passages)
        yield Context(
            id=fields.text("example_id", default=str(number)),
            question_id=fields.text("question_id", default=question),
            question=question,
            passages=passages_of(passages),
            references=fields.texts("references", "answers", "answer"),
            relevance=relevance,
            outcome=outcome_of(fields),
            given=_theirs(fields) | _ours(passages, relevance),
        )


def _relevant(passage: Fields) -> float:
    found = passage.number("is_relevant")
    if found is None:
        raise passage.wrong("is_relevant", None, "true or false")
    return found


def _theirs(fields: Fields) -> dict[str, float]:
    """Returns the UDCG that the data set gives for each model."""
    by_model = fields.data.get("udcg")
    found = dict(by_model) if isinstance(by_model, Mapping) else {}
    found |= {
        name.removeprefix(_OLD_UDCG): value
        for name, value in fields.data.items()
        if name.startswith(_OLD_UDCG)
    }
    numbers = Fields(found, f"{fields.where}, udcg")
    return {
        f"udcg, theirs ({model})": value for model in found if (value := numbers.number(model)) is not None
    }


def _ours(passages: list[Fields], relevance: tuple[float, ...]) -> dict[str, float]:
    """Returns UDCG by ragguard from the data set's probabilities, for each model."""
    probabilities = [_probabilities(passage) for passage in passages]
    models = set.intersection(*map(set, probabilities)) if probabilities else set()
    return {
        f"{_OURS}{model})": float(udcg(utility(relevance, [one[model] for one in probabilities])))
        for model in sorted(models)
    }


def _probabilities(passage: Fields) -> dict[str, float]:
    found: dict[str, float] = {}
    for model, said in (passage.data.get("models_info") or {}).items():
        value = Fields(said, f"{passage.where}, {model}").number("no_res_prob")
        if value is not None:
            found[model] = value
    for name in passage.data:
        if name.startswith(_OLD_PROBABILITY) and (value := passage.number(name)) is not None:
            found[name.removeprefix(_OLD_PROBABILITY)] = value
    return found
