"""True, false and useless passages told apart: questions of RAMDocs, and whether a context's numbers tell if the reader
answers rightly from it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ragguard.analysis.tables import Cell, Table
from ragguard.engines.base import Engine
from ragguard.facts.contradictions import contradictions
from ragguard.lab.validation.answering import with_answers
from ragguard.lab.validation.contexts import Context, Progress, score_contexts
from ragguard.metrics.agreement import coefficient, correlate
from ragguard.metrics.arrays import Floats, Integers
from ragguard.metrics.distraction import udcg, utility
from ragguard.records import Passage, RetrievalStep, Run, Score
from ragguard.scorers.belief import Belief
from ragguard.scorers.passage_belief import PassageBelief
from ragguard.scorers.pipeline import ScoringPipeline
from ragguard.scorers.scorer import Scorer
from ragguard.scorers.utility import QueryFit, Utility
from ragguard.text.statements.phrases import findable, mentions
from ragguard.text.statements.verdict import right_by_words
from studies.intervals import auc_over_questions, share_over_questions, with_interval
from studies.readers.multi_hop import MultiHop
from studies.readers.ramdocs import Document, MixedQuestion
from studies.real.asking import Judged, bm25, judged

MOST = 8
"""The most documents of a question that a model reads."""
SIZE, COMPOSITIONS = 3, (0, 1, 1, 2)
"""The passages of a context, and how many of them are true in each context of a question."""
STANDS, BY_BM25 = "a reference stands in it", "BM25 of the question"
STANDS_TOO = f"{STANDS}, passages that the model read"
NUMBERS: Mapping[str, tuple[str, str]] = {
    STANDS: ("references", ""),
    STANDS_TOO: ("references", ""),
    "Δ likelihood of the reference": ("references, model", "delta_likelihood"),
    "contribution among all": ("references, model", "contribution"),
    "both: brings_answer": ("references, model", "brings_answer"),
    BY_BM25: ("nothing", ""),
    "likelihood of the question": ("model", "query_gain"),
    "relevance by label": ("model", ""),
    "p(abstain), the less the better": ("model", ""),
}
"""The needs of each number, and the score that has it."""
_RELEVANCE, _ABSTENTION = list(NUMBERS)[-2:]


@dataclass(frozen=True, slots=True)
class Row:
    """A passage with its numbers."""

    document: Document
    owner: int
    numbers: Mapping[str, float]


def usable(questions: Sequence[MixedQuestion]) -> list[MixedQuestion]:
    """Returns the questions with a reference, a true document and another one."""
    kinds = [{one.kind for one in question.documents} for question in questions]
    return [
        question
        for question, known in zip(questions, kinds, strict=True)
        if question.references and "correct" in known and len(known) > 1
    ]


def words_rows(questions: Sequence[MixedQuestion]) -> list[Row]:
    """Returns all passages with the numbers that need no model."""
    rows = []
    for owner, question in enumerate(usable(questions)):
        phrases = findable(question.references)
        texts = [one.text for one in question.documents]
        for document, score in zip(question.documents, bm25(question.question, texts), strict=True):
            stands = float(mentions(document.text, phrases))
            rows.append(Row(document, owner, {STANDS: stands, BY_BM25: score}))
    return rows


async def model_rows(
    engine: Engine, questions: Sequence[MixedQuestion], seed: int, progress: Progress
) -> list[Row]:
    """Returns the passages of the questions with the numbers that a model gives; `contribution` of the first quarter of
    the questions, since each one's prompt holds all the others."""
    rows = []
    for owner, question in enumerate(questions):
        progress("passages", owner, len(questions))
        in_context = owner < (len(questions) + 3) // 4
        scorers: list[Scorer] = [QueryFit(), Utility(), PassageBelief(in_context=in_context)]
        pipeline = ScoringPipeline(engine, scorers=scorers, owned=())
        documents = shuffled(question, seed)
        passages = [Passage(one.text) for one in documents]
        step = RetrievalStep("s", query=question.question, passages=passages)
        run = Run(question=question.question, references=[*question.references], steps=[step])
        scores = [one for one in await pipeline.results(run) if isinstance(one, Score)]
        known = {(one.name, one.position): one.value for one in scores if one.reference_source != "answer"}
        for place, document in enumerate(documents, 1):
            numbers = {
                number: known[score, place]
                for number, (_, score) in NUMBERS.items()
                if (score, place) in known
            }
            numbers[STANDS_TOO] = float(mentions(document.text, findable(question.references)))
            rows.append(Row(document, owner, numbers))
    return rows


