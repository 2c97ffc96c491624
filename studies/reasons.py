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
        "Unlike in the paper, exact match is ahead of ΔSePer on one hop. There are two reasons. A right answer is "
        "the reference's very words here, so comparing words loses nothing. And nano, which compares the answers, "
        "takes wrong ones for right, most of all if the reader guesses: the belief before reading is 0.13 and "
        "0.26, although one guess in 140 is right. The comparison decides. If only equal words count as one "
        "meaning, ΔSePer reaches 0.998 and 0.585, ahead of exact match (0.995 and 0.478), and 0.802 with both "
        "hops (exact match: 0.843).",
        "The labels give each of two hops a half, but nano does not read so: it cannot answer from the first hop "
        "by itself (ΔSePer 0.01), and mostly guesses right from the second (0.62). A reader to whom the second "
        "hop is everything reaches at most 0.61 in 2 hops, and 0.79 with both. ΔSePer with equal words has just "
        "that.",
        "Half known: a near miss lowers belief in what nano knows by heart (−0.49 for another fact of the same "
        "subject). The label 0 does not allow for that. The paper's appendix B.3 has such cases as negative "
        "utility.",
        "Entropy shows how sure nano becomes, and not of what. A falsehood lowers it as much as the truth. On two "
        "hops a near miss of the same relation lowers it more than the second hop does. On one hop it does well "
        "because table 2 has no falsehoods.",
    ),
    "belief-samples": (
        "As in the paper, the curve bends between 5 and 10 answers. From 10 to 20 it changes by 0.01 on one hop "
        "and still rises by 0.02 to 0.03 on two. Between draws it moves by more than the paper's 1 %, on 60 and "
        "75 contexts; the paper has thousands.",
        "The step at n = 13 on one hop is one answer in one of the draws: \"Olga Forsblad Forsblad Forsblad …\" has "
        "0.74 of the weight of twenty. Weights are the mean log-probability of an answer's tokens, as in the "
        "published implementation, and each token of a repetition is probable.",
    ),
    "sets-grades": (
        "Parts only gain with more passages, and so do Statements while there is room, as HotpotQA and Natural "
        "Questions do in the paper. Two hops gain until K/N_p = 3 and then no more. nano reads two hops rightly "
        "in 77 of 100 cases from seven passages and in 67 from ten; from only the two needed ones it is 99. A "
        "fall as on ARXIV is not seen.",
    ),
    "sets-correlations": (
        "As in the paper, T is not behind F if K < N_p, and is ahead of nDCG@K of the list if every relevant "
        "passage is wanted (Parts-n). If any one is enough (Statements-n), that nDCG is ahead by 0.06: like the "
        "response, it is high with the first relevant passage and gains little from more.",
        "Unlike in the paper, T is behind F if K ≥ N_p and N_p differs between questions (Parts-w). The grade is "
        "about the share of what is wanted, which T does not know. At one K/N_p they are within 0.05 of each "
        "other.",
        "T_u is as good as T at its best α, which is 0 but for Statements-w and Hard-w: a passage too many costs "
        "nano little compared with a missing one. At larger α it falls far behind T, which is the paper's finding "
        "(table by α).",
        "On Hard a passage too many does cost. The best α of T, F and F_e is 1 for K ≥ N_p, so that all three are "
        "the precision or close to it.",
    ),
    "sets-order": (
        "nDCG does not overtake F at high K/N_p as on ARXIV. nano hardly minds the order, and on Hard it rather "
        "reads what comes later (Spearman −0.10).",
    ),
    "sets-segments": (
        "F_e is ahead of F by 0.03 and 0.04 on Hard at K/N_p = 3 and 4, as in the paper at high ratios. The next "
        "table, with intervals, does not confirm that over all ratios of 3 and more.",
    ),
    "coverage-pipelines": (
        "As in the paper, Cov(Z) and α-nDCG order the pipelines as Cov(y) does. τ is higher than the paper's 0.68 "
        "to 0.84, because a passage states one fact and nano nearly always finds a fact that is there. On Hard it "
        "finds it less often (Cov(y) 0.75 from the oracle's passages), and τ with what is right is 0.80.",
        "On Parts and Hops Den(Z) does not follow Den(y), unlike in the paper (0.73 and 0.81). The response has "
        "one sentence of much the same length for each sub-question that it answers. So its coverage for each "
        "token is the same from all contexts (0.97 to 1.10). Den(Z) does follow Cov(y) (0.80 to 0.99, table with "
        "intervals).",
        "Without retrieval nano abstains. The paper's model covers 21 to 27 of 100 from memory.",
    ),
    "coverage-thresholds": (
        "On Parts and Hops η makes no difference: no passage is hedged or half an answer, so ratings are 5, or 2 "
        "and less. On Hard, with partial answers, the higher threshold lowers Cov(Z) and τ, as in the paper.",
    ),
    "coverage-intervals": (
        "Over the means of contexts, with twelve questions, Cov(Z) and the rank measures are not separated: their "
        "intervals overlap. Draws of questions repeat some and lose others, which brings noise into the order of "
        "close means. So the intervals lie low, some under the value itself.",
        "Within questions Cov(Z) is ahead of every other measure in all six cases of Parts and Hops, as in the "
        "paper: no interval of the difference reaches under 0. The closest is Den(Z), which is Cov(Z) divided by "
        "a length that hardly differs.",
        "On Hard Cov(Z) is not separated from them. At |Z*| passages all are near 0.65. From ten passages of "
        "several sentences nano reads too badly for any measure of the context to go with the response (0.12 to "
        "0.25).",
    ),
}  # fmt: skip


def with_reasons(tables: Sequence[Table], reader: EngineInfo, judge: EngineInfo) -> list[Table]:
    """Returns the tables, each with the known reasons for its figures, if nano answered and judged."""
    if reader.prompts != "nano" or judge.prompts != "nano":
        return list(tables)
    return [replace(table, notes=(*table.notes, *ON_NANO.get(table.name, ()))) for table in tables]
