"""Sub-questions out of a reference report: those that its passages answer, in a file that runs name."""

import asyncio
import json

import pytest
from support.commands import ragguard
from support.scripted_engine import ScriptedEngine

from ragguard import RagGuard, connect, read_runs, write_runs
from ragguard.cli.questions import ReferenceReport, questions_of, read_reports
from ragguard.engines.prompts import load_prompts
from ragguard.errors import InvalidInput, RunFormatError, ScoringError

QUESTION = "How did Corwell Mills begin?"
REPORT = ReferenceReport(
    QUESTION, "Ursula Almberg founded Corwell Mills in 1921.", ("She founded it. That was in 1921.",)
)
WRITTEN = {
    "Write the questions": (
        "1. Who founded Corwell Mills?\n2. When was Corwell Mills founded?\n3. Who sold Corwell Mills?"
    ),
    "rewrite the document": "- Ursula Almberg founded Corwell Mills.\n- Corwell Mills was founded in 1921.",
}
ANSWERED = {("founded Corwell Mills?", "Almberg founded"): 5, ("When was", "in 1921"): 4}


def written(text, index):
    """What the judge writes for a task."""
    return next(answer for task, answer in WRITTEN.items() if task in text)


def rated(text, rating):
    """How likely the judge gives a rating, by the words that a passage shares with the sub-question."""
    known = (best for words, best in ANSWERED.items() if all(word in text for word in words))
    return 0.9 if rating == str(next(known, 1)) else 0.01


def made(report=REPORT):
    return asyncio.run(questions_of(report, connect(ScriptedEngine(rated, written)), load_prompts("default")))


def test_sub_questions_are_those_that_a_passage_answers():
    run = made()
    assert run.sub_questions == ["Who founded Corwell Mills?", "When was Corwell Mills founded?"]
    assert [(one.text, one.grade) for one in run.pool] == [
        ("Ursula Almberg founded Corwell Mills.", 5),
        ("Corwell Mills was founded in 1921.", 4),
    ]


def test_without_documents_the_paragraphs_of_the_report_are_its_passages():
    run = made(ReferenceReport(QUESTION, "Ursula Almberg founded Corwell Mills.\n\nIt was sold later."))
    assert run.sub_questions == ["Who founded Corwell Mills?"]
    assert [one.grade for one in run.pool] == [5, 1]
    with pytest.raises(ScoringError, match="no passage answers any of the 3 sub-questions"):
        made(ReferenceReport(QUESTION, "Nothing is known."))


def test_run_names_the_file_and_a_run_file_may_not(tmp_path):
    path = tmp_path / "questions.jsonl"
    write_runs([made()], path)
    with RagGuard("nano", store=None, scorers=()) as rg, rg.run(QUESTION, sub_questions=str(path)) as run:
        assert run.sub_questions == ["Who founded Corwell Mills?", "When was Corwell Mills founded?"]
    runs = tmp_path / "runs.jsonl"
    line = {"question": QUESTION, "steps": [], "sub_questions": str(path)}
    runs.write_text(json.dumps(line))
    with pytest.raises(RunFormatError, match="the sub-questions themselves"):
        next(read_runs(runs))
    with RagGuard("nano", store=None, scorers=()) as rg:
        with pytest.raises(InvalidInput, match="a file with sub-questions for 'Another one"):
            rg.run("Another one?", sub_questions=str(path))
        with pytest.raises(InvalidInput, match="can be read"):
            rg.run(QUESTION, sub_questions=str(tmp_path / "missing.jsonl"))


def test_a_judge_that_has_no_such_prompt_is_told_in_a_sentence(tmp_path):
    path = tmp_path / "reports.jsonl"
    path.write_text(json.dumps({"question": QUESTION, "report": REPORT.report}))
    assert list(read_reports(path)) == [ReferenceReport(QUESTION, REPORT.report)]
    result = ragguard("questions", path, "--engine", "nano", "--out", tmp_path / "q.jsonl", code=2)
    assert "report_questions" in result.output
    assert not (tmp_path / "q.jsonl").exists()
