"""How many places a step has is what was asked for, wherever somebody says so."""

import pytest

import ragguard
from ragguard import Passage, RagGuard
from ragguard.records import K_ERROR, Decision, Dropped, RetrievalStep, Run, ScoredRun
from ragguard.storage.sqlite.store import Store

TEXTS = ["one", "two", "three"]


@pytest.fixture
def rg(tmp_path):
    with RagGuard("nano", scorers=(), store=tmp_path / "s.db") as made:
        yield made


def steps_of(rg, run):
    rg.flush(timeout=30)
    (stored,) = [one for one in rg.runs() if one.id == run.id]
    assert [one.k for one in run.steps] == [one.k for one in stored.steps]
    return stored.steps


def dropping(texts, kept):
    passages = [Passage(text) for text in texts]
    return Decision(passages[:kept], [Dropped(one, 1, "junk") for one in passages[kept:]], "pruned")


def test_plain_code_says_k(rg):
    @ragguard.retrieval
    def search(query, top_k=4):
        return TEXTS

    @ragguard.retrieval(k=6)
    def lookup(query):
        return TEXTS

    @ragguard.retrieval(k="n")
    def fetch(query, *, n):
        return TEXTS

    with rg.run("who?") as run:
        run.retrieved("given", TEXTS, k=5)
        ragguard.retrieved("anywhere", TEXTS, k=7)
        ragguard.current_run().retrieved("unknown", TEXTS)
        search("default")
        search("by position", 9)
        lookup("fixed")
        fetch("named", n=8)
    steps = steps_of(rg, run)
    assert [(one.query, one.k) for one in steps] == [
        ("given", 5), ("anywhere", 7), ("unknown", None), ("default", 4), ("by position", 9), ("fixed", 6),
        ("named", 8),
    ]  # fmt: skip
    assert steps[2].places == 3


def test_a_guard_never_lowers_k(rg):
    with rg.run("who?") as run:
        run.retrieved("q", TEXTS[:1], candidates=TEXTS, decision=dropping(TEXTS, 1))
        run.retrieved("q", TEXTS[:1], candidates=TEXTS, decision=dropping(TEXTS, 1), k=5)
        run.retrieved("q", [], candidates=TEXTS, decision=dropping(TEXTS, 0))
        run.retrieved("chosen by a reranker", TEXTS[:1], candidates=TEXTS)
    assert [one.places for one in steps_of(rg, run)] == [3, 5, 3, 1]


@pytest.mark.parametrize("k", [0, 2, -3, True, "5", 3.0, object()])
def test_a_k_that_cannot_be_right_is_noted_and_never_used(rg, k):
    @ragguard.retrieval(k="k")
    def search(query, k):
        return TEXTS

    with rg.run("who?") as run:
        run.retrieved("q", TEXTS, k=k)
        search("q", k)
    for step in steps_of(rg, run):
        assert step.k is None
        assert step.metadata[K_ERROR].startswith("k: got ")


def amended(*steps):
    """K after each amendment of a step that had five places of which it filled four."""
    store, found = Store(), []
    passages = [Passage(text) for text in "abcd"]
    store.add_scored(
        [
            ScoredRun(
                Run("r", "q", steps=[RetrievalStep("s", "r", passages=passages, candidates=passages, k=5)])
            )
        ]
    )
    from ragguard.capture.events import StepAmended

    for left, decision in steps:
        store.record([StepAmended("r", "s", left and [Passage(text) for text in left], decision)])
        found.append(store.run("r").steps[0].places)
    return found


def test_amendment_changes_k_only_where_it_chooses():
    reordered, chosen = "dcba", "dc"
    assert amended((reordered, None), (chosen, None), (None, dropping("dc", 1))) == [5, 2, 2]
    assert amended(("a", dropping("abcd", 1))) == [5]
    assert amended((None, dropping("ab", 1))) == [2], "a cut came before the guard, which was given two"
    assert amended(([], None)) == [5], "nothing is no choice"
    assert amended(("abcdefg", None)) == [7], "a step has a place for each of its passages"


@pytest.mark.parametrize("grade", [7, 0, 4.5, True, "5"])
def test_a_grade_that_is_none_is_a_failure_of_its_step(grade):
    with RagGuard(engine="nano", scorers=["grades"], store=None) as rg:
        with rg.run("who?") as run:
            run.retrieved("who?", [Passage("a", grade=grade), {"text": "b", "grade": grade}])
        rg.flush(timeout=60)
        reasons = [one.message for one in rg.failures(run.id) if one.scorer == "capture"]
    assert len(reasons) == 2
    assert all("a whole number from 1 to 5" in reason for reason in reasons)
