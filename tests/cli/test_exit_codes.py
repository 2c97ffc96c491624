"""Exit codes are those of a command's help; a package that is missing is named with the line that installs it."""

import json
import os
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest
from support.commands import ragguard
from support.reader import FALSE, FIRM, NOISE, QUESTION, reader
from support.scripted_engine import ScriptedEngine
from support.stored import scored_store

from ragguard import RagGuard, world
from ragguard.cli.app import COMMANDS, function_of
from ragguard.records import Passage, RetrievalStep, Run, Score, ScoredRun
from ragguard.storage.files.runfile import write_runs

EXAMPLES = Path(__file__).parents[2] / "examples"
LINES = [
    ("demo --out own", 2),
    ("try texts Where.was.Hugo.Rosquist.born? --engine nano", 0),
    ("try nowhere Who?", 2),
    ("init .", 0),
    ("init nowhere", 2),
    ("doctor nano", 0),
    ("doctor http://127.0.0.1:9/v1", 1),
    ("doctor nosuch:engine", 2),
    ("fetch smol", 0),
    ("report a.db", 0),
    ("report nowhere.db", 2),
    ("try-again a.db misled", 0),
    ("try-again a.db --put-in Nothing. found", 1),
    ("try-again nowhere.db abc --engine nano", 2),
    ("metrics udcg", 0),
    ("metrics nosuch", 2),
    ("score runs.jsonl --engine nano --scorers utility --store new.db", 0),
    ("score broken.jsonl --engine nano --scorers utility --store new.db", 1),
    ("score nowhere.jsonl --engine nano", 2),
    ("label a.db --kind relevance -n 1 -o labels.jsonl --by ann", 0),
    ("label nowhere.db", 2),
    (f"validate {EXAMPLES / 'graded_runs.jsonl'} --engine nano", 0),
    ("validate nowhere.jsonl --engine nano", 2),
    ("calibrate runs.jsonl --engine nano --out found.json", 0),
    ("calibrate broken.jsonl --engine nano --out found.json", 1),
    ("calibrate nowhere.jsonl --engine nano", 2),
    ("compare a.db a.db", 0),
    ("compare a.db a.db --fail-if answer_correct>=0", 1),
    ("compare nowhere.db elsewhere.db", 2),
    ("baseline a.db monday", 0),
    ("baseline nowhere.db", 2),
    ("cases a.db misled", 0),
    ("cases nowhere.db", 2),
    ("serve --engine nosuch:engine", 2),
    ("questions reports.jsonl --engine nano -o sub.jsonl", 0),
    ("questions mixed.jsonl --engine nano -o sub.jsonl", 1),
    ("questions nowhere.jsonl --engine nano", 2),
    ("export-nano nano", 0),
    ("export-nano a-file/nano", 2),
]
"""A line, with dots for the spaces of a question, and the code with which it ends."""
ELSEWHERE = {("demo", 0), ("demo", 1), ("try", 1), ("fetch", 2), ("serve", 0)}
"""Those that need more than a line: of the tests below, of `tests/serve/test_serve.py` (SIGTERM), of `test_demo.py`."""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a-file").write_text("no folder")
    return tmp_path


def stored(id, *texts):
    step = RetrievalStep(f"s-{id}", id, query="who?", passages=[Passage(text) for text in texts])
    scores = [
        Score("answer_correct", 0.0, "run", id, label="wrong"),
        *(
            Score(name, 0.9, "passage", id, step.id, position=rank)
            for name in ("utility", "p_relevant")
            for rank in range(1, 1 + len(texts))
        ),
    ]
    return ScoredRun(Run(id, QUESTION, ["Ada Berg"], "Bo Lund", [step]), scores)