async def label_rows(engine: Engine, questions: Sequence[MixedQuestion], seed: int) -> list[Row]:
    """Returns the passages of the questions with what a model says of them by its labels."""
    rows = []
    for owner, question in enumerate(questions):
        documents = shuffled(question, seed)
        labels = await judged(engine, [(question.question, [one.text]) for one in documents])
        for document, label in zip(documents, labels, strict=True):
            rows.append(Row(document, owner, {_RELEVANCE: label.relevant, _ABSTENTION: -label.abstains}))
    return rows


def shuffled(question: MixedQuestion, seed: int) -> list[Document]:
    """Returns the documents of a question in a random order, at most so many; true, false and useless ones stay in
    turn."""
    chance = random.Random(f"documents {seed} {question.question}")
    documents = [*question.documents]
    chance.shuffle(documents)
    return documents[:MOST]


def passage_table(words: Sequence[Row], by_model: Sequence[Row], seed: int) -> Table:
    """Returns how often a true passage has the larger number than a useless one, and than a false one."""
    rows: list[tuple[Cell, ...]] = []
    for number, (needs, _) in NUMBERS.items():
        some = [one for one in (*words, *by_model) if number in one.numbers]
        if some:
            cells = [_auc(number, some, kind, seed) for kind in ("noise", "misinfo")]
            count = len({one.owner for one in some})
            rows.append((number, needs, *cells[0], *cells[1], len(some), count))
    return Table(
        "real-passages", "Which passage is true (RAMDocs)",
        ("number", "needs", "over useless: AUC", "low", "high", "over false: AUC", "low ", "high ", "passages",
         "questions"),
        tuple(rows),
        notes=(
            "AUC: how often a true passage has the larger number than a useless one, and than a false one, over all "
            "pairs; intervals: the middle 95 % of draws of whole questions. All documents were found by a search for "
            "the question. Rows without a model are over all questions, the others over those of the file's second "
            "half, by which nothing was fitted.",
        ),
    )  # fmt: skip


def _auc(number: str, rows: Sequence[Row], kind: str, seed: int) -> Sequence[Cell]:
    kept = [one for one in rows if one.document.kind in ("correct", kind)]
    return auc_over_questions(
        [one.numbers[number] for one in kept],
        [one.document.kind == "correct" for one in kept],
        [one.owner for one in kept],
        seed,
    )


def contested_table(
    questions: Sequence[MixedQuestion], hops: Mapping[str, Sequence[MultiHop]], seed: int
) -> Table:
    """Returns how often words name a false passage as contradicting a reference, and how often another one: a passage
    of questions of several hops, too, of which none is false."""
    rows: list[tuple[Cell, ...]] = []
    half = len(questions) // 2
    groups = {"first half": questions[:half], "second half": questions[half:]}
    groups["its odd questions"] = groups["second half"][1 - half % 2 :: 2]
    for name, some in groups.items():
        shares: dict[str, list[bool]] = {
            "a false passage is there and named": [], "a false passage is there, another one is named": [],
            "no passage is false, one is named": [],
        }  # fmt: skip
        there, beside, none = shares.values()
        for question in some:
            false = question.texts("misinfo")
            if question.references and question.texts("correct"):
                texts = [one.text for one in question.documents]
                named = {one.second for one in contradictions(question.question, question.references, texts)}
                if false:
                    there.append(not named.isdisjoint(false))
                    beside.append(not named <= set(false))
                else:
                    none.append(bool(named))
        for kind, values in shares.items():
            cells = share_over_questions(values, np.ones(len(values)), range(len(values)), seed)
            rows.append((f"{name}: {kind}", *cells, len(values)))
    for name, several in hops.items():
        named_any = [bool(contradictions(one.question, one.references, one.paragraphs)) for one in several]
        cells = share_over_questions(named_any, np.ones(len(named_any)), range(len(named_any)), seed)
        rows.append((f"{name}: no passage is false, one is named", *cells, len(named_any)))
    return Table(
        "real-contested", "A contradiction of a reference is named by words (RAMDocs, MuSiQue, HotpotQA)",
        ("questions", "share", "low", "high", "questions "), tuple(rows),
        notes=(
            "No model is asked. The rule was made on the first half of the file and on its even questions: the odd "
            "ones of the second half were looked at for no choice, nor were MuSiQue and HotpotQA.",
        ),
    )  # fmt: skip


