"""SePer's questions about pipelines (Dai et al. 2025): the number of passages, compression, re-ranking, and the cost.

Section 5 with figures 5 and 6, and table 8: searches over the world's corpus with the harder cases' passages in it,
measured by the reader's belief in the right answer with what was retrieved, less its belief without.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import zip_longest

import numpy as np

from ragguard import world
from ragguard.analysis.tables import Cell, Table
from ragguard.engines.base import Engine
from ragguard.engines.connect import connect
from ragguard.engines.prompts import load_prompts
from ragguard.lab.validation.contexts import Context, Progress, score_contexts, silent
from ragguard.metrics.arrays import Floats
from ragguard.records import Passage, Score
from ragguard.scorers.contexts import CLOSED_BOOK, Key
from ragguard.scorers.probes import relevance
from ragguard.scorers.question import count_tokens
from ragguard.world import Case, Corpus
from studies.beliefs import Asked, Beliefs, Believed
from studies.hard_world import hard_cases
from studies.intervals import of_mean
from studies.pools import corpus_for
from studies.reasons import with_reasons

SOURCE = "SePer"
KS = (1, 5, 10)
"""The numbers of passages in the context, as in the paper."""
FIRST, LAST = 20, 5
"""The number of passages that a re-ranker chooses from, and the number that it chooses, as in the paper."""
KEPT = 0.6
"""The share of the words that a compression keeps, as in the paper."""
METHODS = (*(f"top {k}" for k in KS), "re-ranked", "fewer sentences", "fewer words")
BASE = f"top {LAST}"
"""The selection that compression and re-ranking are compared with."""
_SENTENCE = re.compile(r"(?<=\.) ")
_WORD = re.compile(r"[^\W_]+")


async def study(
    engine: Engine,
    judge: Engine | None = None,
    *,
    questions: int = 40,
    seed: int = 0,
    progress: Progress = silent,
) -> list[Table]:
    """Makes the tables over so many questions of one hop, and as many of two."""
    reader = connect(engine)
    judging = reader if judge is None else connect(judge)
    cases = {f"{hops} hop{'s' * (hops > 1)}": hard_cases(questions, seed, hops) for hops in (1, 2)}
    corpus = corpus_for(world.default_world(), [case for some in cases.values() for case in some])
    found: dict[str, list[dict[str, Key]]] = {}
    gains: dict[str, Floats] = {}
    before: dict[str, Floats] = {}
    for name, some in cases.items():
        searched = [found_for(corpus, case) for case in some]
        found[name] = [
            await variants(case, passages, judging) for case, passages in zip(some, searched, strict=True)
        ]
        asked = [
            Asked(case.question, tuple(case.references), tuple(dict.fromkeys(each.values())))
            for case, each in zip(some, found[name], strict=True)
        ]
        believed = await Beliefs(reader, judging, draws=10, seed=seed * 1000, progress=progress).of(asked)
        gains[name] = np.array([
            [_belief(of[each[method]]) - _belief(of[CLOSED_BOOK]) for method in METHODS]
            for of, each in zip(believed, found[name], strict=True)
        ])  # fmt: skip
        before[name] = np.array([_belief(of[CLOSED_BOOK]) for of in believed])
    model = (await reader.info()).model
    tables = [
        numbers(gains, before, found, seed, model),
        against(gains, found, seed),
        await costs(cases, found, reader, judging, progress),
    ]
    return with_reasons(tables, await reader.info(), await judging.info())


def found_for(corpus: Corpus, case: Case) -> list[Passage]:
    """Returns the best passages of a search for each hop, by turns."""
    each = [[at for at, _ in corpus.search(query, FIRST)] for query in case.sub_questions]
    turns = [at for row in zip_longest(*each) for at in row if at is not None]
    return [corpus.passages[at] for at in dict.fromkeys(turns)][:FIRST]


async def variants(case: Case, passages: Sequence[Passage], judge: Engine) -> dict[str, Key]:
    """Returns the contexts that each method makes of the best passages of a search."""
    texts = [passage.text for passage in passages]
    made: dict[str, Key] = {f"top {k}": tuple(texts[:k]) for k in KS}
    prompts = load_prompts((await judge.info()).prompts)
    asked = [relevance(prompts, case.question, text) for text in texts]
    p = (await judge.label_probs([one.prompt for one in asked], asked[0].labels)).p
    best = np.argsort(-p[:, 0] / p.sum(axis=1), kind="stable")[:LAST]
    made["re-ranked"] = tuple(texts[at] for at in best)
    made["fewer sentences"] = fewer_sentences(case.question, texts[:LAST])
    made["fewer words"] = fewer_words(texts[:LAST], texts)
    return made


def fewer_sentences(question: str, texts: Sequence[str], kept: float = KEPT) -> Key:
    """Keeps the sentences that share most words with the question, up to a share of all words; in their order."""
    sentences = [
        (at, number, sentence)
        for at, text in enumerate(texts) for number, sentence in enumerate(_SENTENCE.split(text))
    ]  # fmt: skip
    wanted = set(_words(question))
    ranked = sorted(
        sentences, key=lambda one: -len(wanted & set(_words(one[2]))) / max(1, len(_words(one[2])))
    )
    left = kept * sum(len(_words(sentence)) for *_, sentence in sentences)
    chosen: list[tuple[int, int, str]] = []
    for one in ranked:
        if (left := left - len(_words(one[2]))) < 0 and chosen:
            break
        chosen.append(one)
    chosen.sort()
    texts_of = {at: " ".join(sentence for place, _, sentence in chosen if place == at) for at, *_ in chosen}
    return tuple(texts_of.values())


def fewer_words(texts: Sequence[str], base: Sequence[str], kept: float = KEPT) -> Key:
    """Drops the least informative words, those that are most frequent in the base, until a share is left."""
    counts: dict[str, int] = {}
    for text in base:
        for word in set(_words(text)):
            counts[word] = counts.get(word, 0) + 1
    made = []
    for text in texts:
        words = text.split(" ")
        rarity = sorted(range(len(words)), key=lambda at: counts.get("".join(_words(words[at])), 0))
        left = set(rarity[: max(1, round(kept * len(words)))])
        made.append(" ".join(word for at, word in enumerate(words) if at in left))
    return tuple(made)


def numbers(
    gains: Mapping[str, Floats], before: Mapping[str, Floats], found: Mapping[str, Sequence[Mapping[str, Key]]],
    seed: int, model: str,
) -> Table:  # fmt: skip
    """Makes figures 5 and 6: ΔSePer of every method."""
    rows: list[tuple[Cell, ...]] = []
    for name, values in gains.items():
        for at, method in enumerate(METHODS):
            known = values[~np.isnan(values[:, at]), at]
            low, high = of_mean(known, seed)
            length = float(np.mean([sum(map(count_tokens, each[method])) for each in found[name]]))
            rows.append((
                f"{name}: {method}", float(np.nanmean(before[name])), float(known.mean()), low, high,
                100 * float(np.mean(known < -0.05)), length, len(known),
            ))  # fmt: skip
    columns = (
        "context", "SePer without", "ΔSePer", "low", "high", "under −0.05, %", "tokens of the context", "questions",
    )  # fmt: skip
    notes = (
        f"Reader and judge: {model} unless told otherwise; 10 answers a context. Searches with BM25 over the world's "
        "corpus with the passages of the harder cases in it; of two hops each searches by its own query, and their "
        f"finds take turns. Re-ranked: the {LAST} of {FIRST} that the judge finds most relevant to the question. Fewer "
        f"sentences and fewer words: the top {LAST} with {100 * KEPT:.0f} % of their words, those of the sentences "
        "closest to the question, or the rarest. Intervals: 95 % of a bootstrap over questions.",
    )
    return Table(
        "retrieval-gains",
        "What retrieval is worth",
        columns,
        tuple(rows),
        source=f"{SOURCE}, figures 5 and 6",
        notes=notes,
    )


def against(
    gains: Mapping[str, Floats], found: Mapping[str, Sequence[Mapping[str, Key]]], seed: int
) -> Table:
    """Returns the figures as differences to those of the top 5 passages of the same questions."""
    rows: list[tuple[Cell, ...]] = []
    base = METHODS.index(BASE)
    for name, values in gains.items():
        for at, method in enumerate(METHODS):
            if method == BASE:
                continue
            gap = values[:, at] - values[:, base]
            gap = gap[~np.isnan(gap)]
            low, high = of_mean(gap, seed)
            shorter = [
                1 - sum(map(count_tokens, each[method])) / max(1, sum(map(count_tokens, each[BASE])))
                for each in found[name]
            ]
            rows.append(
                (f"{name}: {method}", float(gap.mean()), low, high, 100 * float(np.mean(shorter)), len(gap))
            )
    columns = ("context", f"ΔSePer less that of the {BASE}", "low", "high", "tokens saved, %", "questions")
    return Table(
        "retrieval-differences", f"Beside the {BASE}", columns, tuple(rows), source=f"{SOURCE}, figures 5 and 6",
        notes=("Differences on the same questions; intervals: 95 % of a bootstrap over questions.",),
    )  # fmt: skip


async def costs(
    cases: Mapping[str, Sequence[Case]], found: Mapping[str, Sequence[Mapping[str, Key]]], reader: Engine,
    judge: Engine, progress: Progress,
) -> Table:  # fmt: skip
    """Makes table 8: the cost of one context by each scorer, in prompts and tokens."""
    rows: list[tuple[Cell, ...]] = []
    name, some = next(iter(cases.items()))
    contexts = [
        Context(
            id=f"cost {number}", question_id=f"{number}", question=case.question, references=tuple(case.references),
            passages=tuple(map(Passage, found[name][number][BASE])), answer=case.answer, sub_questions=(case.question,),
        )
        for number, case in enumerate(some[: max(1, len(some) // 4)])
    ]  # fmt: skip
    for scorer in ("belief", "utility", "coverage", "grades"):
        scored = await score_contexts(contexts, reader, judge=judge, scorers=(scorer,), progress=progress)
        usage = [_usage(one.scores) for one in scored]
        rows.append((scorer, *(float(np.mean(column)) for column in zip(*usage, strict=True)), len(contexts)))
    notes = (
        f"Means over contexts of {LAST} passages and one hop. Prompts that were answered before are counted as well. "
        "In tokens and not in seconds or money: nano answers on the processor at hand, and no paid server was asked.",
    )
    return Table(
        "retrieval-costs", "What a score costs", ("scorer", "prompts", "prompt tokens", "output tokens", "contexts"),
        tuple(rows), source=f"{SOURCE}, table 8", notes=notes, digits=1,
    )  # fmt: skip


def _usage(scores: Sequence[Score]) -> tuple[float, float, float]:
    """Returns the prompts and tokens of a context's scores together."""
    used = [score.usage for score in scores if score.usage is not None]
    return (
        float(sum(one.prompts for one in used)), float(sum(one.prompt_tokens for one in used)),
        float(sum(one.output_tokens for one in used)),
    )  # fmt: skip


def _belief(believed: Believed) -> float:
    return believed.measures.get("seper", math.nan)


def _words(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(text)]
