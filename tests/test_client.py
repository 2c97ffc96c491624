"""RagGuard as its users call it: from scripts, event loops, notebooks, workers."""

import asyncio
import json
import logging
from dataclasses import replace

import pytest
from support.commands import ragguard
from support.program import run_program
from support.runs import a_run
from support.scripted_engine import ScriptedEngine
from support.scripted_pipeline import ListSink
from support.stored import closed_after

from ragguard import Passage, RagGuard, Run, read_runs, world, write_runs
from ragguard.errors import EngineUnreachable, InvalidInput, SchemaMismatch, StoreError, UnknownName
from ragguard.metrics import ENGLISH, Language
from ragguard.records import RetrievalStep
from ragguard.scorers.plan import Plan
from ragguard.storage.source import open_source

GERMAN = Language(articles=("das",), abstentions=("Weiß nicht.",))


def capture(rg, question="who founded the firm?", **more):
    with rg.run(question, **more) as run:
        run.retrieved("firm", [Passage("Nordvik is a firm", "p1"), Passage("bread", "p2")])
        run.answered("Ada Berg")
    return run


def names(scores):
    return {score.name for score in scores}


def test_the_first_lines_a_user_writes(make):
    rg = make()
    with rg.run("who founded the firm based in Oslo?", references=["Ada Berg"]) as run:
        run.retrieved("firm based in Oslo", [Passage("Nordvik is based in Oslo.")])
        run.answered("Ada Berg")
    report = rg.flush(timeout=10)
    assert report
    assert str(report).startswith("everything is scored and stored: 1 scored")
    [captured] = rg.runs()
    assert (captured.question, captured.answer) == ("who founded the firm based in Oslo?", "Ada Berg")
    assert {"utility", "udcg", "udcg_context"} <= names(rg.scores(captured.id))
    assert rg.failures(captured.id) == []


async def test_first_lines_a_user_writes_in_async_code(make):
    rg = make()
    async with rg.run("who?") as run:
        run.retrieved("who?", [Passage("Ada")])
    assert await rg.aflush(10)
    assert "udcg" in names(await rg.score(run))
    assert await rg.aclose(5)


def test_runs_are_a_sequence_read_page_by_page(make):
    rg = make(sample_rate=1.0)
    for number in range(7):
        capture(rg, f"question {number}")
    runs = rg.runs()
    assert len(runs) == 7
    assert runs[0].question == "question 0"
    assert runs[-1].question == "question 6"
    assert [run.question[-1] for run in runs[1:6:2]] == ["1", "3", "5"]
    assert [run.question[-1] for run in runs[::-1]] == list("6543210")
    assert [run.question[-1] for run in runs[5:2:-1]] == ["5", "4", "3"]
    with pytest.raises(IndexError):
        runs[7]
    with pytest.raises(IndexError):
        runs[-8]


def test_without_a_store_everything_works_from_memory(make):
    rg = make(store=None)
    run = capture(rg)
    assert rg.flush(10)
    assert rg.scores(run.id)
    assert rg.delete(run.id)
    assert len(rg.runs()) == 0


# Configuration


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"engine": "magic"}, UnknownName, "engine: got 'magic'"),
        ({"engine": 5}, InvalidInput, "engine: got 5"),
        ({"scorers": ("beleif",)}, UnknownName, "scorers: got 'beleif'"),
        ({"prompts": "nowhere.toml"}, UnknownName, "prompts"),
        ({"sample_rate": 1.5}, InvalidInput, "sample_rate: got 1.5"),
        ({"durability": "some"}, InvalidInput, "durability: got 'some'"),
        ({"on_overflow": "explode"}, InvalidInput, r"on_overflow: got 'explode'; allowed: .*block\(SECONDS\)"),
        ({"queue_size": 0}, InvalidInput, "queue_size: got 0"),
        ({"queue_size": None}, InvalidInput, "queue_size: got None"),
        ({"exit_timeout": None}, InvalidInput, "exit_timeout: got None"),
        ({"scorers": "belief"}, InvalidInput, r"scorers: got 'belief'; allowed: a list of names"),
        ({"judge": "nan0"}, UnknownName, "^judge: got 'nan0'"),
        ({"judge": 5}, InvalidInput, "^judge: got 5"),
        ({"caps": {"steps": 3}}, InvalidInput, "caps: got {'steps': 3}"),
        ({"sinks": [print]}, InvalidInput, "sinks: got .*submit"),
        ({"sinks": 3}, InvalidInput, "sinks: got 3; allowed: a list"),
        ({"concurrency": 0}, InvalidInput, "concurrency: got 0"),
        ({"max_open_runs": 0}, InvalidInput, "max_open_runs: got 0"),
        ({"retention": -1}, InvalidInput, "retention: got -1"),
        ({"references": ["Ada"]}, InvalidInput, "references: .*a function of the question, or a mapping"),
        ({"redact": "x"}, InvalidInput, "redact: .*a function of one text"),
        ({"store": "nowhere/s.db"}, StoreError, "no folder nowhere"),
        ({"budget": {"tokens": -1}}, InvalidInput, "tokens: got -1"),
        ({"otlp": "localhost"}, InvalidInput, "otlp: got 'localhost'"),
        ({"run_ttl": 0}, InvalidInput, "ttl"),
    ],
)  # fmt: skip
def test_wrong_option_is_refused_at_once(options, error, says):
    with pytest.raises(error, match=says):
        RagGuard(**{"engine": ScriptedEngine(), "store": None, **options})


