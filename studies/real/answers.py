"""How often words alone tell whether an answer is right, as people judge it: the answers of five systems in EVOUNA."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ragguard.analysis.tables import Cell, Table
from ragguard.metrics import exact_match, token_f1
from ragguard.text.language import normalise
from ragguard.text.statements.verdict import right_by_words
from studies.intervals import share_over_questions
from studies.readers.evouna import JudgedAnswer

ENOUGH = 0.5
"""The token F1 from which on an answer is called right."""


def _searched(one: JudgedAnswer) -> bool:
    text = f" {normalise(one.answer)} "
    return any(f" {normalise(reference)} " in text for reference in one.references)


RULES: Mapping[str, Callable[[JudgedAnswer], bool | None]] = {
    "right_by_words": lambda one: right_by_words(one.answer, one.references, one.question),
    "a reference stands in it": _searched,
    "exact match": lambda one: exact_match(one.answer, one.references) == 1,
    f"token F1 of {ENOUGH} or more": lambda one: token_f1(one.answer, one.references) >= ENOUGH,
}


def answer_table(sets: Mapping[str, Sequence[JudgedAnswer]], seed: int) -> Table:
    """Returns the agreement of each rule with people over all systems of each set; what a rule does not decide counts
    as wrong."""
    rows: list[tuple[Cell, ...]] = []
    for name, answers in sets.items():
        owners = [one.question for one in answers]
        for rule, judge in RULES.items():
            verdicts = [judge(one) for one in answers]
            pairs = [(said, one.right) for said, one in zip(verdicts, answers, strict=True)]
            decided = [said is not None for said in verdicts]
            called = [said is True for said in verdicts]
            shares = [
                share_over_questions([said is right for said, right in pairs], decided, owners, seed),
                share_over_questions(
                    [said is True and not right for said, right in pairs], called, owners, seed
                ),
            ]
            agreed = share_over_questions(
                [(said is True) == right for said, right in pairs], [1] * len(pairs), owners, seed
            )
            part = share_over_questions(decided, [1] * len(pairs), owners, seed)[0]
            rows.append((f"{name}: {rule}", *agreed, part, shares[0][0], *shares[1], len(answers)))
    return Table(
        "real-answers", "Whether an answer is right, by words, beside people (EVOUNA)",
        ("set: rule", "agreement", "low", "high", "decided", "right of decided", "wrong of called right", "low ",
         "high ", "answers"),
        tuple(rows),
        notes=("No model is asked. Agreement counts what is not decided as wrong.",),
    )  # fmt: skip
