"""Notes on why nano's figures differ from a paper's, found at the studies' own size.

The notes hold for nano as reader and judge, at seed 0 and the default number of questions; another model has its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ragguard.analysis.tables import Table
from ragguard.engines.base import EngineInfo

ON_NANO: Mapping[str, tuple[str, ...]] = {
    "belief-utility": (
        "Unlike in the paper, exact match is ahead of ΔSePer on one hop. A right answer is here the "
        "reference's very words, so that comparing words loses nothing; and nano, which compares the answers, "
        "takes wrong ones for right, most of all where the reader guesses: the belief before reading is 0.13 and "
        "0.26 where one guess in 140 is right. Who compares decides: with equal words for meanings ΔSePer reaches "
        "0.998 and 0.585, ahead of exact match (0.995 and 0.478), and 0.802 with both hops (exact match: 0.843).",
        "A hop each a half is not how nano reads: it cannot answer from the first hop alone (ΔSePer 0.01) and "
        "mostly guesses right from the second (0.62). A reader to whom the second is everything reaches 0.61 at "
        "most in 2 hops, and 0.79 with both: that is what ΔSePer with equal words has.",
        "Half known: a near miss takes belief away from what is known by heart (−0.49 for another fact of the "
        "same subject), which the label 0 does not allow for; the paper's appendix B.3 has such cases as negative "
        "utility.",
        "Entropy sees how sure nano becomes and not of what: a falsehood lowers it as much as the truth, and on two "
        "hops a near miss of the same relation lowers it more than the second hop does. On one hop it does well since "
        "table 2 has no falsehoods.",
    ),
    "belief-samples": (
        "As in the paper the curve bends between 5 and 10 answers. From 10 to 20 it changes by 0.01 on one hop "
        "and still rises by 0.02 to 0.03 on two; between draws it moves by more than the paper's 1 %, on 60 and "
        "75 contexts where the paper has thousands.",
        "The step at n = 13 on one hop is one answer in one of the draws: \"Olga Forsblad Forsblad Forsblad …\" has "
        "0.74 of the weight of twenty, as weights are the mean log-probability of an answer's tokens (the "
        "published implementation) and a repetition is probable token by token.",
    ),
    "sets-grades": (
        "Parts, and Statements as far as there is room, only gain with more passages, as HotpotQA and Natural "
        "Questions do in the paper. Two hops gain until K/N_p = 3 and then no more: nano reads two hops in 77 of "
        "100 cases from seven passages and 67 from ten, where it has 99 from the two alone. A fall as on ARXIV is "
        "not seen.",
    ),
    "sets-correlations": (
        "As in the paper T is not behind F where K < N_p, and ahead of nDCG@K of the list where every relevant passage "
        "is wanted (Parts-n). Where any one will do (Statements-n) that nDCG is ahead by 0.06: like the response it is "
        "there with the first relevant passage and gains little from more.",
        "Unlike in the paper, T is behind F where K ≥ N_p and N_p differs between questions (Parts-w): the grade "
        "is about the share of what is wanted, which T does not know. At one K/N_p they are within 0.05 of each "
        "other.",
        "T_u is as good as T at its best α, 0 but for Statements-w and Hard-w: a passage too many costs nano little "
        "beside one that is missing. At larger α it falls far behind T, which is the paper's finding (table by α).",
        "On Hard a passage too many does cost: the best α of T, F and F_e is 1 for K ≥ N_p, where all three are the "
        "precision or go with it.",
    ),
    "sets-order": (
        "nDCG does not overtake F at high K/N_p as on ARXIV, since nano hardly minds the order, and on Hard rather "
        "reads what stands later (Spearman −0.10).",
    ),
    "sets-segments": (
        "F_e is ahead of F by 0.03 and 0.04 on Hard at K/N_p = 3 and 4, as in the paper at high ratios; the table "
        "after this one, with intervals, does not confirm it over all ratios of 3 and more.",
    ),
    "coverage-pipelines": (
        "As in the paper Cov(Z) and α-nDCG order the pipelines as Cov(y) does. τ is higher than the paper's 0.68 "
        "to 0.84 since a passage states one fact and nano finds it nearly always if it is there; on Hard, where it "
        "finds it less often (Cov(y) 0.75 from the oracle's passages), τ with what is right is 0.80.",
        "On Parts and Hops Den(Z) does not follow Den(y), unlike in the paper (0.73 and 0.81): the response has one "
        "sentence of much the same length for each sub-question that it answers, so that its coverage a token is "
        "the same from all contexts (0.97 to 1.10). It does follow Cov(y) (0.80 to 0.99, table with intervals).",
        "Without retrieval nano abstains, where the paper's model covers 21 to 27 of 100 from memory.",
    ),
    "coverage-thresholds": (
        "On Parts and Hops η makes no difference: nothing in the base is hedged or half an answer, so that ratings are "
        "5, or 2 and less. On Hard, with partial answers, the higher threshold lowers Cov(Z) and τ, as in the paper.",
    ),
    "coverage-intervals": (
        "Over the means of contexts, with twelve questions, Cov(Z) and the rank measures are not told apart: "
        "their intervals overlap. Draws of questions repeat some and lose others, which brings noise into the "
        "order of close means: the intervals lie low, some under the value itself.",
        "Within questions Cov(Z) is ahead of every other measure in all six cases of Parts and Hops, as in the paper: "
        "no interval of the difference reaches under 0. The closest is Den(Z), which is Cov(Z) over a length that "
        "hardly differs.",
        "On Hard it is not told apart from them. At |Z*| passages all are near 0.65; from ten passages of several "
        "sentences nano reads too badly for any measure of the context to go with the response (0.12 to 0.25).",
    ),
}  # fmt: skip


def with_reasons(tables: Sequence[Table], reader: EngineInfo, judge: EngineInfo) -> list[Table]:
    """Returns the tables, each with the known reasons for its figures where nano answered and judged."""
    if reader.prompts != "nano" or judge.prompts != "nano":
        return list(tables)
    return [replace(table, notes=(*table.notes, *ON_NANO.get(table.name, ()))) for table in tables]