def test_store_of_another_version_is_said_at_once(make, tmp_path):
    make().runs()
    capture(make())
    with closed_after(tmp_path / "s.db") as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(SchemaMismatch, match="another ragguard"):
        make()


def test_what_is_said_of_a_run_is_kept_and_exported_and_scores_nothing_anew(make, tmp_path):
    path = tmp_path / "runs.jsonl"
    with make(redact=lambda text: text.replace("secret", "…")) as rg:
        with rg.run("Who?") as run:
            run.retrieved("who", ["Ada Berg"])
            run.feedback("up")
        assert rg.flush(20)
        before = rg.scores(run.id)
        run.feedback("down", "a secret")
        assert rg.flush(20)
        assert rg.runs()[0].metadata["feedback"] == {"thumb": "down", "note": "a …"}
        assert not rg.feedback("nobody", "up")
        with pytest.raises(InvalidInput, match="'up' or 'down'"):
            rg.feedback(run.id, "sideways")
        assert rg.scores(run.id) == before
        assert rg.feedback(run.id, "up", "after all")
        write_runs(rg.runs(), path)
        (line,) = read_runs(path)
    assert line.metadata["feedback"] == {"thumb": "up", "note": "after all"}


def test_feedback_finds_a_run_by_the_application_s_id_and_by_a_part_that_went_on_with_it(make):
    with make() as rg:
        with rg.run("Who?", id="ticket-7") as first:
            first.retrieved("who", ["Ada Berg"])
        assert rg.feedback("ticket-7", "up")
        assert rg.runs()[0].metadata["feedback"]["thumb"] == "up"
        with rg.run("Who?", resume="ticket-7") as later:
            later.retrieved("who else", ["Ole Dahl"])
        later.feedback("down")
        assert rg.flush(20)
        assert [run.metadata["feedback"]["thumb"] for run in rg.runs()] == ["down"]


# Capture


def test_run_that_is_not_sampled_is_not_stored_and_not_logged(make):
    rg = make(sample_rate=0.0)
    run = capture(rg)
    assert rg.flush(10)
    assert len(rg.runs()) == 0
    assert asyncio.run(rg.score(run)) == []


def test_nothing_the_engine_does_reaches_the_application(make):
    def fault(call):
        raise RuntimeError("an engine of somebody's own")

    rg = make(ScriptedEngine(fault=fault))
    run = capture(rg)
    assert rg.flush(30)
    assert {one.scorer for one in rg.scores(run.id)} <= {"words"}
    assert rg.failures(run.id)


def test_a_budget_holds_for_an_engine_with_layers_of_its_own(make):
    from ragguard import connect

    rg = make(connect(ScriptedEngine()), budget={"tokens": 0})
    run = capture(rg)
    assert rg.flush(10)
    assert {failure.error for failure in rg.failures(run.id)} == {"BudgetExceeded"}


def test_a_users_engine_is_the_users_to_close(make):
    engine = ScriptedEngine()
    rg = make(engine)
    capture(rg)
    rg.close(5)
    assert engine.closed == 0


@pytest.mark.parametrize("stored", [True, False])
def test_sinks_hear_of_a_run_whose_retrieval_failed(make, tmp_path, stored):
    sink = ListSink()
    rg = make(sinks=[sink], store=tmp_path / "s.db" if stored else None)
    with rg.run("who?") as run:
        run.failed("who?", TimeoutError("slow"))
    assert rg.flush(10)
    [heard] = sink.got
    assert [(step.status, step.error) for step in heard.run.steps] == [("error", "TimeoutError: slow")]
    assert rg.flush(10)
    rg.close()
    assert len(sink.got) == 1


