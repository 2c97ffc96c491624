"""Which retrieved passages count as read, by the inputs of later model calls and the flow of their replies."""

from __future__ import annotations

from functools import partial

import pytest
from support.captured import Captured

from ragguard.capture.events import RunEnded
from ragguard.capture.model_calls import JUDGED_ONLY, TOOL_CALL, notice
from ragguard.capture.recorder import Recorder
from ragguard.capture.shapes import content_in
from ragguard.records import Decision, Dropped, Passage

OSLO = "Nordlys is a shipping firm that is based in Oslo; it was founded by Ada Berg in 1922."
BERGEN = "Skagen is a fishing firm that is based in Bergen; it was founded by Olav Dahl in 1931."
MOLDE = "Romsdal is a timber firm that is based in Molde; it was founded by Kari Lie in 1948."
HAN = "奥斯陆的公司由阿达·贝格于一九二二年创立，主要从事航运业务，并在卑尔根设有分公司。"
THAI = "บริษัทเดินเรือแห่งนี้ตั้งอยู่ในกรุงออสโลและก่อตั้งโดยอาดา แบร์กในปี ค.ศ. 1922"
NOTES = "My notes so far: the firm in Oslo was founded by somebody called Ada."
ASKED = {"role": "user", "content": "Is it true? Say yes or no, or give a number from 0 to 9."}


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

    def found(self, *texts, id="step", followed=True, path="", turn=(), request=""):
        self.recorder.step_started(
            id, "run", "founder", followed=followed, path=(*path,), turn=turn, metadata={TOOL_CALL: request}
        )
        self.recorder.step_ended(id, [Passage(text, str(number)) for number, text in enumerate(texts)])

    def asked(self, given, reply=None, path=""):
        self.count += 1
        self.recorder.model_asked("run", self.count, partial(content_in, given), (*path,))
        if reply is not None:
            self.recorder.model_replied("run", self.count, partial(content_in, reply))

    def answered(self, answer, status="ok"):
        self.recorder.run_ended(RunEnded("run", status, answer=answer))
        assert self.recorder.faults.count == 0
        return self.read()

    def read(self):
        return [
            "unknown" if step.metadata.get("ragguard.delivered") else [one.text for one in step.passages]
            for step in self.captured.run.steps
        ]

    @property
    def metadata(self):
        return self.captured.run.steps[0].metadata


@pytest.fixture
def script():
    return Script()


A, B = requests("a", query="first"), requests("b", query="second")
ADA, OLAV = "Ada Berg founded it.", "Olav Dahl founded it."
STORIES = {
    # Each story is what was found (a list) and what a model was asked (with its reply), in order; the answer is the
    # last reply. Then what was read of each retrieval.
    "in the prompt's order": (
        [[OSLO, BERGEN, HAN], (f"Answer from these.\n\n{HAN}\n{OSLO.upper()}", ADA)], [[HAN, OSLO]],
    ),
    "nothing": ([[OSLO, BERGEN], ("Who founded the firm based in Oslo?", ADA)], [[]]),
    "no later call": ([("Rewrite the question.", "founder of Nordlys"), [OSLO]], ["unknown"]),
    "only judged": (
        [[OSLO, BERGEN], (f"Is this relevant? {OSLO}", "no"), (f"Is this relevant? {BERGEN}", "yes"), (BERGEN, OLAV)],
        [[BERGEN]],
    ),
    "a hop of which all was rejected": (
        [[OSLO], (f"Is this relevant? {OSLO}", "no"), [BERGEN], (BERGEN, OLAV)], [[], [BERGEN]],
    ),
    "behind notes": ([[OSLO], (f"Take notes of {OSLO}", NOTES), (f"Answer from your notes. {NOTES}", ADA)], [[OSLO]]),
    "a verdict inside a word": (
        [[OSLO, BERGEN], (f"Is it useful? {BERGEN}", "no"), (f"Do not guess. {OSLO}", "It is not known.")], [[OSLO]],
    ),
    "a verdict that the next prompt offers by chance": (
        [[OSLO, BERGEN], (f"Answer yes or no: is it useful? {BERGEN}", "no"),
         (f"Answer yes or no: is it useful? {OSLO}", "yes"),
         (f"Say yes or no first, then the name. {OSLO}", "Yes, Ada Berg")],
        [[OSLO]],
    ),
    "a name that the next question takes up": (
        [[OSLO], (f"Where is Nordlys based? {OSLO}", "Oslo"),
         [BERGEN], (f"Which firm left Oslo for Bergen? {BERGEN}", "Skagen")],
        [[OSLO], [BERGEN]],
    ),
    "pieces in consecutive prompts": (
        [[OSLO, BERGEN],
         (f"Context: {BERGEN} Nordlys is a shipping firm that is", "An answer from the first prompt."),
         ("Existing answer: An answer from the first prompt. Context: based in Oslo; it was founded by Ada Berg in "
          "1922.", ADA)],
        [[BERGEN, OSLO]],
    ),
    "pieces in one prompt": (
        [[OSLO], ("Source 1: Nordlys is a shipping firm that is based\nSource 2: in Oslo; it was founded by Ada Berg "
                  "in 1922.", "Ada Berg [1]")],
        [[OSLO]],
    ),
    "the order of the calls, and of the new texts in them": (
        [[BERGEN], ([BERGEN], B), [OSLO, MOLDE, BERGEN], ([BERGEN, B, f"{MOLDE}\n{OSLO}\n{BERGEN}"], "Kari Lie")],
        [[BERGEN], [MOLDE, OSLO, BERGEN]],
    ),
    "a conversation that grows": (
        [[OSLO], ([OSLO], ""), [BERGEN], ([OSLO, BERGEN], ""), [MOLDE], ([OSLO, BERGEN, MOLDE], ADA)],
        [[OSLO], [BERGEN], [MOLDE]],
    ),
}  # fmt: skip
STORIES |= {
    f"hops whose tool messages became {left!r}": (
        [([ASKED], A), [OSLO], ([ASKED, A, result("a", OSLO)], B), [BERGEN],
         ([ASKED, A, result("a", left), B, result("b", BERGEN)], OLAV)],
        [[OSLO], [BERGEN]],
    )
    for left in ("[cleared]", "")
}  # fmt: skip
for word in ("Yes", "No", "4"):
    answering = [[OSLO, BERGEN], (f"Answer yes, no or a number from 0 to 9.\n{OSLO}", word)]
    STORIES[f"{word} as the answer"] = answering, [[OSLO]]
    STORIES[f"{word} as the answer of an engine that is a tool"] = (
        [([ASKED], A), *answering, ([ASKED, A, result("a", word)], f"It is so: {word} indeed.")], [[OSLO]],
    )  # fmt: skip


