"""`ragguard try`, as a user calls it, on a folder of texts that the small models can read."""

import asyncio
import json
import re
import subprocess
import sys
from importlib import import_module
from types import SimpleNamespace

import pytest
from support.commands import ragguard, refusal
from support.fake_model import FakeModel
from support.misbehaving_server import serving
from support.program import environment
from support.scripted_engine import ScriptedEngine
from support.tiny_gguf import make_gguf

from ragguard.engines.llama import smol
from ragguard.scorers.exam.record import ExamRecord
from ragguard.storage.source import read_scored

tryout = import_module("ragguard.cli.try")  # a word of Python, which no import statement names

QUESTION = "Where was Hugo Rosquist born?"


@pytest.fixture
def texts(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "people.md").write_text("Hugo Rosquist was born in Upper Dunness.\n\nHugo Rosquist is a judge.")
    (folder / "places.md").write_text("Upper Dunness is in Dolovia.")
    return folder


@pytest.fixture
def small_model(tmp_path):
    """The address of a model that is read in this process."""
    pytest.importorskip("gguf")
    return f"gguf:{make_gguf(tmp_path / 'model')[1]}"


@pytest.fixture
def unexamined(monkeypatch):
    """Lets the model of a server, which nobody has examined, give one answer to everything."""
    monkeypatch.delenv("RAGGUARD_EXAM", raising=False)
    return lambda answer: monkeypatch.setattr(tryout, "connect", lambda address: says(answer))


def tried(texts, *arguments, engine="nano", code=0):
    """What the command said, and the folder with its store and its page."""
    out = texts.parent / "out"
    arguments = (*arguments, "--engine", engine, "--out", out)
    return ragguard("try", texts, *arguments, code=code, env={"COLUMNS": "100"}).output, out


def test_question_is_answered_scored_and_written_to_a_page(texts):
    output, out = tried(texts, QUESTION)
    assert "2 files, 2 passages" in output
    assert "“Hugo Rosquist was born in Upper Dunness.”  people.md#1" in output
    assert "search 2" not in output, "nothing is left open"
    assert QUESTION in (out / "report.html").read_text()


def test_second_search_asks_for_what_is_open_of_the_name_that_the_first_one_brought(texts):
    (texts / "firms.md").write_text("Ada Berg founded Corwell Mills.\n")
    (texts / "more.md").write_text("Ada Berg was born in Dolovia.\n\nEmil Ros was born in Oslo.\n")
    for number in range(2):  # passages that the first search prefers
        (texts / f"mills{number}.md").write_text("Corwell Mills burned in March.\n")
    output, out = tried(texts, "Where was the founder of Corwell Mills born?")
    assert "search 2: born Ada Berg" in output
    assert "“Ada Berg founded Corwell Mills.”" in output
    assert "“Ada Berg was born in Dolovia.”" in output
    (run,) = [scored.run for scored in read_scored(out / "ragguard.db")]
    assert [lead.words for lead in run.steps[1].led_by] == ["Ada Berg"]


def test_nearest_sentence_is_the_nearest_to_the_question_and_not_to_the_second_search(texts, monkeypatch):
    monkeypatch.setattr(tryout.Reader, "is_small", True)
    (texts / "money.md").write_text("Amounts above 500 euro need the signature of Ines Delacroix.\n")
    (texts / "people.md").write_text("Pay and contracts: Ines Delacroix, room 2.\n")
    output, _ = tried(texts, "Who signs amounts above 500 euro?")
    assert "search 2: signs Ines Delacroix" in output
    assert "which may or may not answer: no passage that was retrieved has “signs”." in output
    assert "“Amounts above 500 euro need the signature of Ines Delacroix.”  money.md#1" in output