def contexts_of(question: MixedQuestion, seed: int) -> list[Context]:
    """Returns contexts of a question, with none, one or two true passages among false and useless ones."""
    chance = random.Random(f"contexts {seed} {question.question}")
    true = [one for one in question.documents if one.kind == "correct"]
    others = [one for one in question.documents if one.kind != "correct"]
    grades = (1.0,) * len(true) + (0.0,) * len(others)
    found: dict[tuple[str, ...], Context] = {}
    for wanted in COMPOSITIONS:
        held = chance.sample(true, min(wanted, len(true)))
        held += chance.sample(others, min(SIZE - len(held), len(others)))
        chance.shuffle(held)
        texts = tuple(one.text for one in held)
        found[texts] = Context(
            id=f"{question.question}/{len(found)}", question_id=question.question, question=question.question,
            passages=tuple(map(Passage, texts)), references=question.references,
            relevance=tuple(float(one.kind == "correct") for one in held), ideal=grades,
        )  # fmt: skip
    return [one for one in found.values() if one.passages]


CONTEXT_NUMBERS = {
    "likelihood of the reference": "likelihood", "Δ likelihood": "delta_likelihood",
    "precision": "precision", "nDCG": "ndcg_at_k", "recall": "recall",
    "UDCG, the model's own relevance": "udcg by labels", "UDCG, true relevance": "udcg, own relevance",
}  # fmt: skip


async def context_table(
    engine: Engine, questions: Sequence[MixedQuestion], seed: int, progress: Progress
) -> Table:
    """Returns how well each number of a context goes with whether the reader's answer is right."""
    contexts = [context for question in questions for context in contexts_of(question, seed)]
    if not contexts:
        return _context_table((), ())
    answered = await with_answers(contexts, engine, progress=progress)
    right = np.array(
        [right_by_words(one.answer or "", one.references, one.question) is True for one in answered], float
    )
    scored = await score_contexts(
        answered, engine, scorers=[Belief(by="likelihood", credit=0)], progress=progress
    )
    owners = [one.question for one in answered]
    columns = {
        name: [one.values.get(key, math.nan) for one in scored] for name, key in CONTEXT_NUMBERS.items()
    }
    by_labels = await _udcgs(engine, answered)
    own, true = list(CONTEXT_NUMBERS)[-2:]
    columns |= {own: [one for one, _ in by_labels], true: [one for _, one in by_labels]}
    rows: list[tuple[Cell, ...]] = []
    for name, values in columns.items():
        xs = np.array(values, dtype=float)
        within = correlate(xs, right, groups=owners, flat=0.0, seed=seed)
        inside = [None if math.isnan(one) else one for one in within[:1] + within[2:4]]
        whole = with_interval(_spearman(xs, right), np.unique(owners, return_inverse=True)[1], seed)
        rows.append((name, *whole, *inside, within.counted, len(contexts)))
    alike = len(questions) - within.counted
    note = (
        f"{len(contexts)} contexts of up to {SIZE} passages, of which none, one or two are true. The reader's greedy "
        f"answers are right, by the words of a reference, in {100 * right.mean():.0f} %. Within {alike} of the "
        f"{len(questions)} questions all contexts have a right answer or none has, so that there is nothing to rank. "
        "UDCG is from p(abstain) by label."
    )
    return _context_table(rows, (note,))


def _context_table(rows: Sequence[tuple[Cell, ...]], notes: tuple[str, ...]) -> Table:
    return Table(
        "real-contexts", "Which number of a context goes with a right answer (RAMDocs)",
        ("number", "all contexts: Spearman", "low", "high", "within questions", "low ", "high ", "questions that vary",
         "contexts"),
        tuple(rows), notes=notes,
    )  # fmt: skip


def _spearman(xs: Floats, ys: Floats) -> Callable[[Integers], float]:
    def of(rows: Integers) -> float:
        known = rows[~np.isnan(xs[rows])]
        return coefficient(xs[known], ys[known], "spearman", 0.0)

    return of


async def _udcgs(engine: Engine, contexts: Sequence[Context]) -> list[tuple[float, float]]:
    """Returns UDCG of each context by the model's labels: with its own relevance, and with the true one."""
    asked = list(dict.fromkeys((one.question, passage.text) for one in contexts for passage in one.passages))
    answers = await judged(engine, [(question, [text]) for question, text in asked])
    known: Mapping[tuple[str, str], Judged] = dict(zip(asked, answers, strict=True))
    found = []
    for one in contexts:
        labels = [known[one.question, passage.text] for passage in one.passages]
        abstains = [label.abstains for label in labels]
        own = utility([label.relevant for label in labels], abstains)
        true = utility([grade > 0 for grade in one.relevance or ()], abstains)
        found.append((float(udcg(own)), float(udcg(true))))
    return found
