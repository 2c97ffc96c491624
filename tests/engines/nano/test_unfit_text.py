"""nano does not judge text of another world than its own: it says so, and nothing plausible comes out."""

from __future__ import annotations

import pytest

from ragguard import DistractorGuard, Passage, RagGuard, RetrievalStep, Run, connect
from ragguard.engines.base import Message
from ragguard.engines.entailer import EngineEntailer, Pair
from ragguard.engines.nano.tokenizer import load_tokenizer
from ragguard.errors import UnfitText

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


async def test_the_share_that_is_named_is_above_the_largest_one():
    tokenizer = load_tokenizer()
    known = next(word for word in tokenizer.words if word.isalpha())
    template = len(tokenizer.encode_chat([Message("user", "")]))
    text = " ".join(["Xq"] * 20 + [known] * (133 - 20 - template))  # 20 of 133 are 15.04 %
    with pytest.raises(UnfitText, match=r"know 15\.1% of the words of a prompt \(at most 15%"):
        await connect("nano").label_probs([text], ["A"])


async def test_text_of_nanos_world_with_a_strange_name_is_answered():
    probs = await connect("nano").label_probs(["Records show that Kalle Berg is a teacher in Oslo."], ["A"])
    assert probs.p.shape == (1, 1)


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
    assert guard.health().causes == {"unfit": 1}


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
    assert list(scores) == []
    assert {failure.error for failure in scores.failures} == {"UnfitText"}


def test_advice_on_real_text_on_nano_is_to_go_on_and_says_why():
    with RagGuard("nano", store=None, scorers=()) as rg, rg.run(QUESTION) as run:
        run.retrieved(QUESTION, PASSAGES)
        advice = run.advise(60_000)
    assert (advice.action, advice.status) == ("continue", "error")
    assert "nano does not know" in advice.reasons[0]
