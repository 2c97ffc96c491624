"""What does not fit the context of the model that judges is said in the log, in the reports and in the scores."""

import io

from rich.console import Console

from ragguard import RagGuard
from ragguard.analysis.digest import MISLEADS, detail, remarks_on_fit
from ragguard.analysis.hops import print_hops
from ragguard.storage.source import open_source

QUESTION = "When was Corwell Mills founded?"
LEFT_OUT = "1 of the passages read so far did not fit the model's context and was left out of ΔSePer"
ALONE = "passage 1 did not fit the model's context alone: its own scores are about a part"


def test_a_context_that_nano_cannot_read_whole_is_said_in_log_hops_page_and_scores(tmp_path, caplog):
    console = Console(width=200, file=io.StringIO())
    with RagGuard(engine="nano", store=tmp_path / "runs.db", scorers=["belief", "utility"]) as rg:
        for _ in range(2):
            with rg.run(QUESTION, references=["1903"]) as run:
                texts = [
                    "Zantek Foods is based in East Dundale. " * 500,
                    "Corwell Mills was founded in 1903.",
                ]
                run.retrieved(QUESTION, texts)
        assert rg.flush()
        print_hops(rg, console)
        utilities = [score.metadata for score in rg.scores(run.id) if score.name == "utility"]
    assert [record.message for record in caplog.records if "1,024 tokens" in record.message] == [
        "passages do not fit the context of ragguard/nano (1,024 tokens): some were left out or cut before it judged "
        "them. The report says so at their hops, and the scores in their metadata (`dropped_passages`, "
        "`cut_tokens`); an engine or a judge with a longer context judges them whole"
    ]
    shown = console.file.getvalue()
    assert shown.count(LEFT_OUT) == shown.count(ALONE) == 2
    assert [metadata.get("cut_tokens", 0) > 1000 for metadata in utilities] == [True, False]
    source = open_source(tmp_path / "runs.db")
    for overview in source.overviews(MISLEADS):
        [hop] = detail(overview, {})["steps"]
        assert hop["notice"].startswith(LEFT_OUT)
        assert hop["notice"].endswith(ALONE)


def test_the_remarks_on_a_hop_are_about_all_that_was_read_and_about_each_passage():
    assert remarks_on_fit([(None, "udcg", None, None), (1, "utility", None, None)]) == []
    assert remarks_on_fit([(None, "delta_seper", 0, 1)]) == [
        "the passages read so far did not fit the model's context: for ΔSePer, 1 token was cut from them"
    ]
    assert remarks_on_fit(
        [(None, "delta_seper", 2, 1200), (3, "grade", "x", 5), (1, "utility", None, 5)]
    ) == [
        "2 of the passages read so far did not fit the model's context and were left out of ΔSePer, and from the rest "
        "1,200 tokens were cut",
        "passages 1, 3 did not fit the model's context alone: their own scores are about a part",
    ]