@pytest.fixture
def inputs(folder):
    """What the lines read."""
    (folder / "own").mkdir()
    scored_store(folder / "own" / "ragguard.db", [])
    (folder / "texts").mkdir()
    (folder / "texts" / "people.md").write_text("Hugo Rosquist was born in Upper Dunness.")
    scored_store(folder / "a.db", [stored("misled", FIRM, FALSE), stored("found", NOISE)])
    cases = enumerate(world.cases(20, seed=31, hops=1))
    write_runs(
        (
            Run(f"r{n}", case.question, case.references, steps=[
                RetrievalStep(f"s{n}", f"r{n}", 0, 0, case.question, [*case.gold, *case.distractors[:2]])
            ])
            for n, case in cases
        ),
        folder / "runs.jsonl",
    )  # fmt: skip
    (folder / "broken.jsonl").write_text((folder / "runs.jsonl").read_text() + "{broken\n")
    report = {"question": "How did it begin?", "report": "Ursula Almberg founded Corwell Mills."}
    nothing = {"question": "What is known?", "report": "Nothing is known."}
    for name, reports in (("reports", [report]), ("mixed", [report, nothing])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in reports))


def writer():
    """A model that writes one sub-question, which a text about a founder answers."""
    return ScriptedEngine(
        lambda text, rating: 0.9 if rating == ("5" if "Almberg founded" in text else "1") else 0.01,
        lambda text, index: (
            "1. Who founded Corwell Mills?" if "Write the questions" in text
            else "- Ursula Almberg founded Corwell Mills." if "Almberg" in text else "- Nothing is known."
        ),
    )  # fmt: skip


def documented(command):
    """The codes that a command's help names."""
    codes = re.search(r"Exit code (0: .*)", " ".join((function_of(command).__doc__ or "").split()))
    assert codes is not None, command
    return {int(code) for code in re.findall(r"\b(\d): ", codes[1])}


def test_each_code_of_each_help_is_held_by_a_line():
    held = {(line.split()[0], code) for line, code in LINES} | ELSEWHERE
    assert held == {(command, code) for command in COMMANDS for code in documented(command)}


@pytest.mark.parametrize(("line", "code"), LINES)
def test_a_line_ends_with_its_code_and_a_sentence(inputs, monkeypatch, tmp_path, line, code):
    command, *words = line.split()
    monkeypatch.setattr(import_module("ragguard.cli.try_again"), "connect", lambda address: reader())
    monkeypatch.setattr(import_module("ragguard.cli.questions"), "connect", lambda address: writer())
    monkeypatch.setenv("RAGGUARD_MODELS", str(tmp_path / "models"))
    if line == "fetch smol":  # as if it had been fetched: a file of its name and size
        smol = import_module("ragguard.engines.llama.smol")
        (tmp_path / "models").mkdir()
        (tmp_path / "models" / smol._FILE).touch()
        os.truncate(tmp_path / "models" / smol._FILE, smol._SIZE)
    words = [word.replace(".", " ") if word.endswith("?") else word for word in words]
    done = ragguard(command, *words, code=code, input="q")
    assert "Traceback" not in done.output
    assert len(done.output.split()) > 3


def test_a_demonstration_that_is_not_scored_in_time_ends_with_1(folder, monkeypatch):
    monkeypatch.setattr(import_module("ragguard.cli.demo"), "_demonstrate", lambda *_: False)
    ragguard("demo", code=1)


def test_a_question_whose_scores_do_not_come_ends_with_1(inputs, monkeypatch):
    monkeypatch.setattr(import_module("ragguard.cli.try"), "SCORING_S", 0.0)
    ragguard("try", "texts", "Where was Hugo Rosquist born?", "--engine", "nano", code=1)


def test_weights_that_cannot_be_kept_end_with_2(folder, monkeypatch):
    monkeypatch.setenv("RAGGUARD_MODELS", "a-file/models")
    ragguard("fetch", "smol", code=2)


@pytest.mark.parametrize(("package", "line", "extra"), [
    ("pypdf", "try notes Who?", "pdf"),
    ("pyarrow", "score table.parquet --engine nano", "arrow"),
    ("matplotlib", "report demo.db --figures charts", "figures"),
])  # fmt: skip
def test_missing_package_is_named_at_once(folder, monkeypatch, package, line, extra):
    (folder / "notes").mkdir()
    (folder / "notes" / "x.pdf").write_bytes(b"%PDF-1.4")
    with RagGuard(None, store=folder / "demo.db") as rg, rg.run("Who?") as run:
        run.retrieved("Who?", ["Ada."])
    (folder / "table.parquet").write_bytes(b"PAR1")
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    done = ragguard(*line.split(), code=2)
    assert f"[{extra}]" in "".join(done.output.split()), done.output