def test_passages_that_fit_equally_and_differ_are_both_shown_and_neither_is_called_the_answer(texts):
    for year, days in (("2022", 25), ("2024", 28)):
        (texts / f"{year}.md").write_text(f"# Handbook\n\nEverybody gets {days} days of leave a year.\n")
    output, _ = tried(texts, "How many days of leave does everybody get?", code=1)
    assert "2 passages fit about equally and differ" in output
    assert all(
        f"gets {days} days of leave a year.”  {year}.md#1" in output
        for year, days in (("2022", 25), ("2024", 28))
    )
    assert "words, from this sentence" not in output


def test_words_that_no_passage_has_are_named(texts):
    (texts / "latin.md").write_bytes(b"caf\xe9")
    output, _ = tried(texts, "When was Upper Rossbach flooded?", "Pourquoi?")
    assert "1 not read, no UTF-8 text: latin.md" in output
    assert (
        "Not there, as far as words show: no passage that was retrieved has “Rossbach” or “flooded”."
        in output
    )
    assert "Not found: no passage has a word of this question." in output


@pytest.mark.parametrize(("question", "nearest", "why"), [
    ("Where was Hugo Rosquist raised?", "Hugo Rosquist was born in Upper Dunness.",
     "no passage that was retrieved has “raised”"),
    ("Is Hugo Rosquist of Dolovia a judge?", "Hugo Rosquist is a judge.", "its passage does not have “Dolovia”"),
    ("Who took over from Ada Berg?", "Ada Berg took over from Emil Ros in 2016.",
     "it says “over from” of another name"),
    ("When was Hugo Rosquist born?", "Hugo Rosquist was born in Upper Dunness.", "it seems to have no date"),
])  # fmt: skip
def test_a_sentence_that_fits_poorly_is_called_the_nearest_and_no_answer(
    texts, monkeypatch, question, nearest, why
):
    monkeypatch.setattr(tryout.Reader, "is_small", True)
    (texts / "office.md").write_text("Ada Berg took over from Emil Ros in 2016.\n")
    output, out = tried(texts, question)
    said = " ".join(output.split())
    assert "The nearest sentence, which may or may not answer: " in said
    assert f"{why}" in said
    assert f"“{nearest}”" in said
    assert "not read: the answer above does not rest on the passage, or there is no answer" in said
    (declined,) = read_scored(out / "ragguard.db")
    assert declined.run.answer is None
    # nano has no prompt for the fit; that there is nothing to believe is no failure.
    assert [failure.scorer for failure in declined.failures] == ["fit"]


@pytest.mark.parametrize(("question", "shown"), [
    ("How many days of leave does everybody get?",
     "2 passages fit about equally and differ; you decide which one is right: "
     "“Everybody gets 31 days of leave.” new.md#1 “Everybody gets 25 days of leave.” old.md#1"),
    ("Where was Hugo Rosquist born?",
     "The sentence that fits best, a quote: “Hugo Rosquist was born in Upper Dunness.” people.md#1"),
    ("Where was Hugo Rosquist raised?", "The nearest sentence, which may or may not answer: "),
    ("When was Upper Rossbach flooded?", "Not there, as far as words show: "),
])  # fmt: skip
def test_what_is_shown_in_place_of_an_answer_is_no_answer_in_any_output(texts, small_model, question, shown):
    (texts / "old.md").write_text("Everybody gets 25 days of leave.\n\nIt ended on 31 March 2026.\n")
    (texts / "new.md").write_text("Everybody gets 31 days of leave.\n")
    output, out = tried(texts, question, engine=small_model)
    ((run, scores),) = [(scored.run, scored.scores) for scored in read_scored(out / "ragguard.db")]
    assert run.answer is None
    assert {score.name for score in scores} <= {"query_gain"}, "nobody believes in a quote"
    store = out / "ragguard.db"
    line = json.loads(ragguard("report", store, "--json").output)["runs"][0]
    printed = " ".join(ragguard("report", store, "--run", run.id, env={"COLUMNS": "400"}).output.split())
    page = " ".join((out / "report.html").read_text().split())
    for text in (output, line["explanation"], printed, page):
        assert shown in " ".join(text.split())
    for text in (line["explanation"], printed):
        assert "The answer “" not in text
        assert "belief" not in text


