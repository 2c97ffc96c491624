"""Lines and ids of texts from outside, and what is said of a selection."""

from __future__ import annotations

import pytest
from rich.console import Console

from ragguard import RagGuard
from ragguard.analysis.hops import hop_table
from ragguard.analysis.wording import about_selections, diagnose_selection, remarks_on_coverage
from ragguard.errors import UnknownName
from ragguard.facts.run_view import RunView
from ragguard.records import Passage, RetrievalStep, Run, Score
from ragguard.storage.source import run_of_part

TIME_ORDERED = [f"01932b4e-77a1-7000-8{n:03d}-{n * 7919:012x}" for n in range(25)]


@pytest.mark.parametrize("part", ["01932b4e-77a1-7000-8003-000000005ccd", "8003", "5ccd"])
def test_run_is_meant_by_its_id_or_by_a_part_that_no_other_has(part):
    assert run_of_part(part, TIME_ORDERED) == TIME_ORDERED[3]


def test_a_part_of_several_names_some_and_one_of_none_says_so():
    with pytest.raises(UnknownName, match=r"0193.*it fits .* and others"):
        run_of_part("0193", TIME_ORDERED)
    for part in ("nothing like it", ""):
        with pytest.raises(UnknownName, match=r"the latest are .*ragguard report"):
            run_of_part(part, TIME_ORDERED)


@pytest.mark.parametrize(
    ("proc", "chosen", "sentence"),
    [
        (0.3, 0.9, "The retriever loses most: its candidates allow 0.30 of"),
        (
            0.9,
            0.5,
            "What chooses after the retriever, a reranker or the guard, loses most: candidates allow 0.90 of",
        ),
        (1.0, 0.99, "Retriever and selection lose next to nothing: candidates allow 1.00 of"),
    ],
)
def test_the_greater_loss_is_laid_to_retriever_or_selection(proc, chosen, sentence):
    rest = f"the best set (PROC), of which {chosen:.0%} was chosen (%PROC)."
    assert diagnose_selection(proc, chosen) == f"{sentence} {rest}"


def test_many_steps_are_weighed_by_what_their_candidates_allow():
    assert about_selections([(0.2, 1.0), (0.4, 0.5)]) == (
        "Over 2 steps: The retriever loses most: its candidates allow 0.30 of the best set (PROC), of which 67% was "
        "chosen (%PROC)."
    )
    assert about_selections([(0.0, 0.0)]).startswith(
        "Over 1 step: The retriever loses most: its candidates allow 0.00"
    )


def test_a_coverage_says_if_no_passage_has_the_name_that_the_query_asks_about():
    def remarks(query, *texts, added=1.0):
        run = Run(
            id="r",
            question="q",
            steps=[RetrievalStep("s", "r", query=query, passages=[*map(Passage, texts)])],
        )
        scores = [Score(name, added, "step", "r", "s") for name in ("coverage", "delta_coverage")]
        (hop,) = RunView(run, scores).hops
        return remarks_on_coverage(hop)

    query, other = "Where was Elmer Hagblad born?", "Margit Hagblad was born in Oslo."
    assert remarks(query, other) == [
        "coverage is the judge's: no passage that was read has “Elmer Hagblad” of the query, so they may be about "
        "something else"
    ]
    assert remarks(query, other, "Elmer Hagblad sails.") == []
    assert remarks(query, other, added=0.0) == []
    assert remarks(query, "") == []
    assert remarks("where was he born?", other) == []


def test_a_coverage_that_is_complete_beside_open_sub_questions_of_advice_says_why(tmp_path):
    with RagGuard("nano", store=tmp_path / "runs.db", scorers=["coverage"]) as rg:
        with rg.run("Where was the founder of Norsol Labs born?", references="East Dundale") as run:
            founders = ["Pia Nordberg founded Norsol Labs.", "Regina Rosstrom founded Corline Mines."]
            run.retrieved("Who founded Norsol Labs?", founders)
            assert run.advise(budget_ms=60_000).open_sub_questions == ["Where was Pia Nordberg born?"]
            run.retrieved("Where was Pia Nordberg born?", ["Pia Nordberg was born in East Dundale."])
            assert run.advise(budget_ms=60_000).open_sub_questions == []
            run.answered("East Dundale")
        rg.flush()
        (run,) = rg.runs()
        view = RunView(run, rg.scores(run.id))
    assert [hop.find("coverage").value for hop in view.hops] == [1.0, 1.0]
    first, second = (remarks_on_coverage(hop) for hop in view.hops)
    assert first[0].startswith(
        "advice and coverage differ: advice names in a sub-question who or what was read"
    )
    assert second == []
    lines = Console(width=300)
    with lines.capture() as shown:
        lines.print(hop_table(view))
    assert shown.get().count(first[0]) == 1
