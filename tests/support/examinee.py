"""A scripted engine that knows the right answer to every case of the examination."""

from __future__ import annotations

from support.likely_engine import LikelyEngine

from ragguard.scorers.exam.cases import exam_cases

_CASES = exam_cases()


def answers(text: str) -> bool:
    """Returns whether the passages of a prompt answer the question in it."""
    one_hop = any(one.gold in text and one.question in text for one in _CASES.questions)
    return one_hop or any(two.second in text and two.question in text for two in _CASES.two_hop)


def label(text: str, label: str) -> float:
    if "What follows for the second?" in text:
        same = any(one.same in text for one in _CASES.questions)
        return {"A" if same else "C": 0.9}.get(label, 0.05)
    if label == "NO-RESPONSE":
        return 0.1 if answers(text) else 0.8
    if label in "AB":
        return 0.7 if answers(text) == (label == "A") else 0.2
    grades = {one: grade for case in _CASES.questions if case.question in text for one, grade in
              ((case.gold, "5"), (case.partial, "3"), (case.near, "2"), (case.other, "1"))}  # fmt: skip
    return 0.8 if label in {grade for passage, grade in grades.items() if passage in text} else 0.05


def likely(text: str, words: str) -> float:
    about = [one for one in _CASES.questions if one.question == words]
    if about:  # the likelihood of a query
        return -1.0 if about[0].gold in text else -3.0
    return -0.5 if answers(text) else -2.0


def answer(text: str, index: int) -> str:
    found = [one.answer for one in (*_CASES.questions, *_CASES.two_hop) if one.question in text]
    return f"It is {found[0]}." if found and answers(text) else "I do not know."


def examinee(**other) -> LikelyEngine:
    """The engine, with some of its answers replaced."""
    given = {"label": label, "likely": likely, "answer": answer, "model": "examinee", **other}
    return LikelyEngine(**given)
