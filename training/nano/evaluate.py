"""Measures nano on held-out cases and writes the figures into its card: `python -m
training.nano.evaluate [--cases 1000]`.

Everything is asked through the engine and the prompt set, as a scorer asks it; names and phrasings are
held out from training.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ragguard import world
from ragguard.engines.nano.nano_engine import NanoEngine
from ragguard.engines.prompts import Task, load_prompts
from ragguard.metrics import exact_match
from ragguard.records import Passage
from ragguard.world import Case, Counts, PassageKind
from ragguard.world.facts import aliases
from ragguard.world.grammar import CHAINS, RELATIONS, THAT
from training.nano import SHIPPED
from training.nano.card import Figure, Report, write_card

_READ = Counts(same_relation=3, same_subject=3, contradiction=0, unrelated=6)
_CHUNK = 256
Asked: TypeAlias = tuple[list[str], dict[str, str]]
"""Passages and slots of one prompt."""


@dataclass(slots=True)
class _Asker:
    """Asks in chunks, so that memory stays flat."""

    engine: NanoEngine

    async def probability(self, task: Task, asked: Sequence[Asked]) -> NDArray[np.float64]:
        """Returns the probability of each label of the task: (asked, labels)."""
        prompts = load_prompts("nano")
        rendered = [prompts.render(task, passages, **slots) for passages, slots in asked]
        labels = prompts.labels(task)
        parts = [
            (await self.engine.label_probs(rendered[i : i + _CHUNK], labels)).p
            for i in range(0, len(rendered), _CHUNK)
        ]
        return np.concatenate(parts)

    async def answers(self, task: Task, asked: Sequence[Asked]) -> list[str]:
        """The most probable answers."""
        prompts = load_prompts("nano")
        rendered = [prompts.render(task, passages, **slots) for passages, slots in asked]
        length = prompts.template(task).max_tokens
        said: list[str] = []
        for i in range(0, len(rendered), _CHUNK):
            samples = await self.engine.sample(rendered[i : i + _CHUNK], 1, length, 0.0)
            said += [one[0].text for one in samples]
        return said


def auc(positive: NDArray[np.float64], negative: NDArray[np.float64]) -> float:
    """The chance that a positive scores over a negative, ties counting half."""
    values = np.concatenate([positive, negative])
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    n, m = len(positive), len(negative)
    return float((ranks[:n].sum() - n * (n + 1) / 2) / (n * m))


def _shuffled(case: Case, passages: list[Passage]) -> list[str]:
    texts = [passage.text for passage in passages]
    random.Random(case.question).shuffle(texts)
    return texts


def _right(case: Case, said: str) -> bool:
    return any(exact_match(said, reference) for reference in case.references)


async def reading(ask: _Asker, n: int, report: Report) -> None:
    """Measures exact match with one to twelve passages, all of them near misses and unrelated ones but for the gold."""
    for hops, target in ((1, 0.90), (2, 0.70)):
        cases = world.cases(n, seed=11, hops=hops, distractors=_READ)
        shares: list[float] = []
        for count in range(hops, 13):
            asked = []
            for case in cases:
                rest = random.Random(case.question).sample(case.distractors, count - hops)
                asked.append((_shuffled(case, [*case.gold, *rest]), {"question": case.question}))
            said = await ask.answers("answer", asked)
            shares.append(
                float(np.mean([_right(case, text) for case, text in zip(cases, said, strict=True)]))
            )
        report.reading[hops] = shares
        upto = shares[: 9 - hops]
        report.figures.append(
            Figure(
                f"reading, {hops} hop{'s' * (hops > 1)}, exact match, worst of up to 8 passages",
                min(upto),
                target,
            )
        )
        report.figures.append(
            Figure(
                f"reading, {hops} hop{'s' * (hops > 1)}, mean of up to 8 passages",
                float(np.mean(upto)),
                target,
            )
        )


async def abstention(ask: _Asker, n: int, report: Report) -> None:
    """Reports how often nano abstains with one passage in the prompt, as the utility score asks: gold against other
    kinds."""
    cases = world.cases(n, seed=12, distractors=Counts(1, 1, 1, 1))
    kinds: tuple[PassageKind, ...] = ("gold", "same_relation", "same_subject", "unrelated", "contradiction")
    asked = [([case.of_kind(kind)[0].text], {"query": case.question}) for kind in kinds for case in cases]
    p = (await ask.probability("abstention", asked))[:, 0].reshape(len(kinds), -1)
    for kind, row in zip(kinds, p, strict=True):
        report.p_answer[kind] = float(1 - row.mean())
    silent = p[1:4].ravel()
    report.figures.append(Figure("abstention, one passage, ROC-AUC", auc(silent, p[0]), 0.95))
    several = world.cases(n, seed=13, distractors=_READ)
    asked = []
    for case in several:
        rng = random.Random(case.question)
        near = rng.sample(case.distractors, rng.randint(2, 8))
        asked.append((_shuffled(case, near), {"query": case.question}))
        asked.append((_shuffled(case, [case.gold[0], *near[1:]]), {"query": case.question}))
    q = (await ask.probability("abstention", asked))[:, 0]
    report.figures.append(Figure("abstention, 2 to 8 passages, ROC-AUC", auc(q[::2], q[1::2]), 0.95))
    answers = np.concatenate([1 - p[0], 1 - silent])
    truth = np.concatenate([np.ones(len(p[0])), np.zeros(len(silent))])
    report.brier = float(np.mean((answers - truth) ** 2))
    for low in np.arange(0, 1, 0.1):
        inside = (answers >= low) & ((answers < low + 0.1) | (low > 0.85))
        if inside.any():
            report.reliability.append(
                (float(low), int(inside.sum()), float(answers[inside].mean()), float(truth[inside].mean()))
            )


async def memory(ask: _Asker, n: int, report: Report) -> None:
    """Measures how many of the memorised facts the model answers in held-out words, and that it knows no others."""
    for hops, target in ((1, 0.95), (2, 0.95)):
        cases = world.cases(n, seed=14, hops=hops, known=True)
        said = await ask.answers("answer_closed", [([], {"question": case.question}) for case in cases])
        right = float(np.mean([_right(case, text) for case, text in zip(cases, said, strict=True)]))
        report.figures.append(
            Figure(f"known facts, closed book, {hops} hop{'s' * (hops > 1)}, exact match", right, target)
        )
    strangers = world.cases(n, seed=15)
    said = await ask.answers("answer_closed", [([], {"question": case.question}) for case in strangers])
    lucky = float(np.mean([_right(case, text) for case, text in zip(strangers, said, strict=True)]))
    report.figures.append(Figure("unknown facts, closed book, exact match (chance)", lucky, None))


async def judging(ask: _Asker, n: int, report: Report) -> None:
    """Measures relevance, answerability and grades of one passage for a hop's query."""
    cases = world.cases(n, seed=16, distractors=Counts(1, 1, 1, 1))
    kinds: tuple[PassageKind, ...] = ("gold", "same_relation", "same_subject", "unrelated")
    lies: tuple[PassageKind, ...] = (*kinds, "contradiction")
    plain = [([case.of_kind(kind)[0].text], case.question) for kind in kinds for case in cases]
    p = await ask.probability("relevance", [(passages, {"query": query}) for passages, query in plain])
    a = p[:, 0] / p.sum(axis=1)
    report.figures.append(Figure("relevance, ROC-AUC", auc(a[:n], a[n:]), 0.95))
    with_lies = [
        ([case.of_kind(kind)[0].text], {"query": case.question, "references": "\n".join(case.references)})
        for kind in lies
        for case in cases
    ]
    p = await ask.probability("relevance_with_references", with_lies)
    a = p[:, 0] / p.sum(axis=1)
    report.figures.append(
        Figure("relevance with references, contradictions among the rest, ROC-AUC", auc(a[:n], a[n:]), 0.95)
    )
    p = await ask.probability("answerability", [(passages, {"question": query}) for passages, query in plain])
    expected = (p / p.sum(axis=1, keepdims=True)) @ np.arange(6)
    report.figures.append(
        Figure("answerability, expected rating, ROC-AUC", auc(expected[:n], expected[n:]), 0.95)
    )
    answerable = p.argmax(axis=1) >= 3
    correct = float(np.mean(np.concatenate([answerable[:n], ~answerable[n:]])))
    report.figures.append(Figure("answerability, argmax at least 3 or not, accuracy", correct, None))
    p = await ask.probability("grade", [(passages, {"query": query}) for passages, query in plain])
    expected = (p / p.sum(axis=1, keepdims=True)) @ np.arange(1, 6)
    report.figures.append(
        Figure("grade, expected, gold against the rest, ROC-AUC", auc(expected[:n], expected[n:]), None)
    )
    chains = world.cases(n, seed=17, hops=2, distractors=Counts(1, 1, 0, 1))
    judged = [
        ([passage.text], {"query": c.question})
        for c in chains
        for passage in (c.gold[0], c.of_kind("unrelated")[0])
    ]
    p = await ask.probability("relevance", judged)
    a = p[:, 0] / p.sum(axis=1)
    report.figures.append(
        Figure("relevance of the bridge to a two-hop question, ROC-AUC", auc(a[::2], a[1::2]), None)
    )


