"""Which passages the model read, where the answer is short, a conversation is cut, or a passage is there in pieces."""

from __future__ import annotations

from functools import partial

import pytest
from support.captured import Captured

from ragguard.capture.events import RunEnded
from ragguard.capture.model_calls import JUDGED_ONLY
from ragguard.capture.recorder import Recorder
from ragguard.capture.shapes import content_in
from ragguard.records import Passage

OSLO = "Nordlys is a shipping firm that is based in Oslo; it was founded by Ada Berg in 1922."
BERGEN = "Skagen is a fishing firm that is based in Bergen; it was founded by Olav Dahl in 1931."
MOLDE = "Romsdal is a timber firm that is based in Molde; it was founded by Kari Lie in 1948."


def requests(id, **arguments):
    return {
        "role": "assistant", "content": None,
        "tool_calls": [{"id": id, "type": "function", "function": {"name": "search", "arguments": str(arguments)}}],
    }  # fmt: skip


def result(id, text):
    return {"role": "tool", "tool_call_id": id, "content": text}


class Script:
    """A run of retrievals and model calls, in the order in which they are written down."""

    def __init__(self):
        self.captured = Captured()
        self.recorder = Recorder(self.captured)
        self.recorder.run_started("run", "Who founded the firm?")
        self.count = 0

    def found(self, *texts, id="step"):
        self.recorder.step_started(id, "run", "founder", followed=True)
        self.recorder.step_ended(id, [Passage(text, str(number)) for number, text in enumerate(texts)])

    def asked(self, given, reply=None):
        self.count += 1
        self.recorder.model_asked("run", self.count, partial(content_in, given))
        if reply is not None:
            self.recorder.model_replied("run", self.count, partial(content_in, reply))

    def answered(self, answer, status="ok"):
        self.recorder.run_ended(RunEnded("run", status, answer=answer))
        assert self.recorder.faults.count == 0
        return [
            "unknown" if step.metadata.get("ragguard.delivered") else [one.text for one in step.passages]
            for step in self.captured.run.steps
        ]


@pytest.fixture
def script():
    return Script()


@pytest.mark.parametrize("answer", ["Yes", "No", "4"])
def test_a_word_as_the_answer(script, answer):
    script.found(OSLO, BERGEN)
    script.asked(f"Answer yes, no or a number from 0 to 9.\n{OSLO}", answer)
    assert script.answered(answer) == [[OSLO]]


@pytest.mark.parametrize("answer", ["Yes", "No", "4"])
def test_a_word_as_the_answer_of_an_engine_that_is_a_tool(script, answer):
    question = {"role": "user", "content": "Is it true? Say yes or no, or give a number from 0 to 9."}
    script.asked([question], requests("a", query="firm"))
    script.found(OSLO, BERGEN)
    script.asked(f"Answer yes, no or a number from 0 to 9.\n{OSLO}", answer)
    script.asked([question, requests("a", query="firm"), result("a", answer)], f"It is so: {answer} indeed.")
    assert script.answered(f"It is so: {answer} indeed.") == [[OSLO]]


def test_verdict_inside_a_word_is_no_match(script):
    script.found(OSLO, BERGEN)
    script.asked(f"Is it useful? {BERGEN}", "no")
    script.asked(f"Do not guess. {OSLO}", "It is not known.")
    assert script.answered("It is not known.") == [[OSLO]]


def test_verdict_that_the_next_prompt_offers_by_chance_does_not_count(script):
    script.found(OSLO, BERGEN)
    script.asked(f"Answer yes or no: is it useful? {BERGEN}", "no")
    script.asked(f"Answer yes or no: is it useful? {OSLO}", "yes")
    script.asked(f"Say yes or no first, then the name. {OSLO}", "Yes, Ada Berg")
    assert script.answered("Yes, Ada Berg") == [[OSLO]]
    assert script.captured.run.steps[0].metadata[JUDGED_ONLY] == 1