def test_capture_after_close_raises_nothing_is_counted_and_makes_flush_and_close_false(make, caplog):
    rg = make()
    capture(rg)
    assert rg.close(10)
    assert rg.flush()
    with caplog.at_level(logging.WARNING):
        capture(rg)
    assert "after close()" in caplog.text
    for report in (rg.flush(), rg.close()):
        assert not report
        assert report.lost == 3
        assert str(report).startswith("not everything is stored")


# Scores on demand


async def test_a_run_of_ones_own_is_scored(make):
    rg = make()
    run = Run(question="who?", steps=[RetrievalStep(query="who?", passages=[Passage("Ada")])])
    scores = await rg.score(run)
    assert "udcg" in names(scores)
    assert scores.failures == []
    assert names(rg.scores(run.id)) == names(scores)


async def test_an_open_run_is_scored_as_it_stands_and_nothing_is_stored(make):
    rg = make(when="run")  # or the step's own score of the open run may be there
    with rg.run("who?") as run:
        run.retrieved("who?", [Passage("Ada")])
        early = await rg.score(run)
        assert "udcg_context" in names(early)
        assert rg.scores(run.id) == []
        run.retrieved("who then?", [Passage("bread")])
    late = await rg.score(run)
    assert len(late) > len(early)
    assert len(rg.scores(run.id)) == len(late)


@pytest.mark.parametrize(("language", "label"), [(ENGLISH, "wrong"), (GERMAN, "abstained")])
async def test_a_declared_language_tells_abstentions(make, language, label):
    rg = make("nano", scorers=("coverage",), language=language)
    (case,) = world.cases(1, seed=3)
    scores = await rg.score(replace(world.make_run(case, seed=1), answer="Weiß nicht!"))
    assert [score.label for score in scores if score.name == "answer_correct"] == [label]


async def test_a_dry_run_asks_nothing(make):
    engine = ScriptedEngine()
    rg = make(engine)
    plan = await rg.score(a_run(), dry_run=True)
    assert isinstance(plan, Plan)
    assert plan.total.prompts > 0
    assert engine.calls == []
    assert len(rg.runs()) == 0


async def test_a_dry_run_of_a_resumed_run_counts_the_steps_before(make):
    engine = ScriptedEngine()
    rg = make(engine, when="run")
    with rg.run("who?", id="x") as run:
        run.retrieved("who?", [Passage("Ada")])
        first = await rg.score(run, dry_run=True)
    assert first == await rg.score(run, dry_run=True) == await rg.score(run.record(), dry_run=True)
    with rg.run(resume="x") as again:
        again.retrieved("who then?", [Passage("bread")])
        both = await rg.score(again, dry_run=True)
    assert both == await rg.score(again, dry_run=True) == await rg.score(rg.runs()[0], dry_run=True)
    assert both.total.prompts > first.total.prompts


async def test_failures_come_with_the_scores(make):
    rg = make(ScriptedEngine(fault=lambda call: EngineUnreachable("nobody")))
    scores = await rg.score(a_run())
    assert {one.scorer for one in scores} == {"words"}
    assert {failure.will_retry for failure in scores.failures} == {True}


def test_runs_beyond_the_bound_of_open_runs_are_said_counted_and_keep_their_answers(make, caplog):
    rg = make(max_open_runs=3, scorers=())
    runs = [rg.run(f"question {number}").__enter__() for number in range(5)]
    for run in runs:
        run.retrieved("late for the first two", [Passage("bread")])
        run.answered("Ada Berg")
    report = rg.flush(10)
    assert not report
    assert report.cut_short == 2
    assert "2 runs ended as abandoned, as more were open than max_open_runs allows" in str(report)
    assert "more than 3 runs are open" in caplog.text
    assert sorted(run.status for run in rg.runs()) == ["abandoned"] * 2 + ["open"] * 3
    for run in runs:
        run.__exit__(None, None, None)
    report = rg.flush(10)
    assert (report.cut_short, report.captured) == (0, 5)
    assert not report  # what the first two retrieved was late
    assert {(run.status, run.answer) for run in rg.runs()} == {("ok", "Ada Berg")}


