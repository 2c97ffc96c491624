"""Two baselines that compare an answer's words with references: BLEU, and BERTScore's matching over word vectors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import as_file, files

import numpy as np
from sacrebleu import BLEU

from ragguard.engines.nano.nano_engine import load_tokenizer
from ragguard.metrics.arrays import Floats
from ragguard.text.language import normalise

_BLEU = BLEU(effective_order=True)
"""Runs of at most four words; of an answer that has fewer words, of as many as it has."""


def bleu(text: str, references: Sequence[str]) -> float:
    """Returns the BLEU of an answer beside its references, from 0 to 1."""
    said = normalise(text)
    return _BLEU.sentence_score(said, [normalise(one) for one in references]).score / 100 if said else 0.0


def matched(text: str, references: Sequence[str]) -> float:
    """Returns how well the words of an answer and of the best reference match, as F1: each word with the one on the
    other side whose vector in nano's vocabulary has the largest cosine. Words have no context here."""
    return max((_f1(_vectors_of(text), _vectors_of(one)) for one in references), default=0.0)


def _f1(said: Floats, wanted: Floats) -> float:
    if not len(said) or not len(wanted):
        return 0.0
    cosines = said @ wanted.T
    precision, recall = cosines.max(axis=1).mean(), cosines.max(axis=0).mean()
    return float(2 * precision * recall / (precision + recall)) if min(precision, recall) > 0 else 0.0


def _vectors_of(text: str) -> Floats:
    return _vectors()[load_tokenizer().encode(text)]


@cache
def _vectors() -> Floats:
    with as_file(files("ragguard.engines.nano") / "weights.npz") as path, np.load(path) as arrays:
        vectors: Floats = arrays["embed"].astype(np.float64)
    lengths: Floats = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-12), dtype=np.float64)
