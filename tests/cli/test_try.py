"""`ragguard try`, as a user calls it, on a folder of texts that the small models can read."""

from importlib import import_module

import pytest
from support.tiny_gguf import make_gguf
from typer.testing import CliRunner

from ragguard.cli.app import app
from ragguard.engines.llama import smol
from ragguard.storage.source import read_scored

QUESTION = "Where was Hugo Rosquist born?"


@pytest.fixture
def texts(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "people.md").write_text("Hugo Rosquist was born in Upper Dunness.\n\nHugo Rosquist is a judge.")
    (folder / "places.md").write_text("Upper Dunness is in Dolovia.")
    return folder


def tried(texts, *arguments):
    out = texts.parent / "out"
    done = CliRunner().invoke(app, ["try", str(texts), *arguments, "--out", str(out)], env={"COLUMNS": "100"})
    return done, out


def test_question_is_searched_twice_answered_scored_and_written_to_a_page(texts):
    done, out = tried(texts, QUESTION, "--engine", "nano")
    assert done.exit_code == 0, done.output
    assert "2 files, 2 passages" in done.output
    for expected in ("hop 1:", "hop 2:", "ΔSePer", "1.1  people.md#1", "2.1  places.md#1"):
        assert expected in done.output, expected
    assert QUESTION not in done.output.partition("hop 2:")[2], "the second search has a query of its own"
    assert QUESTION in (out / "report.html").read_text()


def test_a_second_search_that_finds_nothing_is_said_and_has_no_table(texts):
    (texts / "places.md").unlink()
    (texts / "latin.md").write_bytes(b"caf\xe9")
    done, _ = tried(texts, QUESTION, "--engine", "nano")
    assert done.exit_code == 0, done.output
    assert "1 not read, no UTF-8 text: latin.md" in done.output
    assert "The second search found no other passage." in done.output
    second = done.output.partition("hop 2:")[2]
    assert "nothing was found" in second
    assert "verdict" not in second


def test_model_in_the_process_credits_the_passages_by_likelihood(texts, tmp_path):
    pytest.importorskip("gguf")
    _, file = make_gguf(tmp_path / "model")
    done, _ = tried(texts, QUESTION, "--engine", f"gguf:{file}")
    assert done.exit_code == 0, done.output
    assert "likelihood" in done.output
    assert done.output.count("it fits the whole question best") == 1


def test_stopped_command_leaves_what_is_done(texts, monkeypatch):
    tryout = import_module("ragguard.cli.try")  # a word of Python, which no import statement names
    ask = tryout._ask

    def stops(rg, search, question, *options):
        if question == "stop":
            raise KeyboardInterrupt
        return ask(rg, search, question, *options)

    monkeypatch.setattr(tryout, "_ask", stops)
    done, out = tried(texts, QUESTION, "stop", "--engine", "nano")
    assert done.exit_code == 130
    assert "what is done is in" in done.output
    assert [one.run.question for one in read_scored(out / "ragguard.db")] == [QUESTION]
    assert (out / "report.html").exists()


def test_question_without_any_known_word_finds_nothing_and_says_so(texts):
    done, _ = tried(texts, "Pourquoi?", "--engine", "nano")
    assert "No passage has a word of this question; ask it in the words of the texts." in done.output


@pytest.mark.parametrize(("arguments", "said"), [
    (["missing", "What?"], "a folder that is there"),
    ([".", " "], "a text that is not empty"),
])  # fmt: skip
def test_bad_input_is_one_sentence(tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["try", *arguments, "--engine", "nano"])
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
    assert said in done.output


def test_smol_that_was_not_fetched_is_named_with_the_ways_to_get_it(texts, monkeypatch):
    monkeypatch.setattr(smol, "smol_path", lambda: None)
    done, _ = tried(texts, QUESTION, "--engine", "smol")
    assert done.exit_code == 2
    assert "ragguard fetch smol" in done.output


def test_other_wording_is_compared_on_the_same_question(texts):
    done, out = tried(texts, QUESTION, "--engine", "nano", "--against", "Where is Upper Dunness?")
    assert done.exit_code == 0, done.output
    assert "second way to search against the first: " in done.output
    runs = [one.run for one in read_scored(out / "ragguard.db")]
    assert [run.question for run in runs] == [QUESTION, QUESTION]
    assert {run.steps[0].query for run in runs} == {QUESTION, "Where is Upper Dunness?"}


def test_model_in_the_process_compares_a_retriever_by_the_fit_to_the_question(texts, tmp_path, monkeypatch):
    pytest.importorskip("gguf")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "async def search(query):\n    return ['Hugo Rosquist is a judge.', {'text': 'Tea.'}]\n"
    )
    _, file = make_gguf(tmp_path / "model")
    done, _ = tried(texts, QUESTION, "--engine", f"gguf:{file}", "--retriever", "mine:search")
    assert done.exit_code == 0, done.output
    assert "with --retriever mine:search" in done.output
    assert "  query_gain: " in done.output


def test_second_way_to_search_that_finds_nothing_is_not_compared_and_says_why(texts, tmp_path, monkeypatch):
    pytest.importorskip("gguf")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nothing.py").write_text("def search(query):\n    return None\n")
    _, file = make_gguf(tmp_path / "model")
    done, _ = tried(texts, QUESTION, "--engine", f"gguf:{file}", "--retriever", "nothing:search")
    assert "not compared: of what the second way to search found, nothing could be scored" in done.output


@pytest.mark.parametrize(("arguments", "said"), [
    (["--retriever", "mine"], "module:function"),
    (["--retriever", "no_such_module:search"], "ModuleNotFoundError"),
    (["--retriever", "os:sep"], "is not callable"),
    (["--retriever", "math:sqrt"], "a function that answers a question (TypeError"),
    (["--against", "a", "--against", "b"], "another wording for each question"),
])  # fmt: skip
def test_second_way_to_search_that_cannot_be_used_is_one_sentence(texts, arguments, said):
    done, _ = tried(texts, QUESTION, "--engine", "nano", *arguments)
    assert done.exit_code == 2
    assert said in done.output.splitlines()[-1]
