"""What readers of scores say of a model that failed its examination, and that RAGGUARD_EXAM=off silences all of it."""

import pytest
from support.commands import ragguard
from support.examinee import examinee

from ragguard import RagGuard
from ragguard.engines.prompts import load_prompts
from ragguard.scorers.exam.record import ExamRecord, keep_record, record_file

FAILED = "failed its examination in abstention"


@pytest.fixture
async def stores(tmp_path, monkeypatch):
    """Two stores scored by a model that is known, later, to have failed."""
    monkeypatch.setenv("RAGGUARD_EXAMS", str(tmp_path / "exams"))
    monkeypatch.chdir(tmp_path)
    engine = examinee()
    for name in ("before.db", "after.db"):
        with RagGuard(engine, scorers=["utility"], store=tmp_path / name) as rg:
            with rg.run("Who?") as run:
                run.retrieved("Who?", ["Ada."])
            assert rg.flush(timeout=60)
    info, prompts = await engine.info(), load_prompts("default")
    figures = {"abstention": 0.5, "relevance": 0.9}
    record = ExamRecord(info.model, info.fingerprint, prompts.identity, figures=figures)
    assert keep_record(record, record_file(info, prompts))


@pytest.mark.parametrize("switch", ["", "off"])
def test_readers_heed_examinations_unless_they_are_switched_off(stores, tmp_path, monkeypatch, switch):
    monkeypatch.setenv("RAGGUARD_EXAM", switch)
    is_heeded = switch != "off"

    def text_of(*line):
        done = ragguard(*line)
        return done.exit_code, " ".join(done.output.split())

    assert (FAILED in text_of("report", "before.db")[1]) == is_heeded
    assert text_of("report", "before.db", "--html", "page.html")[0] == 0
    assert (FAILED in (tmp_path / "page.html").read_text("utf-8")) == is_heeded
    code, words = text_of("compare", "before.db", "after.db", "--fail-if", "udcg < -0.5")
    assert (code, FAILED in words) == ((2, True) if is_heeded else (0, False)), words
