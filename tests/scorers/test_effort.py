"""The levels of effort, and that a setting of scoring is described once: everything else is made of its field."""

import asyncio
import inspect
from dataclasses import fields, replace
from pathlib import Path

import pytest
from support.commands import ragguard

from docs import generate
from ragguard import Passage, RagGuard
from ragguard.errors import InvalidInput
from ragguard.scale import PartJob
from ragguard.scorers import Belief, Utility
from ragguard.scorers.catalogue import LEVELS
from ragguard.scorers.settings import OPTION, ScoringSettings
from ragguard.scorers.view import Caps
from ragguard.service.configuration import Options, ServiceSettings
from ragguard.text.language import Language

OTHER = {
    "engine": "http://127.0.0.1:9/v1", "engine_args": {"dtype": "float32"}, "effort": "low", "judge": "nano",
    "entailer": "http://127.0.0.1:9/v1", "scorers": ("grades",), "prompts": "nano", "caps": Caps(passages=3),
    "language": Language(articles=("der",), abstentions=(), blanks=(), turns=(), endings=()), "relevance": "binary",
    "budget": {"requests": 5},
}  # fmt: skip
"""A value of each setting that is not its default."""


def names_of_scores(effort):
    with RagGuard("nano", effort=effort, store=None, when="run") as rg:
        with rg.run("Who founded Corwell Mills?", references=["Ursula Almberg"]) as run:
            run.retrieved("Who founded Corwell Mills?", [Passage("Ursula Almberg founded Corwell Mills.")])
            run.answered("Ursula Almberg")
        assert rg.flush(timeout=60)
        return {score.name for score in rg.scores(run.id)}


def test_each_level_gives_what_it_says_and_the_higher_one_asks_more():
    low, medium, high = map(names_of_scores, LEVELS)
    assert "delta_likelihood" in low
    assert not {"utility", "seper", "coverage"} & low
    assert {"utility", "seper", "delta_likelihood"} <= medium
    assert not {"coverage"} & medium
    assert {"utility", "seper", "coverage", "credit", "answer_correct"} <= high


def test_the_page_begins_with_the_costs_that_the_planner_foretells():
    prompts = [int(row.split("|")[4]) for row in generate.effort().splitlines()[2:]]
    assert prompts == sorted(prompts)
    page = (Path(__file__).parents[2] / "docs" / "reference" / "settings.md").read_text()
    assert page.index(generate.effort()) < page.index("## RagGuard")


def test_what_is_set_by_hand_goes_before_the_effort():
    by_hand = ScoringSettings(effort="low", scorers=("grades",), caps=Caps(passages=3))
    assert by_hand.chosen_scorers == ("grades",)
    assert by_hand.chosen_caps == Caps(passages=3)
    assert ScoringSettings(effort="low").chosen_caps == LEVELS["low"].caps
    _, belief, utility = ScoringSettings(engine="nano", effort="medium").build()._scorers
    assert isinstance(belief, Belief)
    assert belief.by == "auto"
    assert isinstance(utility, Utility)


@pytest.mark.parametrize(("engine", "effort"), [("nano", "high"), ("smol", "low")])
def test_without_an_effort_everything_is_asked_but_of_smol(engine, effort):
    default = ScoringSettings(engine=engine)
    assert default.chosen_effort == effort
    assert (
        default.chosen_scorers
        == LEVELS[effort].scorers
        == ScoringSettings(engine, effort=effort).chosen_scorers
    )
    field = {one.name: one for one in fields(ScoringSettings)}["effort"]
    assert field.metadata[OPTION].default == "high, or for smol low"
    assert "None: `high`, or `low` for `smol`" in generate.settings()


def test_an_unknown_effort_is_refused_where_it_is_given():
    with pytest.raises(InvalidInput, match="effort"):
        RagGuard("nano", effort="most", store=None)


def test_a_command_takes_an_effort(tmp_path):
    line = '{"question": "Who founded Corwell Mills?", "steps": [{"query": "q", "passages": [{"text": "A mill."}]}]}\n'
    (tmp_path / "runs.jsonl").write_text(line)
    said = [
        ragguard(
            "score", tmp_path / "runs.jsonl", "-e", "nano", "--effort", effort, "--dry-run", code=0
        ).output
        for effort in LEVELS
    ]
    assert len(set(said)) == 3


@pytest.mark.parametrize("name", [one.name for one in fields(ScoringSettings)])
def test_a_setting_of_scoring_reaches_arguments_pages_commands_and_jobs(name, tmp_path):
    assert name in inspect.signature(RagGuard).parameters
    (found,) = (value for *_, value in generate.public() if value is RagGuard)
    assert {one.name: one.meaning for one in generate.arguments(found)}[name]
    (one,) = (one for one in fields(ScoringSettings) if one.name == name)
    for command in ("score", "serve"):
        (options,) = (made for given, _, made in generate.commands() if given == command)
        shown = [flag for option in options for flag in option.name.split(", ")]
        assert (f"--{name}" in shown) is (OPTION in one.metadata)
    usual = ScoringSettings(engine="nano", scorers=None if name == "effort" else ("utility",))
    changed = replace(usual, **{name: OTHER[name]})
    reached = getattr(Options(**{name: OTHER[name]}).configuration.scoring, name)
    assert reached == getattr(changed, name) if name != "budget" else reached is not None
    if name != "budget":  # which a job refuses
        digests = {PartJob(scoring=scoring, out=str(tmp_path)).digest for scoring in (usual, changed)}
        assert len(digests) == 2


@pytest.mark.parametrize("name", [one.name for one in fields(ServiceSettings)])
def test_a_setting_of_the_service_is_an_argument(name):
    assert name in inspect.signature(RagGuard).parameters


def test_a_wrong_argument_names_ragguard():
    with pytest.raises(TypeError, match=r"RagGuard\.__init__\(\) got an unexpected keyword argument 'stor'"):
        RagGuard("nano", stor=None)


def test_a_plan_of_the_page_asks_no_model():
    with pytest.raises(AssertionError, match="asks no model"):
        asyncio.run(generate._Described().continuations([], []))