async def comparing(ask: _Asker, n: int, report: Report) -> None:
    """Measures whether two answers mean the same, graded answers, sub-questions, and shortening."""
    cases = world.cases(n, seed=18, distractors=Counts(1, 0, 1, 0))
    rng = random.Random(18)
    pairs: list[Asked] = []
    same: list[bool] = []
    for case in cases:
        wrong = str(rng.choice(case.distractors).metadata["object"])
        names = aliases(RELATIONS[case.facts[-1].relation].object, case.answer)
        equal = rng.random() < 0.5
        first, second = rng.choice(names), rng.choice(names) if equal else wrong
        if not equal and set(aliases(RELATIONS[case.facts[-1].relation].object, wrong)) & set(names):
            continue
        pairs.append(([], {"question": case.question, "first": first, "second": second}))
        same.append(equal)
    p = await ask.probability("entailment", pairs)
    truth = np.array(same)
    report.figures.append(Figure("equivalence, p(same), ROC-AUC", auc(p[truth, 0], p[~truth, 0]), 0.95))
    right = float(np.mean(p.argmax(axis=1) == np.where(truth, 0, 2)))
    report.figures.append(Figure("equivalence, accuracy of A, B, C", right, None))
    graded: list[Asked] = []
    best: list[bool] = []
    for case in cases:
        good = rng.random() < 0.5
        answer = case.answer if good else str(rng.choice(case.distractors).metadata["object"])
        graded.append(
            ([], {"question": case.question, "references": "\n".join(case.references), "answer": answer})
        )
        best.append(answer == case.answer)
    p = await ask.probability("response_grade", graded)
    expected, good_ones = (p / p.sum(axis=1, keepdims=True)) @ np.arange(1, 6), np.array(best)
    report.figures.append(
        Figure("response grade, expected, ROC-AUC", auc(expected[good_ones], expected[~good_ones]), None)
    )
    chains = world.cases(n, seed=19, hops=2)
    said = await ask.answers("sub_questions", [([], {"question": case.question}) for case in chains])
    report.figures.append(
        Figure(
            "sub-questions, both right",
            float(np.mean([text == _steps(c) for c, text in zip(chains, said, strict=True)])),
            None,
        )
    )
    sentences: list[Asked] = [
        ([], {"question": case.question, "answer": case.gold[0].text}) for case in cases
    ]
    said = await ask.answers("condense", sentences)
    report.figures.append(
        Figure(
            "condensing a sentence, exact match",
            float(np.mean([_right(c, t) for c, t in zip(cases, said, strict=True)])),
            None,
        )
    )