def test_a_table_beside_the_texts_is_read_and_a_file_of_another_kind_is_named(texts, unexamined):
    unexamined(" ")
    (texts / "members.csv").write_text("number,name,joined\n104,Lars Fenwick,2015\n105,Grete Holm,2019\n")
    (texts / "photo.jpg").write_bytes(b"JFIF")
    output, _ = tried(texts, "When did Grete Holm join?", engine="http://127.0.0.1:9/v1")
    assert "3 files, 3 passages; 1 not read, of another kind: photo.jpg" in output
    assert "“number: 105; name: Grete Holm; joined: 2019”  members.csv#1" in output


def test_last_word_of_an_answer_that_was_cut_is_no_name(texts):
    cut = SimpleNamespace(text="It was Hugo Rosq", finished=False)

    async def sample(*_, **__):
        return [[cut]]

    reader = tryout.Reader(SimpleNamespace(sample=sample), "smol")
    assert asyncio.run(reader.answer("Who?", [])) == "It was Hugo"


def says(answer):
    """An engine that gives one answer to everything, and judges nothing."""

    def no_verdict(text, label):
        raise AssertionError("a model that was not examined is asked for no verdict")

    return ScriptedEngine(no_verdict, lambda text, index: answer, model="says", capabilities=frozenset())


@pytest.mark.parametrize(("answer", "shown", "why"), [
    ("Upper Dunness", True, ""),
    ("In Upper Dunness in 1986", False, "“1986” is in no passage that was retrieved"),
    ("He is a wizard of tea", False, "no sentence that fits the question says all of it"),
    (" ", False, "the model gave no answer"),
])  # fmt: skip
def test_words_of_a_model_are_shown_only_if_a_sentence_holds_them(texts, unexamined, answer, shown, why):
    unexamined(answer)
    output, _ = tried(texts, QUESTION, engine="http://127.0.0.1:9/v1")
    assert ("the model's words, from this sentence" in output) == shown
    assert ("The sentence that fits best, a quote:" in output) != shown
    assert why in output
    assert answer.isspace() or shown or answer not in output
    assert "No verdicts on passages: says has not been examined; `ragguard doctor" in output


def test_model_that_failed_its_examination_gives_no_verdict(texts, unexamined, monkeypatch):
    unexamined(" ")
    failed = ExamRecord("says", "says/1", "default", figures={"abstention": 0.5, "relevance": 0.5})
    monkeypatch.setattr(tryout, "known_record", lambda *_: failed)
    output, out = tried(texts, QUESTION, engine="http://127.0.0.1:9/v1")
    assert (
        "No verdicts on passages: says failed its examination in abstention (0.50, 0.75 is needed)" in output
    )
    assert not [score for scored in read_scored(out / "ragguard.db") for score in scored.scores]


def test_model_in_the_process_credits_the_passages_by_likelihood(texts, small_model):
    output, _ = tried(texts, QUESTION, engine=small_model)
    assert "fit +" in output or "fit -" in output
    assert re.search(
        r"about \d+ s\. A question reads at most 6 passages of at most 120 words",
        " ".join(output.split()),
    )
    assert "fit: how much likelier a passage makes" in " ".join(output.split())
    assert "repeating the query counts, too" in " ".join(output.split())


def test_stopped_command_leaves_what_is_done(texts, monkeypatch):
    ask = tryout.Trial.ask

    def stops(trial, question, *options):
        if question == "stop":
            raise KeyboardInterrupt
        return ask(trial, question, *options)

    monkeypatch.setattr(tryout.Trial, "ask", stops)
    output, out = tried(texts, QUESTION, "stop", code=130)
    assert "what is done is in" in output
    assert [one.run.question for one in read_scored(out / "ragguard.db")] == [QUESTION]
    assert (out / "report.html").exists()