def test_name_that_the_next_question_takes_up_counts(script):
    script.found(OSLO, id="first")
    script.asked(f"Where is Nordlys based? {OSLO}", "Oslo")
    script.found(BERGEN, id="second")
    script.asked(f"Which firm left Oslo for Bergen? {BERGEN}", "Skagen")
    assert script.answered("Skagen") == [[OSLO], [BERGEN]]


@pytest.mark.parametrize("left", ["[cleared]", ""])
def test_hops_whose_tool_messages_were_cleared_were_read(script, left):
    question = {"role": "user", "content": "Who founded it?"}
    script.asked([question], requests("a", query="first"))
    script.found(OSLO, id="first")
    script.asked([question, requests("a", query="first"), result("a", OSLO)], requests("b", query="second"))
    script.found(BERGEN, id="second")
    cleared = [question, requests("a", query="first"), result("a", left)]
    script.asked([*cleared, requests("b", query="second"), result("b", BERGEN)], "Olav Dahl founded it.")
    assert script.answered("Olav Dahl founded it.") == [[OSLO], [BERGEN]]


def test_passage_in_pieces_of_consecutive_prompts_was_read(script):
    script.found(OSLO, BERGEN)
    script.asked(f"Context: {BERGEN} Nordlys is a shipping firm that is", "An answer from the first prompt.")
    script.asked(
        "Existing answer: An answer from the first prompt. Context: based in Oslo; it was founded by Ada Berg in 1922.",
        "Ada Berg founded it.",
    )
    assert script.answered("Ada Berg founded it.") == [[BERGEN, OSLO]]


def test_passage_in_pieces_of_one_prompt_was_read(script):
    script.found(OSLO)
    script.asked(
        "Source 1: Nordlys is a shipping firm that is based\nSource 2: in Oslo; it was founded by Ada Berg in 1922.",
        "Ada Berg [1]",
    )
    assert script.answered("Ada Berg [1]") == [[OSLO]]


@pytest.mark.parametrize("shown", [30, 60])
def test_beginning_of_each_passage_is_unknown_also_beside_a_whole_one(script, shown):
    script.found(OSLO, BERGEN, MOLDE)
    script.asked(f"{OSLO}\n{BERGEN[:shown]}\n{MOLDE[:shown]}", "Ada Berg founded it.")
    assert script.answered("Ada Berg founded it.") == ["unknown"]


def test_order_is_that_of_the_calls_and_of_the_new_texts_in_them(script):
    script.found(BERGEN, id="first")
    script.asked([BERGEN], requests("b", query="more"))
    script.found(OSLO, MOLDE, BERGEN, id="second")
    script.asked([BERGEN, requests("b", query="more"), f"{MOLDE}\n{OSLO}\n{BERGEN}"], "Kari Lie founded it.")
    assert script.answered("Kari Lie founded it.") == [[BERGEN], [MOLDE, OSLO, BERGEN]]


def test_note_of_an_open_run_goes_when_the_end_tells_more(script):
    script.found(OSLO)
    script.asked(OSLO, "A note on what Nordlys is and does.")
    script.asked("Write the answer.", "Something else entirely.")
    open_run = script.captured.run.steps[0]
    script.asked("From this note: A note on what Nordlys is and does.", "Ada Berg founded it.")
    assert script.answered("Ada Berg founded it.") == [[OSLO]]
    assert JUDGED_ONLY not in script.captured.run.steps[0].metadata
    assert open_run.metadata.get(JUDGED_ONLY) in (None, 1)


def test_call_whose_reply_never_came_makes_its_passages_unknown(script):
    script.found(OSLO, BERGEN)
    script.asked(OSLO)
    assert script.answered(None, "error") == ["unknown"]


def test_run_of_more_calls_than_are_kept_is_unknown_where_they_are_missing(script, caplog):
    script.found(OSLO)
    script.asked(OSLO, "A first note of this run, which later calls take up.")
    for number in range(300):
        script.asked(f"Go on with step {number}.", f"Done with step {number}.")
    assert script.answered("Done with step 299.") == ["unknown"]
    assert caplog.text.count("asked a model more than 256 times") <= 1
