"""The explanation of a run is the same in the terminal, on the page, in JSON and on the span."""

import io
import json
import re

import pytest
from rich.console import Console
from support.commands import ragguard
from support.traced import kept_spans

from ragguard import RagGuard, world
from ragguard.analysis.hops import print_hops
from ragguard.analysis.page import detail
from ragguard.facts.explanation import explain
from ragguard.storage.source import open_source
from ragguard.telemetry.otel import OtelSink


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    """A store with runs of several causes, what was printed of them, and the spans of their scores."""
    store = tmp_path_factory.mktemp("explanations") / "runs.db"
    exporter, provider = kept_spans()
    console = Console(width=300, file=io.StringIO())
    sink = OtelSink(provider, capture_content=True)
    with RagGuard("nano", store=store, sinks=[sink], scorers=["belief", "utility", "coverage"]) as rg:
        for number, case in enumerate(world.cases(3, seed=3, hops=2)):
            wrong = (
                {"mislead": (2,)} if number == 0 else {"miss": (1,), "answer": "1976"} if number == 1 else {}
            )
            made = world.make_run(case, **wrong)
            with rg.run(made.question, references=made.references) as run:
                for step in made.steps:
                    run.retrieved(step.query, step.passages)
                run.answered(made.answer)
        assert rg.flush(timeout=120)
        print_hops(rg, console)
        explanations = {run.id: explain(run, rg.scores(run.id)) for run in rg.runs()}
    return store, explanations, re.sub(" +\n", "\n", console.file.getvalue()), exporter.get_finished_spans()


def test_all_ways_out_say_the_same(scored):
    store, explanations, printed, spans = scored
    assert {found.cause for found in explanations.values()} == {"misled", "missing_hop", "right"}
    source = open_source(store)
    for overview in source.overviews():
        expected = explanations[overview.scored.run.id]
        assert overview.view.explanation == expected
        page = detail(overview, {})
        assert page["explanation"] == expected.text
        assert {
            (hop, rank)
            for hop, step in enumerate(page["steps"], 1)
            for rank, one in enumerate(step["passages"], 1)
            if one["verdict"] == "wrong answer"
        } == expected.wrong
        led = {
            hop for hop, step in enumerate(page["steps"], 1) if "its query took" in "".join(step["remarks"])
        }
        assert led == {hop for hop, _, _ in expected.leads}
        assert expected.text in printed
    on_spans = {
        span.attributes["ragguard.run.id"]: (
            span.attributes["ragguard.run.cause"],
            span.attributes["ragguard.run.explanation"],
        )
        for span in spans
        if span.name == "evaluate run"
    }
    assert on_spans == {id: (found.cause, found.text) for id, found in explanations.items()}


def test_json_has_the_explanation_of_each_run_and_the_scores_of_one(scored):
    store, explanations, *_ = scored
    done = ragguard("report", store, "--json")
    listed = {line["id"]: line for line in json.loads(done.stdout)["runs"]}
    assert {id: (line["cause"], line["explanation"]) for id, line in listed.items()} == {
        id: (found.cause, found.text) for id, found in explanations.items()
    }
    (misled,) = [id for id, found in explanations.items() if found.cause == "misled"]
    one = json.loads(ragguard("report", store, "--json", "--run", misled).stdout)
    assert one["wrong_passages"] == [
        {"hop": hop, "rank": rank} for hop, rank in sorted(explanations[misled].wrong)
    ]
    assert {"answer_correct", "utility"} <= {score["name"] for score in one["scores"]}
    for line in listed.values():
        worth = {hop["hop"]: hop for hop in line["worth"]}
        assert [*worth] == [*range(1, len(worth) + 1)]
        decided = not any(
            words in line["explanation"] for words in ("no clear change", "no hop can be named")
        )
        for hop in worth.values():
            assert hop["paid"] is (decided and hop["worth"] >= 0.05) or hop["by"] == "delta_seper"
            assert hop["through_hop"] is None or worth[hop["through_hop"]]["worth"] == hop["worth"]
    assert any(hop["paid"] for line in listed.values() for hop in line["worth"])


def test_the_source_of_a_wrong_answer_is_marked_whatever_its_utility(scored):
    _, explanations, printed, _ = scored
    assert len(re.findall(r"\+\d\.\d\d   wrong answer\n", printed)) == 1
    assert sum(len(found.wrong) for found in explanations.values()) == printed.count("wrong answer\n")
