"""`auto`: which engine is taken where none is named."""

import asyncio
import json
import logging
from contextlib import aclosing, closing

import pytest
from support.fake_model import FakeModel
from support.misbehaving_server import Reply, serving

from ragguard import RagGuard, connect
from ragguard.engines import connect as connecting
from ragguard.engines.llama import smol
from ragguard.errors import EngineRejected
from ragguard.scale.job import PartJob
from ragguard.scorers.settings import ScoringSettings
from ragguard.storage.sqlite.reader import StoreReader

NAMES = "RAGGUARD_ENGINE", "OPENAI_BASE_URL", "OPENAI_API_KEY", "OPENAI_MODEL"


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch, tmp_path):
    """No engine is named, no server answers, smol has not been fetched; returns what tells of a server at a port."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAGGUARD_MODELS", str(tmp_path))
    monkeypatch.setattr(connecting, "PORTS", ())
    connecting.local_server.cache_clear()
    yield
    connecting.local_server.cache_clear()


def at(*urls):
    return [int(url.rpartition(":")[2].partition("/")[0]) for url in urls]


def listing(*names):
    return lambda request: Reply({"object": "list", "data": [{"id": name} for name in names]})


def test_engine_of_the_environment_comes_first(monkeypatch):
    with serving(listing("local")) as server:
        monkeypatch.setattr(connecting, "PORTS", at(server))
        monkeypatch.setenv("OPENAI_BASE_URL", "https://models.example/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test-of-auto")
        assert connecting.choose().address == f"{server}#local"  # no model is named
        monkeypatch.setenv("OPENAI_MODEL", "big")
        assert connecting.choose().address == "https://models.example/v1#big"
        monkeypatch.setenv("RAGGUARD_ENGINE", "hf:ours")
        assert connecting.choose().address == "hf:ours"


@pytest.mark.parametrize(
    "reply",
    [
        Reply("<html>It works!</html>", headers={"content-type": "text/html"}),
        Reply({"data": []}),
        Reply({"data": [{"id": "nomic-embed-text"}]}),
        Reply({"models": ["x"]}),
        Reply(["x"]),
        Reply({"error": "key?"}, 401),
    ],
)
def test_local_server_without_a_model_is_passed_over(reply, monkeypatch):
    with serving(lambda request: reply) as wrong, serving(listing("qwen", "llama")) as right:
        monkeypatch.setattr(connecting, "PORTS", at(wrong, right))
        choice = connecting.choose()
    assert choice.address == f"{right}#qwen"


def test_local_servers_are_asked_once_and_without_a_key(monkeypatch):
    asked = []
    fake = FakeModel(face="openai", models=("m",))

    def handle(request):
        asked.append((request.path, request.headers.get("authorization")))
        return fake.handle(request)

    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-of-auto")
    with serving(handle) as server:
        monkeypatch.setattr(connecting, "PORTS", at(server))
        engine, _ = connect("auto"), connect("auto")
        assert asked == [("/v1/models", None)]

        async def look():
            async with aclosing(engine):
                return await engine.info()

        assert asyncio.run(look()).model == "m"
    assert {key for _, key in asked} == {None}


def test_server_that_does_not_answer_in_time_is_passed_over(monkeypatch):
    monkeypatch.setattr(connecting, "PATIENCE_S", 0.05)
    with serving(lambda request: Reply({"data": [{"id": "late"}]}, wait_s=5)) as slow:
        monkeypatch.setattr(connecting, "PORTS", at(slow))
        with pytest.raises(EngineRejected, match="no server answers on this machine"):
            connecting.choose()


WAYS = (
    "OPENAI_BASE_URL",
    "OPENAI_API_KEY",
    "OPENAI_MODEL",
    "RAGGUARD_ENGINE",
    "http://HOST",
    "smol",
)


def test_application_without_an_engine_captures_and_is_warned_once(monkeypatch, caplog, tmp_path):
    """Nothing is raised where the application is imported, and no model that was fetched is loaded into it."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-of-auto")
    monkeypatch.setattr(smol, "smol_path", lambda: "weights.gguf")
    for _ in range(2):
        with RagGuard(store=tmp_path / "runs.db") as rg, rg.run("q") as run:
            run.retrieved("q", ["a passage"])
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith("runs are captured and not scored: no engine is named")
    assert all(way in message for way in (*WAYS, "smol, a small model that is fetched already"))
    with closing(StoreReader(tmp_path / "runs.db")) as store:
        assert [len(run.steps) for run in store.runs()] == [1, 1]


def test_words_are_scored_without_an_engine(caplog, tmp_path):
    with RagGuard(store=tmp_path / "runs.db", scorers=["words"]) as rg:
        with rg.run("Who founded Oslo?", references="Harald") as run:
            run.retrieved("q", ["Harald founded Oslo."])
            run.answered("Harald")
        assert rg.flush().scored == 1
        assert "answer_correct" in [score.name for score in rg.scores(run)]
    assert not caplog.records


def test_nothing_anywhere_is_one_sentence_with_the_ways_out_where_a_model_is_needed(monkeypatch):
    with pytest.raises(EngineRejected) as raised:
        connect("auto")
    assert all(way in str(raised.value) for way in (*WAYS, "ragguard fetch smol"))
    monkeypatch.setenv("OPENAI_BASE_URL", "https://models.example/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-of-auto")
    with pytest.raises(EngineRejected, match="OPENAI_MODEL is not set"):
        connect("auto")


def test_choice_is_said_once(monkeypatch, caplog):
    monkeypatch.setenv("RAGGUARD_ENGINE", "nano")
    with caplog.at_level(logging.WARNING, "ragguard"):
        for _ in range(3):
            connect("auto")
    assert [record.getMessage() for record in caplog.records] == [
        "the engine is nano: RAGGUARD_ENGINE names it (engine= or --engine names another)"
    ]


def test_smol_is_chosen_only_for_commands_that_ask_for_it(monkeypatch, caplog):
    monkeypatch.setattr(smol, "smol_path", lambda: "weights.gguf")
    assert connecting.choose(smol=True).address == "smol"
    with pytest.raises(EngineRejected):
        connecting.choose()
    assert ScoringSettings("smol").chosen_scorers == ("likelihood",)
    assert "cannot judge by label" in caplog.text
    assert ScoringSettings("smol", scorers=["utility"]).chosen_scorers == ("utility",)


def test_job_over_parts_names_the_engine_to_every_process(monkeypatch, tmp_path):
    monkeypatch.setenv("RAGGUARD_ENGINE", "nano")
    job = PartJob(scoring=ScoringSettings(), out=str(tmp_path))
    monkeypatch.delenv("RAGGUARD_ENGINE")
    assert job.scoring.engine == "nano"
    assert json.loads(json.dumps(job.record))["scorers"] == ["belief", "utility", "coverage"]


def test_without_scorers_no_engine_is_looked_for_until_it_is_asked():
    with RagGuard(store=None, scorers=()) as rg:
        with rg.run("q") as run:
            run.retrieved("q", ["a passage"])
        assert rg.flush()
        with pytest.raises(EngineRejected, match="no engine is named"):
            asyncio.run(rg.engine.info())
