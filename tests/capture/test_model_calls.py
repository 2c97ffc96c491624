"""Which retrieved passages count as read, by the inputs of the run's later model calls."""

from __future__ import annotations

from functools import partial

import pytest
from support.captured import Captured

from ragguard.capture.events import RunEnded
from ragguard.capture.model_calls import JUDGED_ONLY, notice
from ragguard.capture.recorder import Recorder
from ragguard.capture.shapes import ModelContent, content_in
from ragguard.records import Decision, Dropped, Passage

OSLO = "Nordlys is a shipping firm that is based in Oslo; it was founded by Ada Berg in 1922."
BERGEN = "Skagen is a fishing firm that is based in Bergen; it was founded by Olav Dahl in 1931."
HAN = "奥斯陆的公司由阿达·贝格于一九二二年创立，主要从事航运业务，并在卑尔根设有分公司。"
THAI = "บริษัทเดินเรือแห่งนี้ตั้งอยู่ในกรุงออสโลและก่อตั้งโดยอาดา แบร์กในปี ค.ศ. 1922"
NOTES = "My notes so far: the firm in Oslo was founded by somebody called Ada."


def texts_of(given):
    return given if isinstance(given, ModelContent) else content_in(given)


@pytest.fixture
def captured():
    return Captured()


@pytest.fixture
def recorder(captured):
    recorder = Recorder(captured)
    recorder.run_started("run", "Who founded the firm?")
    yield recorder
    assert recorder.faults.count == 0


def retrieve(recorder, *texts, id="step", followed=True):
    recorder.step_started(id, "run", "founder", followed=followed)
    recorder.step_ended(id, [Passage(text, str(number)) for number, text in enumerate(texts)])


def ask(recorder, given, reply=None, key="call"):
    recorder.model_asked("run", key, partial(texts_of, given))
    if reply is not None:
        recorder.model_replied("run", key, partial(texts_of, reply))


def read(captured, step=0):
    step = captured.run.steps[step]
    return [one.text for one in step.passages], step.metadata.get("ragguard.delivered", "")


def test_passages_in_the_prompt_were_read_in_its_order(recorder, captured):
    retrieve(recorder, OSLO, BERGEN, HAN)
    ask(recorder, f"Answer from these.\n\n{HAN}\n{OSLO.upper()}")
    assert read(captured) == ([HAN, OSLO], "")
    assert len(captured.run.steps[0].candidates) == 3


def test_prompt_without_any_passage_read_none(recorder, captured):
    retrieve(recorder, OSLO, BERGEN)
    ask(recorder, "Who founded the firm based in Oslo?")
    assert read(captured) == ([], "")


@pytest.mark.parametrize("text", [OSLO, HAN, THAI])
def test_passage_that_is_cut_makes_what_was_read_unknown(recorder, captured, text):
    retrieve(recorder, text, "Another one.")
    ask(recorder, f"Answer from: {text[: len(text) * 3 // 4]}")
    assert read(captured) == ([text, "Another one."], "unknown")


def test_retrieval_without_a_later_model_call_is_unknown(recorder, captured):
    ask(recorder, "Rewrite the question.", "founder of Nordlys")
    retrieve(recorder, OSLO)
    recorder.run_ended(RunEnded("run", answer="Ada Berg"))
    assert read(captured) == ([OSLO], "unknown")


def test_passages_that_the_application_reports_are_read_whatever_a_prompt_holds(recorder, captured):
    retrieve(recorder, OSLO, followed=False)
    ask(recorder, "Who founded it?")
    recorder.run_ended(RunEnded("run", answer="Ada Berg"))
    assert read(captured) == ([OSLO], "")


def test_passage_that_only_a_grader_saw_was_not_read(recorder, captured):
    retrieve(recorder, OSLO, BERGEN)
    for number, text in enumerate((OSLO, BERGEN)):
        ask(recorder, f"Is this relevant? {text}", ["no", "yes"][number], key=number)
    ask(recorder, BERGEN, "Olav Dahl", key="answer")
    recorder.run_ended(RunEnded("run", answer="Olav Dahl"))
    assert read(captured) == ([BERGEN], "")
    metadata = captured.run.steps[0].metadata
    assert metadata[JUDGED_ONLY] == 1
    assert notice(metadata, 1) == "1 of the candidates were only judged by a model, and not read"