async def test_files_stream(make):
    rg = make()
    found = [scored async for scored in rg.score_runs((a_run(f"r{n}") for n in range(20)), concurrency=3)]
    assert len(found) == 20
    assert all(scored.scores for scored in found)
    with pytest.raises(InvalidInput, match="concurrency"):
        rg.score_runs([], concurrency=0)


# Loops, threads, processes


def test_any_number_of_loops_one_after_another(make):
    rg = make()
    for number in range(5):
        assert asyncio.run(rg.score(a_run(f"r{number}")))


def test_under_uvloop(make):
    uvloop = pytest.importorskip("uvloop")
    rg = make()

    async def work():
        run = capture(rg)
        assert await rg.aflush(10)
        return await rg.score(run)

    assert uvloop.run(work())


# What it costs to have it


def test_ragguard_is_cheap_to_import_and_make():
    """What it costs is what it loads; `make bench-latency` measures the time."""
    code = (
        "import json, sys; before = set(sys.modules)\n"
        "import ragguard; bare = set(sys.modules) - before\n"
        "ragguard.RagGuard('nano', store=None)\n"
        "print(json.dumps([sorted(bare), sorted(set(sys.modules) - before)]))"
    )
    bare, made = json.loads(run_program(code).stdout)
    assert {name.partition(".")[0] for name in bare} & {
        "asyncio",
        "httpx",
        "numpy",
        "opentelemetry",
        "rich",
    } == set()
    assert len(bare) <= 30
    assert not {
        "opentelemetry.sdk",
        "langchain_core",
        "llama_index",
        "torch",
        "scipy",
        "rich",
        "typer",
    } & set(made)
    assert len(made) <= 450


def test_an_entailer_may_be_an_address(make):
    with pytest.raises(UnknownName, match="gopher:nli"):
        make(entailer="gopher:nli")
    # Nobody answers there: a failure that names it, and nothing raised.
    rg = make(entailer="http://127.0.0.1:9/v1", scorers=("belief",), store=None)
    scores = asyncio.run(rg.score(a_run()))
    assert {one.scorer for one in scores} == {"words"}
    assert any("127.0.0.1:9" in failure.message for failure in scores.failures)


async def test_references_may_be_a_table(make):
    rg = make(references={"Who founded  the firm?": "Ada Berg", "else": ["x", "y"]}, scorers=())
    captured = capture(rg, "who founded the firm?")
    capture(rg, "something else")
    await rg.score(captured)
    assert rg.runs()[0].references == ["Ada Berg"]
    assert rg.runs()[1].references is None


@pytest.mark.parametrize("wrong", ["YES", 1, "true"])
def test_capture_content_that_is_no_bool_is_refused_also_without_spans(wrong):
    with pytest.raises(InvalidInput, match=r"capture_content: got .*True, False"):
        RagGuard(ScriptedEngine(), store=None, capture_content=wrong)


async def test_run_from_elsewhere_that_breaks_the_schema_is_refused_alone():
    two = [Passage("a"), Passage("b")]
    wrong = Run(id="wrong", question="q", steps=[RetrievalStep(query="q", passages=two, candidates=two, k=1)])
    with RagGuard(engine=None, store=None) as rg:
        refused = await rg.add_runs([wrong, Run(id="right", question="q")])
        assert [run.id for run in rg.runs()] == ["right"]
    assert list(refused) == ["wrong"]
    assert "k: got 1" in str(refused["wrong"])


@pytest.mark.parametrize("engine", [None, "nano"])
def test_words_need_no_model_and_none_is_named_behind_their_scores(tmp_path, engine):
    with RagGuard(engine, scorers=["words"], store=tmp_path / "s.db") as rg:
        with rg.run("Who founded the mill?", references="Ada Berg") as run:
            run.retrieved("Who founded the mill?", [Passage("Ada Berg founded the mill.")])
            run.answered("Ada Berg")
        report = rg.flush(30)
        assert (bool(report), report.scored, report.failed) == (True, 1, 0), report
        assert {(one.name, one.value) for one in rg.scores(run.id)} >= {
            ("answer_correct", 1.0),
            ("ungrounded", 0.0),
        }
        assert asyncio.run(rg.score(rg.runs()[0])).failures == []
    assert [one.engines for one in open_source(tmp_path / "s.db").overviews()] == [[]]
    assert "The numbers are those of" not in ragguard("report", tmp_path / "s.db").stdout
    with pytest.raises(
        InvalidInput, match=r'engine: got None; allowed: a model for the scorers; .* only by "words"'
    ):
        RagGuard(engine=None, scorers=["words", "belief"], store=None)
