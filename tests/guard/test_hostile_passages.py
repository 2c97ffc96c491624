"""No passage does more than be judged: it stays in its place, gets a probability, and leaves the others alone."""

from __future__ import annotations

import numpy as np
import pytest
from support.hostile_passages import HOSTILE, SPECIAL

from ragguard import DistractorGuard, Passage, connect
from ragguard.engines.prompts import load_prompts

QUERY = "By whom was Hextek Foods founded?"
OTHERS = [
    Passage("Hextek Foods was founded by Birgit Backberg.", id="gold"),
    Passage("It was Esther Hedstrom who founded Tritek Foods.", id="near"),
    Passage("Notably, the main product of Hextek Foods is gloves.", id="same"),
]
TASKS = {
    "abstention": {"query": QUERY},
    "relevance": {"query": QUERY},
    "relevance_with_references": {"query": QUERY, "references": "Birgit Backberg"},
    "answerability": {"question": QUERY},
    "grade": {"query": QUERY},
}
MARK = "MARK"


def test_there_are_many_and_each_is_one_of_its_kind():
    assert len(HOSTILE) >= 60
    assert len({text for _, text in HOSTILE}) == len(HOSTILE)
    assert len({kind for kind, _ in HOSTILE}) >= 8


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", ["default", "nano"])
@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda one: f"{one.kind}-{HOSTILE.index(one)}")
def test_a_passage_stays_in_its_place(hostile, name, task):
    prompts = load_prompts(name)
    marked = prompts.render(task, [MARK], **TASKS[task]).messages
    written = prompts.render(task, [hostile.text], **TASKS[task]).messages
    assert [message.role for message in written] == [message.role for message in marked]
    for before, after in zip(marked, written, strict=True):
        if MARK not in before.content:
            assert after.content == before.content
            continue
        head, tail = before.content.split(MARK)
        assert after.content.startswith(head)
        assert after.content.endswith(tail)
        inside = after.content[len(head) : len(after.content) - len(tail)]
        assert [token for token in SPECIAL if token.lower() in inside.lower()] == []
        assert not any(ord(char) < 9 or 0x202A <= ord(char) <= 0x202E for char in inside)


@pytest.mark.filterwarnings("ignore:.*<unk>.*")
async def test_on_nano_a_verdict_is_a_probability_and_the_others_stay_as_they_are():
    guard = DistractorGuard(connect("nano"), budget_ms=60_000)
    alone = {one.passage.id: one for one in await guard.judged(QUERY, OTHERS)}
    for at, hostile in enumerate(HOSTILE):
        mixed = [*OTHERS]
        mixed.insert(at % 4, Passage(hostile.text, id="hostile"))
        fresh = DistractorGuard(connect("nano"), budget_ms=60_000)
        for one in await fresh.judged(QUERY, mixed):
            assert one.p_abstain is None or 0.0 <= one.p_abstain <= 1.0
            assert one.p_relevant is None or 0.0 <= one.p_relevant <= 1.0
            if one.passage.id == "hostile":
                assert one.p_relevant is not None or "nano does not know" in one.problem, hostile
            else:
                before = alone[one.passage.id]
                assert np.allclose(
                    [one.p_abstain, one.p_relevant, one.utility],
                    [before.p_abstain, before.p_relevant, before.utility],
                    atol=1e-5,
                ), hostile


@pytest.mark.filterwarnings("ignore:.*<unk>.*")
async def test_the_guard_decides_beside_them_all_at_once():
    guard = DistractorGuard(connect("nano"), budget_ms=60_000)
    hostile = [Passage(one.text, id=str(at)) for at, one in enumerate(HOSTILE)]
    decision = await guard.aprune(QUERY, [OTHERS[0], *hostile, *OTHERS[1:]])
    assert decision.status in ("pruned", "kept_all"), decision.reason
    assert "gold" in [passage.id for passage in decision.kept]