@pytest.mark.parametrize("story", STORIES)
def test_what_was_read(script, story):
    happened, expected = STORIES[story]
    for number, what in enumerate(happened):
        script.found(*what, id=str(number)) if isinstance(what, list) else script.asked(*what)
    replies = [what[1] for what in happened if isinstance(what, tuple)]
    assert script.answered(replies[-1]) == expected


@pytest.mark.parametrize("order", ["abAB", "baBA", "aAbB", "bBaA", "abBA"])
def test_copy_belongs_to_the_retrieval_of_its_own_branch(script, order):
    for what in order:
        match what:
            case "a":
                script.found(MOLDE, BERGEN, OSLO, id="a", path="ra")
            case "b":
                script.found(OSLO, BERGEN, MOLDE, id="b", path="rbc")
            case "A":
                script.asked(MOLDE, ADA, path="ra")
            case "B":
                script.asked(f"{OSLO} {BERGEN} {MOLDE}", OLAV, path="rb")
    script.answered(f"{ADA} {OLAV}")
    read = {step.id: [one.text for one in step.passages] for step in script.captured.run.steps}
    assert read == {"a": [MOLDE], "b": [OSLO, BERGEN, MOLDE]}
    assert not any(JUDGED_ONLY in step.metadata for step in script.captured.run.steps)


def test_passages_that_only_another_branch_was_given_were_read_there(script):
    script.found(OSLO, id="a", path="ra")
    script.found(BERGEN, id="b", path="rb")
    script.asked(f"{BERGEN} {OSLO}", ADA, path="rb")
    assert script.answered(ADA) == [[OSLO], [BERGEN]]


@pytest.mark.parametrize("looked", [True, False])
def test_k_does_not_depend_on_when_the_events_were_read(script, looked):
    script.found(OSLO, BERGEN, id="a", path="ra")
    script.found(MOLDE, id="b", path="rb")
    script.asked(OSLO, ADA, path="ra")
    script.asked(MOLDE, OLAV, path="rb")
    assert not looked or script.read() == [[], [MOLDE]]
    assert script.answered(f"{ADA} {OLAV}") == [[OSLO], [MOLDE]]
    assert [step.k for step in script.captured.run.steps] == [1, None]


COPIES = {
    "one after the other": (f"{OSLO} {BERGEN} {MOLDE} {OSLO} {BERGEN}", [MOLDE, OSLO, BERGEN]),
    "in an order of its own": (f"{OSLO} {BERGEN} {BERGEN} {MOLDE} {OSLO}", [BERGEN, MOLDE, OSLO]),
    "once each, so that it cannot be told": (f"{OSLO} {BERGEN} {MOLDE}", [MOLDE, OSLO, BERGEN]),
}