def test_hop_of_which_a_grader_rejected_all_was_not_read(recorder, captured):
    retrieve(recorder, OSLO, id="first")
    ask(recorder, f"Is this relevant? {OSLO}", "no", key=1)
    retrieve(recorder, BERGEN, id="second")
    ask(recorder, BERGEN, "Olav Dahl", key=2)
    recorder.run_ended(RunEnded("run", answer="Olav Dahl"))
    assert [read(captured, step)[0] for step in (0, 1)] == [[], [BERGEN]]


def test_passage_behind_notes_that_the_answering_call_is_given_was_read(recorder, captured):
    retrieve(recorder, OSLO)
    ask(recorder, f"Take notes of {OSLO}", NOTES, key=1)
    ask(recorder, f"Answer from your notes. {NOTES}", "Ada Berg", key=2)
    recorder.run_ended(RunEnded("run", answer="Ada Berg"))
    assert read(captured) == ([OSLO], "")


def test_replies_of_which_the_answer_is_put_together_all_count(recorder, captured):
    retrieve(recorder, OSLO, BERGEN)
    ask(recorder, OSLO, "Ada Berg, in 1922", key=1)
    ask(recorder, BERGEN, "Olav Dahl, in 1931", key=2)
    recorder.run_ended(
        RunEnded("run", answer="Response 1: Ada Berg, in 1922\n----\nResponse 2: Olav Dahl, in 1931")
    )
    assert read(captured) == ([OSLO, BERGEN], "")
    assert JUDGED_ONLY not in captured.run.steps[0].metadata


def test_call_after_the_answer_does_not_take_its_place(recorder, captured):
    retrieve(recorder, OSLO)
    ask(recorder, OSLO, "Ada Berg founded it.", key=1)
    ask(recorder, "Is this grounded: Ada Berg founded it. Say yes or no.", "yes", key=2)
    recorder.run_ended(RunEnded("run", answer="Ada Berg founded it."))
    assert read(captured) == ([OSLO], "")


def test_conversation_that_grows_keeps_every_hop_read(recorder, captured):
    said = ["Who founded the firm?"]
    for hop in range(3):
        retrieve(recorder, f"{OSLO} {hop}", id=f"hop {hop}")
        said = [*said, f"{OSLO} {hop}"]
        ask(recorder, said, "", key=hop)
    recorder.run_ended(RunEnded("run", answer="Ada Berg"))
    assert [read(captured, hop) for hop in range(3)] == [([f"{OSLO} {hop}"], "") for hop in range(3)]


def test_passage_that_a_guard_dropped_was_read_by_an_earlier_retrieval_alone(recorder, captured):
    retrieve(recorder, OSLO, BERGEN, id="first")
    ask(recorder, [OSLO, BERGEN], "", key=1)
    retrieve(recorder, OSLO, BERGEN, id="second")
    dropped = Dropped(Passage(OSLO, "0"), 1, "misleads", -0.9)
    recorder.step_amended("second", "run", None, Decision([Passage(BERGEN, "1")], [dropped], "pruned"))
    ask(recorder, [OSLO, BERGEN, BERGEN], "Olav Dahl", key=2)
    recorder.run_ended(RunEnded("run", answer="Olav Dahl"))
    assert [read(captured, step)[0] for step in (0, 1)] == [[OSLO, BERGEN], [BERGEN]]


def test_long_conversation_is_compared_once_a_message(recorder, captured, monkeypatch):
    """What is in every prompt is not taken apart again for each of 30 prompts of 100 KB."""
    from ragguard.capture import passage_search

    taken_apart = []
    whole = passage_search.running_words
    monkeypatch.setattr(
        passage_search, "running_words", lambda text: taken_apart.append(len(text)) or whole(text)
    )
    messages = [f"{'word ' * 99}{number}" for number in range(200)]
    retrieve(recorder, *[f"{OSLO} {number}" * 20 for number in range(5)])
    for call in range(30):
        ask(recorder, messages, "", key=call)
    recorder.run_ended(RunEnded("run", answer="Ada Berg"))
    assert read(captured) == ([], "")
    assert sum(size for size in taken_apart if size <= 600) <= 2 * sum(map(len, messages))
