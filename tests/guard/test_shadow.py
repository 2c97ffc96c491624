"""A guard in shadow decides, drops nothing, and reports say what it would have meant."""

from __future__ import annotations

import re

import pytest
from support.commands import ragguard

from ragguard import DistractorGuard, Passage, RagGuard
from ragguard.guard import TopUtility
from ragguard.storage.sqlite.reader import StoreReader

QUESTION = "Who founded Norsol Labs?"
PASSAGES = [
    Passage("Pia Nordberg founded Norsol Labs.", "right"),
    Passage("Regina Rosstrom founded Corline Mines.", "other"),
    Passage("Carl Dahl is a judge.", "off"),
]


def guard(**settings):
    return DistractorGuard("nano", budget_ms=60_000, shadow=True, **settings)


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    """The store of a run with a guard in shadow, and the guard's decision."""
    path = tmp_path_factory.mktemp("shadow") / "ragguard.db"
    with RagGuard("nano", store=path, scorers=["utility"]) as rg:
        with rg.run(QUESTION, references=["Pia Nordberg"]) as run:
            run.retrieved(QUESTION, PASSAGES)
            decision = guard(policies=[TopUtility(1)]).prune(QUESTION, PASSAGES)
            run.answered("Pia Nordberg")
        assert rg.flush()
    return path, run.id, decision


def test_shadow_keeps_every_passage_and_says_what_would_go(captured):
    _, _, decision = captured
    assert (decision.status, decision.dropped, decision.of("abc")) == ("shadow", [], list("abc"))
    assert [passage.id for passage in decision.kept] == ["right", "other", "off"]
    assert [(drop.position, drop.passage.id) for drop in decision.would_drop] == [(2, "other"), (3, "off")]
    assert all(drop.utility < 0.2 for drop in decision.would_drop)


def test_shadow_that_would_drop_nothing_is_kept_all():
    shadow = guard(threshold=-1.0)
    decision = shadow.prune(QUESTION, PASSAGES)
    assert (decision.status, decision.would_drop) == ("kept_all", [])
    assert shadow.health().statuses == {"kept_all": 1}


def test_stored_step_has_all_passages_as_read_and_the_decision(captured):
    path, run_id, decision = captured
    (step,) = StoreReader(path).run(run_id).steps
    assert [passage.id for passage in step.passages] == ["right", "other", "off"]
    assert step.decision.would_drop == decision.would_drop
    assert step.places == 3


def test_report_says_what_a_guard_in_shadow_would_have_dropped_and_what_that_means(captured):
    path, run_id, decision = captured
    shown = " ".join(ragguard("report", path).output.split())
    assert "would have dropped 2 of 3 passages at 1 step" in shown
    scored = {
        score.position: score.value
        for score in StoreReader(path).scored_run(run_id).scores
        if score.name == "utility"
    }
    misleading = sum(scored[drop.position] < -0.2 for drop in decision.would_drop)
    helpful = sum(scored[drop.position] >= 0.2 for drop in decision.would_drop)
    assert f"{misleading} of them mislead" in shown
    assert re.search(f"and {helpful} helps?", shown)


def test_hops_of_a_run_name_the_ranks_that_would_go(captured):
    path, run_id, _ = captured
    shown = ragguard("report", path, "--run", run_id).output
    assert "the guard, in shadow, would drop passages 2, 3" in shown


def test_report_names_the_run_in_which_a_helpful_passage_would_have_gone(tmp_path):
    path = tmp_path / "ragguard.db"
    with RagGuard("nano", store=path, scorers=["utility"]) as rg:
        with rg.run(QUESTION) as run:
            run.retrieved(QUESTION, PASSAGES)
            guard(policies=[DropFirst()]).prune(QUESTION, PASSAGES)
        assert rg.flush()
    shown = " ".join(ragguard("report", path).output.split())
    assert "and 1 helps: look at" in shown
    assert run.id in shown


class DropFirst:
    needs_utility = True

    def drop(self, judged):
        return {judged[0].position: "the first"}
