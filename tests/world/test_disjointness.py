"""Held out means held out:

names, phrasings and pairs of the held-out half never occur in what nano is taught.
"""

from __future__ import annotations

import itertools
import re

from ragguard.world import grammar
from ragguard.world.facts import known_world, names
from ragguard.world.grammar import (
    CHAINS,
    RELATIONS,
    fact_phrasings,
    question_phrasings,
    sentence,
)
from training.nano.lessons import Level, make_row

LEVELS = (Level(), Level(4, 0.15, 0.85, 0.85, 0.9), Level(8, 0.3, 0.6, 0.4, 0.3))


def lessons(rows: int = 1500) -> list[str]:
    """Everything nano would read in so many rows of its lessons."""
    texts = []
    for index in range(rows):
        row = make_row(123, index, LEVELS[index % len(LEVELS)])
        texts += row.passages
        for _, slots, answer in row.turns:
            texts += [*slots.values(), answer]
    return texts


def test_no_word_has_two_meanings() -> None:
    lists = [*grammar.VALUES.values(), *itertools.chain(*grammar.NAMES.values())]
    everything = list(itertools.chain(*lists))
    assert len(everything) == len(set(everything))
    assert [len(words) for words in grammar.NAMES["person"]] == [200, 200]


def test_split_names_are_disjoint_and_every_word_is_met_in_training() -> None:
    for kind in ("person", "firm", "town"):
        train, heldout = set(names(kind, "train")), set(names(kind, "heldout"))
        assert not train & heldout
        assert not set(known_world().entities[kind]) & (train | heldout)
        for place in (0, 1):
            assert {n.split(" ")[place] for n in heldout} <= {n.split(" ")[place] for n in train}


def test_no_heldout_name_is_ever_taught() -> None:
    heldout = {name for kind in ("person", "firm", "town") for name in names(kind, "heldout")}
    taught = " | ".join(lessons())
    pairs = set(zip(*(lambda w: (w, w[1:]))(re.findall(r"\w+", taught)), strict=False))
    met = {name for name in heldout if tuple(name.split(" ")) in pairs}
    assert not met


def frames(split: str) -> set[str]:
    """Every sentence and question of a split with blanks for names, as it is seen by a reader."""
    found = set()
    for relation in RELATIONS.values():
        for hedged in (False, True):
            found |= {
                sentence(*phrasing, f"<{relation.subject}>", f"<{relation.object}>")
                for phrasing in fact_phrasings(relation, split, hedged=hedged)  # type: ignore[arg-type]
            }
        found |= {
            sentence(*phrasing, f"<{relation.subject}>", end="?")
            for phrasing in question_phrasings([relation], split)  # type: ignore[arg-type]
        }
    for first, second in CHAINS:
        found |= {
            sentence(*phrasing, f"<{RELATIONS[first].subject}>", end="?")
            for phrasing in question_phrasings([RELATIONS[first], RELATIONS[second]], split)  # type: ignore[arg-type]
        }
    return found


def test_split_phrasings_are_disjoint() -> None:
    train, heldout = frames("train"), frames("heldout")
    assert heldout
    assert not train & heldout
