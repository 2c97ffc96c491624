"""The lines of contexts with outcomes that `docs/how-to/validation-data.md` describes.

{"question": "…", "passages": [{"text": "…", "relevance": 1}, …], "references": ["…"], "outcome": 2}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ragguard.analysis.validation.contexts import OUTCOMES, Context
from ragguard.analysis.validation.readers.fields import Fields, json_objects, passages_of

KNOWN = frozenset((
    "id", "question_id", "question", "passages", "references", "ideal", "answer", "outcome", "sub_questions",
    "given",
))  # fmt: skip


def read(path: Path) -> Iterator[Context]:
    """Yields the contexts of a file."""
    for number, fields in enumerate(json_objects(path), 1):
        yield context_of(fields, number)


def context_of(fields: Fields, number: int) -> Context:
    """Returns the context of a line. Unknown names are refused, so that a misspelt outcome is not taken for none."""
    for name in fields.data:
        if name not in KNOWN:
            raise fields.wrong(
                name, fields.data[name], f"no field of that name; there are {', '.join(sorted(KNOWN))}"
            )
    question = fields.text("question")
    passages = fields.objects("passages")
    grades = [passage.number("relevance") for passage in passages]
    known = [grade for grade in grades if grade is not None]
    for passage, grade in zip(passages, grades, strict=True):
        if grade is not None and grade < 0:
            raise passage.wrong("relevance", grade, "a grade of at least 0, which is irrelevant")
    if known and len(known) < len(grades):
        raise fields.wrong("passages", grades, "a relevance for every passage, or for none")
    by_text: dict[str, float] = {}
    for one, grade in zip(passages_of(passages), known, strict=False):
        if one.text and by_text.setdefault(one.text, grade) != grade:
            raise fields.wrong(
                "passages", one.text, f"one relevance a text: it has {by_text[one.text]:g} and {grade:g}"
            )
    ideal = fields.numbers("ideal") if fields.data.get("ideal") is not None else None
    if ideal is not None and Counter(filter(None, known)) - Counter(ideal):
        raise fields.wrong("ideal", ideal, f"the grades of all judged passages, these {known} among them")
    given = fields.data.get("given") or {}
    numbers = Fields(given, f"{fields.where}, given")
    return Context(
        id=fields.text("id", default=str(number)),
        question_id=fields.text("question_id", default=question),
        question=question,
        passages=passages_of(passages),
        references=fields.texts("references"),
        relevance=tuple(known) if known or not passages else None,
        ideal=ideal,
        answer=fields.text("answer", default="") or None,
        outcome=outcome_of(fields),
        sub_questions=fields.texts("sub_questions"),
        given={str(name): value for name in given if (value := numbers.number(name)) is not None},
    )


def outcome_of(fields: Fields) -> float | None:
    """Returns the outcome as a number: a number itself, or one of the words of `OUTCOMES`."""
    value = fields.data.get("outcome")
    if not isinstance(value, str):
        return fields.number("outcome")
    for verdict, number in OUTCOMES.items():
        if verdict == value:
            return float(number)
    raise fields.wrong("outcome", value, f"a number, or one of {', '.join(OUTCOMES)}")