@pytest.mark.parametrize("case", COPIES)
def test_copy_of_an_earlier_hop_is_no_place_of_a_later_one(script, case):
    given, expected = COPIES[case]
    script.found(OSLO, BERGEN, id="a")
    script.found(MOLDE, OSLO, BERGEN, id="b")
    script.asked(given, ADA)
    assert script.answered(ADA) == [[OSLO, BERGEN], expected]


@pytest.mark.parametrize(("requests", "expected"), [(("", ""), [OSLO, BERGEN]), (("a", "b"), [BERGEN, OSLO])])
def test_copies_of_parallel_hops_are_told_apart_by_their_tool_calls(script, requests, expected):
    script.found(OSLO, BERGEN, id="a", turn=0, request=requests[0])
    script.found(OSLO, BERGEN, id="b", turn=0, request=requests[1])
    script.asked(f"{OSLO} {BERGEN} {BERGEN} {OSLO}", ADA)
    assert script.answered(ADA) == [[OSLO, BERGEN], expected]


def test_what_was_only_judged_is_counted_and_said(script):
    script.found(OSLO, BERGEN)
    script.asked(f"Is this relevant? {OSLO}", "no")
    script.asked(BERGEN, OLAV)
    assert script.answered(OLAV) == [[BERGEN]]
    assert script.metadata[JUDGED_ONLY] == 1
    assert notice(script.metadata, 1) == "1 of the candidates were only judged by a model, and not read"


def test_replies_of_which_the_answer_is_put_together_all_count(script):
    script.found(OSLO, BERGEN)
    script.asked(OSLO, "Ada Berg, in 1922")
    script.asked(BERGEN, "Olav Dahl, in 1931")
    read = script.answered("Response 1: Ada Berg, in 1922\n----\nResponse 2: Olav Dahl, in 1931")
    assert (read, JUDGED_ONLY in script.metadata) == ([[OSLO, BERGEN]], False)


def test_call_after_the_answer_does_not_take_its_place(script):
    script.found(OSLO)
    script.asked(OSLO, ADA)
    script.asked(f"Is this grounded: {ADA} Say yes or no.", "yes")
    assert script.answered(ADA) == [[OSLO]]


@pytest.mark.parametrize("text", [OSLO, HAN, THAI])
def test_passage_that_is_cut_makes_what_was_read_unknown(script, text):
    script.found(text, "Another one.")
    script.asked(f"Answer from: {text[: len(text) * 3 // 4]}")
    assert script.read() == ["unknown"]


@pytest.mark.parametrize("shown", [30, 60])
def test_beginning_of_each_passage_is_unknown_also_beside_a_whole_one(script, shown):
    script.found(OSLO, BERGEN, MOLDE)
    script.asked(f"{OSLO}\n{BERGEN[:shown]}\n{MOLDE[:shown]}", ADA)
    assert script.answered(ADA) == ["unknown"]


def test_passages_that_the_application_reports_are_read_whatever_a_prompt_holds(script):
    script.found(OSLO, followed=False)
    script.asked("Who founded it?", ADA)
    assert script.answered(ADA) == [[OSLO]]


def test_passage_that_a_guard_dropped_was_read_by_an_earlier_retrieval_only(script):
    script.found(OSLO, BERGEN, id="first")
    script.asked([OSLO, BERGEN], "")
    script.found(OSLO, BERGEN, id="second")
    dropped = Dropped(Passage(OSLO, "0"), 1, "misleads", -0.9)
    script.recorder.step_amended("second", "run", None, Decision([Passage(BERGEN, "1")], [dropped], "pruned"))
    script.asked([OSLO, BERGEN, BERGEN], OLAV)
    assert script.answered(OLAV) == [[OSLO, BERGEN], [BERGEN]]


def test_note_of_an_open_run_goes_when_the_end_tells_more(script):
    script.found(OSLO)
    script.asked(OSLO, "A note on what Nordlys is and does.")
    script.asked("Write the answer.", "Something else entirely.")
    open_run = script.captured.run.steps[0]
    script.asked("From this note: A note on what Nordlys is and does.", ADA)
    assert script.answered(ADA) == [[OSLO]]
    assert JUDGED_ONLY not in script.metadata
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


def test_long_conversation_is_compared_once_a_message(script, monkeypatch):
    """What is in every prompt is not taken apart again for each of 30 prompts of 100 KB."""
    from ragguard.capture import passage_search

    taken_apart = []
    whole = passage_search.running_words
    monkeypatch.setattr(
        passage_search, "running_words", lambda text: taken_apart.append(len(text)) or whole(text)
    )
    messages = [f"{'word ' * 99}{number}" for number in range(200)]
    script.found(*[f"{OSLO} {number}" * 20 for number in range(5)])
    for _ in range(30):
        script.asked(messages, "")
    assert script.answered("Ada Berg") == [[]]
    assert sum(size for size in taken_apart if size <= 600) <= 2 * sum(map(len, messages))
