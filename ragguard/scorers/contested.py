"""Contested coverage: the share of sub-questions to which passages give answers that contradict each other.

A false passage in good style is relevant and answers its sub-question, so that no judgement of single passages finds
it; only a passage that contradicts it shows the conflict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import dataclass
from itertools import combinations
from operator import itemgetter
from typing import Any, ClassVar, TypeAlias

import numpy as np

from ragguard.engines.entailment import Pair
from ragguard.facts.contradictions import Conflict, contradictions
from ragguard.facts.steps import StepView
from ragguard.metrics import subquestions as measures
from ragguard.records import Result
from ragguard.runtime.arguments import number_between, share
from ragguard.scorers.coverage import Ratings, find_sub_questions, given_sub_questions
from ragguard.scorers.estimates import relation
from ragguard.scorers.passages import Judgement, judge_passages
from ragguard.scorers.probes import likeliest, read_line
from ragguard.scorers.question import Ask, EntailQuestion, answered
from ragguard.scorers.scorer import ScoreWriter
from ragguard.scorers.view import View, read_texts
from ragguard.text.language import meaning_key
from ragguard.text.statements.abstention import is_abstention
from ragguard.text.statements.repetition import repeats_question

SHOWN = 120
"""How many characters of an answer an explanation shows."""
SURE = 0.9
"""The probability of an answer to the query that brought a passage from which on it counts in a contradiction."""
ANSWERS = 0.8
"""The probability of an answer to the sub-question from which on a passage counts in a contradiction about it."""


Statement: TypeAlias = tuple[int, str]
"""The number of a sub-question, and a passage that answers it."""


@dataclass(frozen=True, slots=True)
class Contested:
    """Gives `contested` of each step, over all that the model read by then, and of the run."""

    name: ClassVar[str] = "contested"
    version: ClassVar[str] = "4"
    live = "so far"

    eta: float = 3
    """The least rating, from 0 to 5, with which a passage counts as answering a sub-question."""
    tau: float = 0.5
    """The least probability of a contradiction, from 0 to 1, that counts; one direction of the two is enough."""

    def __post_init__(self) -> None:
        number_between("Contested.eta", self.eta, 0, 5, "a number from 0 to 5")
        share("Contested.tau", self.tau)

    async def score(self, view: View, ask: Ask) -> Sequence[Result]:
        writer = ScoreWriter(view, self)
        if not any(step.readable for step in view.steps):
            return writer.results()
        if view.references and {"ratings", "relevance", "abstention"} & view.setting.exam.failed.keys():
            add_contested_by_words(writer)
            return writer.results()
        with writer.failing("contested"):
            asked = await find_sub_questions(view, ask)
            ratings = Ratings(asked[: view.setting.caps.sub_questions])
            await ratings.learn(read_texts(view.steps), view.setting.judge_prompts, ask)
            shared = {text for _, text in _shared(ratings, ratings.rows, self.eta)}
            found = await find_conflicts(self, view, ratings, ask, await _sure(shared, view, ask))
            for number, step in enumerate(view.steps, 1):
                if step.readable:
                    self._add(writer, ratings, found, view.steps[:number], step)
            self._add(writer, ratings, found, view.steps)
        return writer.results()

    def _add(
        self,
        writer: ScoreWriter,
        ratings: Ratings,
        found: Sequence[Conflict],
        steps: Sequence[StepView],
        step: StepView | None = None,
    ) -> None:
        """Adds the score over all texts that the model had read by the end of the steps."""
        texts = read_texts(steps)
        index = {text: number for number, text in enumerate(texts)}
        here = [one for one in found if one.first in index and one.second in index]
        table = np.zeros((len(texts), len(texts), len(ratings.sub_questions)), dtype=np.bool_)
        for one in here:
            table[index[one.first], index[one.second], one.sub_question] = True
        writer.add(
            "contested",
            measures.contested(ratings.table(texts), table, self.eta),
            step=step,
            who="judge",
            stderr=ratings.stderr(texts),
            references=given_sub_questions(writer.view),
            **_named(here, steps),
        )


def add_contested_by_words(writer: ScoreWriter) -> None:
    """Adds `contested` of each step and of the run by the words of passages around a reference, of a model that may not
    rate passages: 1 if what was read by then contradicts a reference, else 0. The question stands for all
    sub-questions."""
    view = writer.view
    conflicts = contradictions(view.run.question, view.references, read_texts(view.steps))
    readable = [(number, step) for number, step in enumerate(view.steps, 1) if step.readable]
    for number, step in (*readable, *([(len(view.steps), None)] if readable else ())):
        steps = view.steps[:number]
        texts = set(read_texts(steps))
        here = [conflict for conflict in conflicts if {conflict.first, conflict.second} <= texts]
        named = _named(here, steps)
        named["metadata"]["how"] = "words"
        origin: dict[str, Any] = {"reference_source": "gold", "references": view.references}
        writer.add("contested", float(bool(here)), step=step, **named, **origin)


def _named(found: Sequence[Conflict], steps: Sequence[StepView]) -> dict[str, Any]:
    """Returns the fields of a score that name contradictions."""
    # Where the model got each text first, as `hop.position`, both from 1.
    got = [(seen, at) for seen in reversed(steps) for at in reversed(seen.got)]
    where = {seen.all[at].text: f"{seen.step.index + 1}.{at + 1}" for seen, at in got}
    conflicts = [
        {
            "sub_question": one.sub_question,
            "passages": [where[one.first], where[one.second]],
            "answers": [one.first_answer, one.second_answer],
        }
        for one in found
    ]
    return {
        "label": "; ".join(dict.fromkeys(f"{where[one.first]} against {where[one.second]}" for one in found)),
        "explanation": _in_words(found, where),
        "metadata": {"conflicts": conflicts},
    }


async def find_conflicts(
    settings: Contested, view: View, ratings: Ratings, ask: Ask, sure: Collection[str]
) -> list[Conflict]:
    """Returns which of the texts that the model read contradict each other about a sub-question, where the reader would
    answer the sub-question itself from either.

    The judge reads an answer off each text that answers a shared sub-question, and answers that differ are compared.
    Most passages that only seem to contradict are about somebody with a like name, or about another hop: the judge
    takes them for relevant, and the reader abstains on them.

    Args:
        settings: The bounds on ratings and contradictions.
        view: The run.
        ratings: The ratings of the texts that may contradict each other.
        ask: Asks the models.
        sure: The texts from which the reader would answer the query that brought them.
    """
    statements = _shared(ratings, [text for text in ratings.rows if text in sure], settings.eta)
    setting, asked = view.setting, ratings.sub_questions
    # The judge's likeliest answer to the sub-question from the passage alone.
    drawn = await ask(
        [
            likeliest(setting.judge_prompts, "answer", view.seed, [text], question=asked[number])
            for number, text in statements
        ]
    )
    said = [read_line(answered(answer)) for answer in drawn]
    language = setting.language
    keys = [
        ""
        if is_abstention(text, language) or repeats_question(text, asked[number])
        else meaning_key(text, language)
        for (number, _), text in zip(statements, said, strict=True)
    ]
    couples = [
        (one, other, Pair(asked[one[0]], first, second))
        for (one, first, key), (other, second, its) in combinations(
            zip(statements, said, keys, strict=True), 2
        )
        if one[0] == other[0] and key and its and key != its
    ]
    pairs = list(dict.fromkeys(turned for *_, pair in couples for turned in (pair, pair.turned)))
    relations = await ask([EntailQuestion(pair) for pair in pairs])
    contradict = {
        pair
        for pair, answer in zip(pairs, relations, strict=True)
        if relation(answered(answer))[2] >= settings.tau
    }
    found = [(one, other, pair) for one, other, pair in couples if contradict & {pair, pair.turned}]
    read = list(dict.fromkeys(statement for *both, _ in found for statement in both))
    judged = await judge_passages(
        [(asked[number], text) for number, text in read], ask, setting.prompts, setting.judge_prompts,
        probes=["abstention"],
    )  # fmt: skip
    reads = {one for one, judgement in zip(read, judged, strict=True) if judgement.p_answers >= ANSWERS}
    return [
        Conflict(number, first, pair.premise, second, second_answer=pair.hypothesis)
        for (number, first), (_, second), pair in found
        if {(number, first), (number, second)} <= reads
    ]


async def _sure(texts: Set[str], view: View, ask: Ask) -> set[str]:
    """Returns the texts that are relevant to the query which brought them, judged without the references, and from
    which the reader would answer it.

    A sub-question may speak of "that town", and then a passage about another town answers it, too.
    """
    asked = list(
        dict.fromkeys(
            (view.query_of(step), text)
            for step in view.steps
            for text in step.texts(step.got)
            if text in texts
        )
    )
    judged = await judge_passages(asked, ask, view.setting.prompts, view.setting.judge_prompts)
    return {text for (_, text), one in zip(asked, judged, strict=True) if is_sure(one)}


def is_sure(judgement: Judgement) -> bool:
    """Returns whether a passage may count in a contradiction: it is relevant, and the reader answers from it."""
    return judgement.is_relevant and judgement.p_answers >= SURE


def _shared(ratings: Ratings, texts: Iterable[str], eta: float) -> list[Statement]:
    """Returns the statements of texts about sub-questions that two or more of them answer, by sub-question."""
    statements = ((number, text) for text in texts for number in ratings.answered_by(text, eta))
    listed = sorted(statements, key=itemgetter(0))
    counts = Counter(number for number, _ in listed)
    return [(number, text) for number, text in listed if counts[number] > 1]


def _in_words(found: Sequence[Conflict], where: dict[str, str]) -> str:
    """Returns the first contradiction in words, and how many more there are; the metadata have all of them."""
    if not found:
        return ""
    one = found[0]
    first, second = (
        f"{where[text]} “{answer[:SHOWN]}”"
        for text, answer in ((one.first, one.first_answer), (one.second, one.second_answer))
    )
    more = f"; {len(found) - 1} more" if len(found) > 1 else ""
    return f"{first} against {second}{more}"
