"""The sub-questions of advice, in which names that were read replace "that person" and the like.

The second sub-question of a chain speaks of the answer to the first: "where was that person born?". As it stands, any
passage about anybody's birthplace answers it, and advice would call a run complete that has read one fact of two. So
each sub-question that refers to the one before it is completed with the answer that a passage gives to that one; if no
passage answers that one, it is open.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ragguard.engines.prompts import PromptSet
from ragguard.scorers.coverage import Ratings
from ragguard.scorers.probes import Reading, likeliest, read_line
from ragguard.scorers.question import Ask, answered
from ragguard.scorers.view import View
from ragguard.text.statements.abstention import is_abstention

_NOUNS = (
    "person|man|woman|individual|author|writer|director|artist|singer|actor|player|founder|leader|mayor|president|firm|"
    "company|organi[sz]ation|institution|university|school|team|band|group|town|city|village|place|country|state|region|"
    "county|river|island|film|movie|book|novel|song|album|work|building|award|event|language|year|date"
)
_REFERS = re.compile(rf"\b(?:that|this|the same) (?:{_NOUNS})\b|\b(?:he|she|him|they|them)\b", re.IGNORECASE)
_OWNS = re.compile(rf"\b(?:that|this|the same) (?:{_NOUNS})(?:'s|’s)|\b(?:his|her|their)\b", re.IGNORECASE)


def completed(sub_question: str, answer: str) -> str:
    """Returns a sub-question with an answer in place of what refers to it; the same text if nothing in it refers."""
    return _REFERS.sub(lambda _: answer, _OWNS.sub(lambda _: f"{answer}'s", sub_question))


async def rate(
    sub_questions: tuple[str, ...], texts: Sequence[str], eta: float, view: View, ask: Ask
) -> Ratings:
    """Returns the ratings of texts for the sub-questions, each of which is completed with what these texts answer to
    the one before it."""
    prompts = view.setting.judge_prompts
    ratings = Ratings(sub_questions)
    await ratings.learn(texts, prompts, ask)
    for number, sub_question in enumerate(sub_questions[1:], 1):
        if completed(sub_question, "") == sub_question:
            continue
        answer = await _answer(ratings, number - 1, eta, prompts, view, ask)
        whole = completed(sub_question, answer)
        own = Ratings((whole,))
        if answer:
            await own.learn(texts, prompts, ask)
        for text, row in ratings.rows.items():
            row[number] = own.rows[text][0] if answer else Reading(0.0)
        known = ratings.sub_questions
        ratings.sub_questions = (*known[:number], whole if answer else sub_question, *known[number + 1 :])
    return ratings


async def _answer(ratings: Ratings, number: int, eta: float, prompts: PromptSet, view: View, ask: Ask) -> str:
    """Returns what the first text that answers a sub-question says; empty if none does."""
    text = next((text for text in ratings.rows if number in ratings.answered_by(text, eta)), None)
    if text is None:
        return ""
    question = likeliest(prompts, "answer", view.seed, [text], question=ratings.sub_questions[number])
    said = read_line(answered((await ask([question]))[0]))
    return "" if is_abstention(said, view.setting.language) else said