def _steps(case: Case) -> str:
    first, second = (RELATIONS[fact.relation] for fact in case.facts)
    assert (first.name, second.name) in CHAINS
    one = first.questions[0].replace("{s}", case.facts[0].subject)
    two = second.questions[0].replace("{s}", THAT[first.object])
    return f"{one[0].upper()}{one[1:]}?\n{two[0].upper()}{two[1:]}?"


async def evaluate(n: int, reading_cases: int) -> Report:
    report = Report(cases=n, reading_cases=reading_cases)
    engine = NanoEngine()
    report.model = (await engine.info()).fingerprint
    started = time.monotonic()
    for part in (abstention, judging, comparing, memory, reading):
        await part(_Asker(engine), reading_cases if part is reading else n, report)
        print(f"{part.__name__}: {time.monotonic() - started:.0f} s", flush=True)
    return report


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument(
        "--reading", type=int, default=0, help="cases for each number of passages; as --cases if 0"
    )
    parser.add_argument("--card", type=Path, default=SHIPPED / "CARD.md")
    parser.add_argument("--curve", type=Path, default=Path(__file__).with_name("curve.jsonl"))
    arguments = parser.parse_args()
    write_card(
        asyncio.run(evaluate(arguments.cases, arguments.reading or arguments.cases)),
        arguments.card,
        arguments.curve,
    )
