"""The metrics: pure functions over arrays that use numpy alone, no model, and no input or output.

The last axis is the list, a boolean `mask` marks its real entries, what is undefined is nan, and what cannot
be right is an `InvalidInput` (a ValueError) that names the argument, its value and what is allowed.
"""

from __future__ import annotations

from ragguard.metrics.agreement import Correlation, Difference, correlate, paired_bootstrap
from ragguard.metrics.answers import (
    brings_answer,
    exact_match,
    likelihood,
    likelihood_total,
    mean_logprob,
    query_gain,
    rouge_l,
    token_f1,
)
from ragguard.metrics.arrays import Aggregate, Padded, aggregate, pad
from ragguard.metrics.belief import (
    attribution,
    cluster,
    kernel,
    sample_weights,
    semantic_entropy,
    seper_hard,
    seper_soft,
    seper_stderr,
)
from ragguard.metrics.credit import enough_after, joint_gain, loss_without, shapley
from ragguard.metrics.distraction import (
    LearnedUdcg,
    Parts,
    distracting_effect,
    udcg,
    udcg_of_parts,
    utility,
    utility_parts,
)
from ragguard.metrics.ranking import average_precision, hits, ndcg, precision, recall, reciprocal_rank
from ragguard.metrics.rarity import grade_weights, harm, n_recall, pct_proc, precision_at_grade, proc, ra_nwg
from ragguard.metrics.registry import METRICS, Metric, find
from ragguard.metrics.subquestions import (
    Subset,
    alpha_ndcg,
    answerable_questions,
    contested,
    coverage,
    density,
    marginal_coverage,
    redundancy,
    required_subset,
)
from ragguard.metrics.topk import BestAlpha, best_alpha, f, f_e, t, t_u
from ragguard.text.language import ENGLISH, Language, normalise
from ragguard.text.statements.abstention import is_abstention
from ragguard.text.statements.verdict import right_by_words

__all__ = [
    "ENGLISH", "METRICS", "Aggregate", "BestAlpha", "Correlation", "Difference", "Language", "LearnedUdcg",
    "Metric", "Padded", "Parts", "Subset", "aggregate", "alpha_ndcg", "answerable_questions", "attribution",
    "average_precision", "best_alpha", "brings_answer", "cluster", "contested", "correlate", "coverage", "density",
    "distracting_effect", "enough_after", "exact_match", "f", "f_e", "find", "grade_weights", "harm", "hits",
    "is_abstention", "joint_gain", "kernel", "likelihood", "likelihood_total", "loss_without",
    "marginal_coverage", "mean_logprob", "n_recall", "ndcg", "normalise", "pad", "paired_bootstrap", "pct_proc",
    "precision", "precision_at_grade", "proc", "query_gain", "ra_nwg", "recall", "reciprocal_rank",
    "redundancy", "required_subset", "right_by_words", "rouge_l", "sample_weights", "semantic_entropy", "seper_hard",
    "seper_soft", "seper_stderr", "shapley", "t", "t_u", "token_f1", "udcg", "udcg_of_parts", "utility",
    "utility_parts",
]  # fmt: skip