@pytest.mark.parametrize(("arguments", "said"), [
    (["missing", "What?"], "a folder that exists"),
    ([".", " "], "a text that is not empty"),
])  # fmt: skip
def test_bad_input_is_one_sentence(tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    assert said in refusal("try", *arguments)


def test_smol_that_was_not_fetched_is_named_with_the_ways_to_get_it(texts, monkeypatch):
    monkeypatch.setattr(smol, "smol_path", lambda: None)
    output, _ = tried(texts, QUESTION, engine="smol", code=2)
    assert "ragguard fetch smol" in output


def test_other_wording_is_compared_on_the_same_question(texts):
    output, out = tried(texts, QUESTION, "--against", "Where is Upper Dunness?")
    assert "second search against the first: " in output
    runs = [one.run for one in read_scored(out / "ragguard.db")]
    assert [run.question for run in runs] == [QUESTION, QUESTION]
    assert {run.steps[0].query for run in runs} == {QUESTION, "Where is Upper Dunness?"}


@pytest.mark.parametrize(("retriever", "said"), [
    ("async def search(query):\n    return ['Hugo Rosquist is a judge.', {'text': 'Tea.'}]\n", "  query_gain: "),
    ("def search(query):\n    return None\n",
     "not compared: nothing that the second search found could be scored"),
], ids=["passages", "nothing"])  # fmt: skip
def test_model_in_the_process_compares_a_retriever_by_the_fit_to_the_question(
    texts, small_model, tmp_path, monkeypatch, retriever, said, request
):
    monkeypatch.chdir(tmp_path)
    name = f"retriever_of_{request.node.callspec.id}"  # Python keeps the modules that it has imported
    (tmp_path / f"{name}.py").write_text(retriever)
    output, _ = tried(texts, QUESTION, "--retriever", f"{name}:search", engine=small_model)
    assert f"(--retriever {name}:search)" in output
    assert said in output


@pytest.mark.parametrize(("arguments", "said"), [
    (["--retriever", "mine"], "module:function"),
    (["--retriever", "no_such_module:search"], "ModuleNotFoundError"),
    (["--retriever", "os:sep"], "is not callable"),
    (["--retriever", "math:sqrt"], "a function that answers a question (TypeError"),
    (["--against", "a", "--against", "b"], "another wording for each question"),
])  # fmt: skip
def test_second_way_to_search_that_cannot_be_used_is_one_sentence(texts, arguments, said):
    output, _ = tried(texts, QUESTION, *arguments, code=2)
    assert said in output.splitlines()[-1]


def test_server_that_doctor_refuses_gives_no_verdict_before_and_after_its_examination(texts, tmp_path):
    """A server of a weak model, which prefers "A" whatever it reads; the commands run as a user's."""
    env = environment() | {"RAGGUARD_EXAMS": str(tmp_path / "exams"), "RAGGUARD_EXAM": "", "COLUMNS": "100"}

    def printed(*words):
        command = [sys.executable, "-m", "ragguard", *map(str, words)]
        return " ".join(subprocess.run(command, env=env, capture_output=True, text=True).stdout.split())

    out = tmp_path / "out"
    with serving(FakeModel().handle) as url:
        words = ("try", texts, QUESTION, "--engine", url, "--out", out)
        before, exam, after = printed(*words), printed("doctor", url, "--exam"), printed(*words)
    assert "No verdicts on passages: fake has not been examined" in before
    assert "FAILED" in exam
    assert "No verdicts on passages: fake failed its examination in" in after
    for said in (before, after):
        assert "“Hugo Rosquist was born in Upper Dunness.” people.md#1" in said
        assert not re.search("helps|misleads|utility [+-]", said)
    names = {score.name for scored in read_scored(out / "ragguard.db") for score in scored.scores}
    assert not names & {"utility", "p_relevant", "p_abstain", "answerability"}
