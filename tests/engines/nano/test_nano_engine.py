"""NanoEngine and its tokenizer: what the contract suite does not ask of every engine, and texts that nano does not
understand.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragguard import DistractorGuard, Passage, RagGuard, RetrievalStep, Run, connect, world
from ragguard.engines.entailer import EngineEntailer
from ragguard.engines.entailment import Pair
from ragguard.engines.nano.nano_engine import SPECIAL, NanoEngine, load_tokenizer
from ragguard.engines.prompts import load_prompts
from ragguard.engines.token_model import MARKER, find_out
from ragguard.errors import UnfitText
from training.nano.vocabulary import build_vocabulary

PROMPTS = load_prompts("nano")


def rendered(n: int, seed: int = 40) -> list[object]:
    return [
        PROMPTS.render("abstention", [passage.text], query=case.question)
        for case in world.cases(n, seed=seed)
        for passage in case.pool()
    ]


async def test_profile_of_nano_is_what_looking_at_it_finds() -> None:
    engine = NanoEngine()
    known = await engine.model()
    found = await find_out(known.model)
    assert (found.prefix, found.thinks) == (known.prefix, known.thinks)
    for name in ("model", "kind", "mode", "prompts", "context", "capabilities", "location"):
        assert getattr(found.info, name) == getattr(known.info, name)


async def test_nano_answers_from_gold_and_abstains_without_it() -> None:
    cases = world.cases(60, seed=41)
    engine = NanoEngine()
    asked = [PROMPTS.render("abstention", [c.gold[0].text], query=c.question) for c in cases]
    asked += [PROMPTS.render("abstention", [c.of_kind("unrelated")[0].text], query=c.question) for c in cases]
    p = np.asarray(await engine.label_probs(asked, ["NO-RESPONSE"]))[:, 0]
    assert p[:60].mean() < 0.2
    assert p[60:].mean() > 0.8


TOKENIZER = load_tokenizer()


def test_the_shipped_vocabulary_is_what_the_world_makes() -> None:
    assert build_vocabulary() == TOKENIZER.words
    assert 900 < len(TOKENIZER.words) < 1200


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


@given(
    st.text(max_size=60)
    | st.lists(st.sampled_from([*SPECIAL, "Ada", " ", "<", "\n"]), max_size=12).map("".join)
)
def test_no_text_spells_a_special_token(text: str) -> None:
    special = {TOKENIZER.ids[token] for token in SPECIAL} - {TOKENIZER.unknown} | {TOKENIZER.ids["\n"]}
    assert not special & set(TOKENIZER.encode(text))


QUESTION = "Who was the first man on the Moon?"
PASSAGES = [
    Passage("Apollo 11 landed the first humans on the Moon in July 1969; Neil Armstrong stepped out first."),
    Passage("Yuri Gagarin was the first human in space, in April 1961."),
]


@pytest.mark.parametrize(
    "text",
    [
        QUESTION,
        "Paris is the capital of France.",
        "Wann wurde Berlin zum ersten Mal urkundlich erwähnt?",
        "東京はどこにありますか",
    ],
)
async def test_text_of_which_nano_does_not_know_a_seventh_of_the_words_is_refused(text):
    with pytest.raises(UnfitText, match=r"nano does not know [\d.]+% of the words"):
        await connect("nano").label_probs([text], ["A"])


@pytest.mark.parametrize(
    ("answer", "reference"), [("Nowhere", "Paris"), ("Nobody", "Ada Berg"), ("Kalle Berg", "Xaver Berg")]
)
async def test_answers_that_differ_in_words_that_nano_does_not_know_are_not_called_the_same(
    answer, reference
):
    with pytest.raises(UnfitText, match="nano does not know the words that tell two answers apart"):
        await EngineEntailer(connect("nano")).entail([Pair("Where was Ada Berg born?", answer, reference)])


def test_guard_on_nano_keeps_real_text_with_the_status_unfit():
    guard = DistractorGuard("nano", budget_ms=60_000)
    decision = guard.prune(QUESTION, PASSAGES)
    assert (decision.status, decision.dropped, decision.kept) == ("unfit", [], PASSAGES)
    assert "nano does not know" in decision.reason
    assert "engine=" in decision.reason
    assert guard.health().causes == {"UnfitText": 1}


@pytest.mark.parametrize("query", ["bare retriever", "xxxxxxxxxx?", "東京"])
def test_guard_on_nano_keeps_everything_for_a_short_query_of_which_it_knows_no_word(query):
    known = [Passage("Pia Nordberg founded Norsol Labs."), Passage("Regina Rosstrom founded Corline Mines.")]
    decision = DistractorGuard("nano", budget_ms=60_000).prune(query, known)
    assert (decision.status, decision.kept) == ("unfit", known)
    assert "nano does not know any word of the question" in decision.reason


def test_guard_on_nano_judges_beside_a_passage_that_nano_does_not_know():
    known = [
        Passage("Pia Nordberg founded Norsol Labs."),
        Passage("Regina Rosstrom founded Corline Mines."),
    ]
    decision = DistractorGuard("nano", budget_ms=60_000).prune(
        "Who founded Norsol Labs?", [*known, *PASSAGES]
    )
    assert [drop.passage for drop in decision.dropped] == [known[1]]
    assert decision.kept == [known[0], *PASSAGES]
    assert "2 of 4 could not be judged" in decision.reason


async def test_scores_of_real_text_on_nano_are_failures_with_the_reason():
    run = Run(
        question=QUESTION,
        references=["Neil Armstrong"],
        answer="Neil Armstrong",
        steps=[RetrievalStep(query=QUESTION, passages=PASSAGES)],
    )
    async with RagGuard("nano", store=None) as rg:
        scores = await rg.score(run)
    words = {"answer_in_context", "ungrounded", "answer_correct"}  # of which no model is asked
    assert {one.name for one in scores} <= words
    assert {failure.error for failure in scores.failures} == {"UnfitText"}
