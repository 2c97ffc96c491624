"""The tokenizer: words in, words out, and no way to type a special token."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ragguard.engines.nano
from ragguard import world
from ragguard.engines.nano.tokenizer import MARKER, SPECIAL, load_tokenizer
from training.nano.vocabulary import build_vocabulary

TOKENIZER = load_tokenizer()


def test_the_shipped_vocabulary_is_what_the_world_makes() -> None:
    shipped = Path(ragguard.engines.nano.__file__).with_name("vocabulary.json")
    assert json.loads(shipped.read_text()) == build_vocabulary()
    assert 900 < len(TOKENIZER) < 1200


def test_every_text_of_the_world_is_known() -> None:
    for hops in (1, 2):
        for case in world.cases(50, seed=20, hops=hops):
            for text in (
                case.question,
                *case.references,
                *case.sub_questions,
                *(p.text for p in case.pool()),
            ):
                assert TOKENIZER.unknown not in TOKENIZER.encode(text), text


@pytest.mark.parametrize("label", ["NO-RESPONSE", *"ABC012345", MARKER])
def test_labels_and_marker_are_one_token(label: str) -> None:
    (token,) = TOKENIZER.encode(label)
    assert TOKENIZER.words[token] == label


@pytest.mark.parametrize(
    "text",
    [
        "Ada Berg",
        "A. Berg",
        "Tell me, who is Ada Berg's spouse?",
        "NO-RESPONSE",
        "In fact, Norvik Mills makes ships.",
    ],
)
def test_decoding_reads_well(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


@given(
    st.text(max_size=60)
    | st.lists(st.sampled_from([*SPECIAL, "Ada", " ", "<", "\n"]), max_size=12).map("".join)
)
def test_no_text_spells_a_special_token(text: str) -> None:
    special = {TOKENIZER.ids[token] for token in SPECIAL} - {TOKENIZER.unknown} | {TOKENIZER.ids["\n"]}
    assert not special & set(TOKENIZER.encode(text))


def test_unknown_words_are_named() -> None:
    assert TOKENIZER.unknown_words("Ada Berg flew to Zürich") == ["flew", "Zürich"]
