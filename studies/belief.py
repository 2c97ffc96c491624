"""SePer's experiments (Dai et al. 2025): whether a change of belief tells the worth of a passage. Table 2, figure 3,
and the properties that section 3.2 asks of a measure of utility, with the cases of tables 6 and 7.

The world gives the worth of every passage: 1 where it states the answer, a half for each of two hops, and 0 for
anything else and for what the reader knows by heart already.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ragguard import world
from ragguard.analysis.tables import Cell, Table
from ragguard.engines.base import Engine
from ragguard.engines.connect import connect
from ragguard.lab.validation.contexts import Progress, silent
from ragguard.metrics import correlate
from ragguard.metrics.arrays import Floats
from ragguard.scorers.contexts import CLOSED_BOOK, Key
from ragguard.world import Case, PassageKind
from studies.beliefs import Asked, Beliefs, Believed
from studies.pooled import pooled, pooled_difference
from studies.reasons import with_reasons

REPEATS = 5
"""The number of times that the answers of figure 3 and table 4 are drawn, as in the paper."""
SIZES = (1, 5, 10, 20)
"""The numbers of answers for which table 4 is made; the paper has 10."""
# A gain is after − before; for a measure that grows with doubt, before − after.
METHODS = {
    "Exact match": ("exact_match", 1),
    "ROUGE-L": ("rouge_l", 1),
    "Token F1": ("token_f1", 1),
    "BLEU": ("bleu", 1),
    "Matched word vectors": ("matched", 1),
    "Perplexity": ("perplexity", -1),
    "Entropy": ("entropy", -1),
    "Semantic entropy": ("semantic_entropy", -1),
    "Judge, with references": ("judge", 1),
    "Relevance of the passage (judge)": ("relevance", 1),
    "ΔSePer, equal words for meanings": ("seper_words", 1),
    "ΔSePer, soft, an answer a vote": ("seper_votes", 1),
    "ΔSePer, hard": ("seper_hard", 1),
    "ΔSePer, soft": ("seper", 1),
}
BEST = "ΔSePer, soft"


@dataclass(frozen=True, slots=True)
class Reading:
    """A context of a question, and its worth."""

    question: int
    kind: str
    context: Key
    worth: float
    """The worth; nan for a falsehood, which is worth less than nothing by an unknown amount."""


@dataclass(frozen=True, slots=True)
class DataSet:
    """The readings that one column is about."""

    name: str
    readings: tuple[Reading, ...]

    @property
    def worth(self) -> list[float]:
        return [reading.worth for reading in self.readings]

    @property
    def questions(self) -> list[int]:
        return [reading.question for reading in self.readings]


def readings_of(case: Case, question: int) -> list[Reading]:
    """Returns the contexts of a case: every single passage that a paper's data set has, one of each kind, and both
    hops."""

    def first(kind: PassageKind, hop: int) -> str:
        return next(p.text for p in case.of_kind(kind) if p.metadata.get("hop", hop) == hop)

    if case.hops == 1:
        found: list[tuple[str, Key, float]] = [
            ("states the answer", (case.gold[0].text,), 0.0 if case.known else 1.0)
        ]
    else:
        one, two = (passage.text for passage in case.gold)
        found = [("first hop", (one,), 0.5), ("second hop", (two,), 0.5), ("both hops", (one, two), 1.0)]
    found += [
        ("near miss, same relation", (first("same_relation", case.hops),), 0.0),
        ("near miss, same subject", (first("same_subject", 1),), 0.0),
        ("unrelated", (first("unrelated", 0),), 0.0),
        ("contradicts", (first("contradiction", case.hops),), math.nan),
    ]
    return [Reading(question, kind, context, worth) for kind, context, worth in found]


async def study(
    engine: Engine,
    *,
    questions: int = 30,
    seed: int = 0,
    progress: Progress = silent,
    judge: Engine | None = None,
) -> list[Table]:
    """Makes the tables, over as many questions of one hop, of one hop known by heart, and of two hops."""
    reader = connect(engine)
    judging = reader if judge is None or judge is engine else connect(judge)
    kinds = ((1, False, REPEATS), (1, True, 1), (2, False, REPEATS))
    cases = [world.cases(questions, seed=seed, hops=hops, known=known) for hops, known, _ in kinds]
    readings: list[list[Reading]] = []
    asked: list[Asked] = []
    for group, (_, _, repeats) in zip(cases, kinds, strict=True):
        for number, case in enumerate(group):
            readings.append(readings_of(case, len(asked)))
            contexts = tuple(reading.context for reading in readings[-1])
            # Repeated draws cost most: half of the questions show how much a repetition changes.
            times = repeats if 2 * number < questions else 1
            asked.append(Asked(case.question, tuple(case.references), contexts, times))
    believed = await Beliefs(reader, judging, seed=seed * 1000, progress=progress).of(asked)
    model = (await reader.info()).model
    sets, left_out = data_sets(readings, believed, questions)
    tables = [
        correlations(sets, believed, left_out, model),
        intervals(sets, believed),
        samples(sets, believed),
        stability(sets, believed),
        properties(readings, believed, questions),
    ]
    return with_reasons(tables, await reader.info(), await judging.info())


def data_sets(
    readings: Sequence[Sequence[Reading]], believed: Sequence[dict[Key, Believed]], questions: int
) -> tuple[list[DataSet], int]:
    """Returns the columns, and how many questions are left out as the reader answers them without any passage."""
    worth = [[one for one in group if not math.isnan(one.worth)] for group in readings]
    unknown = [one_hop for one_hop in range(questions) if not _succeeds(believed[one_hop])]
    one_hop = [one for at in unknown for one in worth[at]]
    known = [one for group in worth[questions : 2 * questions] for one in group]
    two_hops = [one for group in worth[2 * questions :] for one in group]
    sets = [
        DataSet("1 hop", tuple(one_hop)),
        DataSet("1 hop, half known", tuple(one_hop + known)),
        DataSet("2 hops", tuple(one for one in two_hops if len(one.context) == 1)),
        DataSet("2 hops, also both", tuple(two_hops)),
    ]
    return sets, questions - len(unknown)


def gains(readings: Iterable[Reading], believed: Sequence[dict[Key, Believed]], method: str) -> list[float]:
    """Returns how much each context changed the belief, measured by one method; nan where the method has no number."""
    name, sign = METHODS[method]
    return [
        sign
        * (
            believed[one.question][one.context].measures.get(name, math.nan)
            - believed[one.question][CLOSED_BOOK].measures.get(name, math.nan)
        )
        for one in readings
    ]


def correlations(
    sets: Sequence[DataSet], believed: Sequence[dict[Key, Believed]], left_out: int, model: str
) -> Table:
    """Makes table 2: Pearson, over all contexts of a data set."""
    rows: list[tuple[Cell, ...]] = []
    for method in METHODS:
        values = [
            pooled(gains(s.readings, believed, method), s.worth, s.questions, draws=2).value for s in sets
        ]
        rows.append((method, *values))
    rows.append(("Contexts", *(len(s.readings) for s in sets)))
    return Table(
        "belief-utility",
        "ΔSePer and what a passage is worth: Pearson correlations",
        ("Method", *(s.name for s in sets)),
        tuple(rows),
        source="SePer, table 2",
        notes=(
            f"Reader and judge: {model} unless a row says otherwise; 10 answers a context at temperature 1. All "
            "measures are of the same answers, each as its change from no passage to the passage.",
            f"As in the paper, questions that the reader answers without a passage are left out of 1 hop: {left_out}. "
            "In \"half known\" as many questions come back that are known by heart, whose passages are worth 0.",
            "BLEU counts runs of up to four words, of a shorter answer those that it has (sacrebleu). BERTScore "
            "needs an encoder, which no small package has. Only its matching of words is used, with the vectors "
            "of nano's vocabulary, without context. Auto-J, a judge that grades without references, is left out.",
        ),
    )  # fmt: skip


def intervals(sets: Sequence[DataSet], believed: Sequence[dict[Key, Believed]]) -> Table:
    """Makes table 2 with its errors: draws of whole questions, and the mean of the correlations within questions."""
    rows: list[tuple[Cell, ...]] = []
    for data_set in sets:
        best = gains(data_set.readings, believed, BEST)
        for method in METHODS:
            values = gains(data_set.readings, believed, method)
            found = pooled(values, data_set.worth, data_set.questions)
            gap = pooled_difference(best, values, data_set.worth, data_set.questions)
            within = correlate(values, data_set.worth, "pearson", data_set.questions, flat=0.0)
            none = method == BEST
            rows.append(
                (
                    f"{data_set.name}: {method}", found.value, found.low, found.high,
                    None if none else gap.value, None if none else gap.low, None if none else gap.high,
                    within.value, within.low, within.high, within.counted, within.skipped,
                )
            )  # fmt: skip
    columns = (
        "Method", "r", "low", "high", "ΔSePer, soft, is higher by", "low", "high",
        "r within questions", "low", "high", "questions", "skipped",
    )  # fmt: skip
    notes = (
        "Intervals: the middle 95 % of draws of whole questions. Within questions: the mean of the questions' own "
        "correlations. A method that says the same of all contexts of a question counts as 0 there. A question "
        "whose contexts are all worth the same is skipped.",
    )
    return Table("belief-intervals", "The same with intervals", columns, tuple(rows), notes=notes)


def samples(sets: Sequence[DataSet], believed: Sequence[dict[Key, Believed]]) -> Table:
    """Makes figure 3: the correlation with a smaller or larger number of answers, and how much it differs between
    draws."""
    shown = repeated(sets, believed)
    columns: list[str] = ["n"]
    found: list[list[Cell]] = []
    for data_set in shown:
        for kind in ("soft", "hard"):
            columns += [f"{data_set.name}, {kind}", "± between draws"]
            curves = by_number(data_set, believed, kind)
            found += [list(curves.mean(axis=0)), list(curves.std(axis=0, ddof=1))]
    draws = len(found[0]) if found else 0
    rows = tuple((n + 1, *(column[n] for column in found)) for n in range(draws))
    notes = (
        f"Mean and standard deviation of the Pearson correlation over {REPEATS} draws of everything, on the first "
        "half of the questions. Hard belief takes only equal words for one meaning here, without entailment.",
    )
    return Table(
        "belief-samples",
        "How many answers ΔSePer needs",
        tuple(columns),
        rows,
        source="SePer, figure 3",
        notes=notes,
    )


def repeated(sets: Sequence[DataSet], believed: Sequence[dict[Key, Believed]]) -> list[DataSet]:
    """Returns the plain data sets with those of their contexts whose answers were drawn several times."""
    return [
        DataSet(s.name, tuple(one for one in s.readings if len(believed[one.question][one.context].soft)))
        for s in sets
        if s.name in ("1 hop", "2 hops")
    ]


def stability(sets: Sequence[DataSet], believed: Sequence[dict[Key, Believed]]) -> Table:
    """Makes tables 4 and 5: how much SePer and its correlation differ between draws of everything, and the p-value."""
    rows: list[tuple[Cell, ...]] = []
    for data_set in repeated(sets, believed):
        after = np.array([believed[one.question][one.context].soft for one in data_set.readings])
        curves = by_number(data_set, believed, "soft")
        before = np.array([believed[one.question][CLOSED_BOOK].soft for one in data_set.readings])
        for n in SIZES:
            if not after.size or n > after.shape[-1]:
                continue
            values, r = after[:, :, n - 1], curves[:, n - 1]
            sigma, spread = float(values.std(axis=1, ddof=1).mean()), float(r.std(ddof=1))
            gain = (values - before[:, :, n - 1])[:, 0]
            found = correlate(gain, data_set.worth, "pearson", flat=0.0)
            shown = "under 1e-12" if found.p < 1e-12 else f"{found.p:.1e}"
            rows.append((
                f"{data_set.name}: {n} answers", sigma, spread, sigma / float(values.mean()),
                spread / float(abs(r.mean())), found.value, shown, len(data_set.readings), values.shape[1],
            ))  # fmt: skip
    columns = (
        "Data", "σ of SePer", "σ of the correlation", "σ/mean of SePer", "σ/mean of the correlation",
        "r of the first draw", "p", "contexts", "draws",
    )  # fmt: skip
    notes = (
        "σ of SePer: the standard deviation over draws of one context's belief, soft, averaged over contexts. p: "
        "of Pearson's correlation over all contexts, as in the paper. Contexts of one question are not "
        "independent, so rely on the intervals of the second table.",
    )
    return Table(
        "belief-stability",
        "How much SePer differs between draws",
        columns,
        tuple(rows),
        source="SePer, tables 4 and 5",
        notes=notes,
    )


def by_number(data_set: DataSet, believed: Sequence[dict[Key, Believed]], kind: str) -> Floats:
    """Returns (repeats, answers): the correlation of ΔSePer from the first 1, 2, … answers of each draw."""
    after = np.array([getattr(believed[one.question][one.context], kind) for one in data_set.readings])
    before = np.array([getattr(believed[one.question][CLOSED_BOOK], kind) for one in data_set.readings])
    change, worth = after - before, data_set.worth
    return np.array(
        [[correlate(values, worth, "pearson", flat=0.0).value for values in draw.T]
         for draw in change.swapaxes(0, 1)]
    )  # fmt: skip


def properties(
    readings: Sequence[Sequence[Reading]], believed: Sequence[dict[Key, Believed]], questions: int
) -> Table:
    """Tests the properties of section 3.2: no gain from what is irrelevant or known, more from more; and tables 6 and
    7's cases."""
    groups = {
        "1 hop": range(questions), "1 hop, known by heart": range(questions, 2 * questions),
        "2 hops": range(2 * questions, len(readings)),
    }  # fmt: skip
    rows: list[tuple[Cell, ...]] = []
    for name, members in groups.items():
        kinds = dict.fromkeys(one.kind for at in members for one in readings[at])
        for kind in kinds:
            chosen = [one for at in members for one in readings[at] if one.kind == kind]
            before = [believed[one.question][CLOSED_BOOK].measures.get("seper", math.nan) for one in chosen]
            change = np.array(gains(chosen, believed, BEST))
            others = [gains(chosen, believed, method) for method in ("ΔSePer, hard", "Entropy")]
            known = change[~np.isnan(change)]
            error = float(known.std(ddof=1) / math.sqrt(len(known))) if len(known) > 1 else None
            rows.append(
                (f"{name}: {kind}", chosen[0].worth, _mean(before), _mean(change),
                 error, *(_mean(values) for values in others), len(chosen))
            )  # fmt: skip
    columns = (
        "Context",
        "worth",
        "SePer before",
        "ΔSePer, soft",
        "±",
        "ΔSePer, hard",
        "entropy falls by",
        "contexts",
    )
    return Table(
        "belief-properties", "What kinds of passages change", columns, tuple(rows),
        source="SePer, section 3.2 and tables 6 and 7",
    )  # fmt: skip


def _succeeds(of_question: dict[Key, Believed]) -> bool:
    """Returns whether the reader means the reference more often than not before it has read anything."""
    return of_question[CLOSED_BOOK].measures.get("seper_hard", 0.0) >= 0.5


def _mean(values: Iterable[float]) -> float | None:
    """Returns the mean of the known values."""
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else None
