"""Trajectories in ATIF as runs: questions, hops, what was read, sub-agents, and files that are none."""

import json
from contextlib import suppress

import pytest
from support.captured import ids

from ragguard.errors import InvalidInput
from ragguard.inputs.formats import ReadOptions
from ragguard.inputs.reading import RunReading, runs_from
from ragguard.traces import read
from ragguard.traces.trace_spans import packed_json


def found(*names):
    return json.dumps([{"id": name, "text": f"text of {name}"} for name in names])


def call(id, **arguments):
    return {"tool_call_id": id, "function_name": "search", "arguments": arguments}


def result(id, content):
    return {"source_call_id": id, "content": content}


STEPS = [
    {"step_id": 1, "source": "system", "message": "You search."},
    {"step_id": 2, "source": "user", "message": "Who founded the firm in Oslo?", "timestamp": "2026-01-02T00:00:01Z"},
    {"step_id": 3, "source": "agent", "message": "", "model_name": "m",
     "tool_calls": [call("c1", query="firm in Oslo"), call("c2", query="Oslo")],
     "observation": {"results": [result("c2", found("o")), result("c1", found("f", "x"))]},
     "metrics": {"prompt_tokens": 12, "completion_tokens": 3, "cost_usd": 0.01}},
    {"step_id": 4, "source": "agent", "message": "It is Nordvik; I look for its founder.",
     "tool_calls": [call("c3", query="founder of Nordvik")],
     "observation": {"results": [result("c3", found("n"))]}},
    {"step_id": 5, "source": "agent", "message": "Ada Berg founded it."},
    {"step_id": 6, "source": "user", "message": "And when?"},
    {"step_id": 7, "source": "agent", "message": "", "tool_calls": [call("c4", query="Nordvik founded")]},
    {"step_id": 8, "source": "system", "message": "", "observation": {"results": [{"content": found("y")}]}},
    {"step_id": 9, "source": "agent", "message": "In 1922."},
]  # fmt: skip
TRAJECTORY = {"schema_version": "ATIF-v1.7", "session_id": "s1", "agent": {"name": "finder", "version": "1"},
              "steps": STEPS}  # fmt: skip


def runs_in(path, data, **more):
    path.write_text(json.dumps(data, indent=2))
    return list(RunReading(path, ReadOptions(**more)).runs())


def test_each_question_of_a_trajectory_is_a_run(tmp_path):
    first, second = runs_in(tmp_path / "t.json", TRAJECTORY)
    assert (first.question, first.answer, first.name) == (
        "Who founded the firm in Oslo?", "Ada Berg founded it.", "finder"
    )  # fmt: skip
    assert [(step.query, step.turn, ids(step.passages)) for step in first.steps] == [
        ("firm in Oslo", 0, ["f", "x"]), ("Oslo", 0, ["o"]), ("founder of Nordvik", 1, ["n"])
    ]  # fmt: skip
    assert (second.question, second.answer, [ids(step.passages) for step in second.steps]) == (
        "And when?", "In 1922.", [["y"]]
    )  # fmt: skip
    assert first.metadata["convention"] == "ATIF"
    assert first.metadata["model_calls"][0]["tokens_read"] == 12
    assert first.started_ns == 1767312001000000000
    assert [run.id for run in runs_in(tmp_path / "u.json", TRAJECTORY)] == [first.id, second.id]


def test_json_in_messages_as_nemo_writes_it(tmp_path):
    message = json.dumps([{"role": "user", "content": "Find news."}])
    steps = [{"source": "user", "message": message}, *STEPS[2:5]]
    (run,) = runs_in(tmp_path / "t.json", {**TRAJECTORY, "schema_version": "ATIF-v1.6", "steps": steps})
    assert run.question == "Find news."


def test_a_prompt_that_repeats_its_question_begins_no_other_run(tmp_path):
    """Converted events hold whole prompts and replies as JSON: the second prompt is no new question of a user."""
    asks = {"role": "user", "content": "Who founded Nordvik?"}
    calls = {"id": "c1", "name": "search", "arguments": {"query": "founder"}}
    steps = [
        {"source": "user", "message": json.dumps([asks])},
        {"source": "agent", "message": json.dumps({"content": "", "tool_calls": [calls]}),
         "tool_calls": [call("c1", query="founder")]},
        {"source": "system", "message": "", "observation": {"results": [{"content": found("n")}]}},
    ]  # fmt: skip
    after = [
        asks,
        {"role": "assistant", "tool_calls": [calls]},
        {"role": "tool", "content": "Ada Berg", "tool_call_id": "c1"},
    ]
    ended = [
        *steps,
        {"source": "user", "message": json.dumps(after)},
        {"source": "agent", "message": json.dumps({"content": "Ada Berg"})},
    ]
    again = [*after, {"role": "assistant", "content": "Ada Berg"}, {"role": "user", "content": "And when?"}]
    for more, expected in (
        (steps, [("Who founded Nordvik?", None)]),
        (ended, [("Who founded Nordvik?", "Ada Berg")]),
        (
            [*ended, {"source": "user", "message": json.dumps(again)}, *steps[1:3], STEPS[-1]],
            [("Who founded Nordvik?", "Ada Berg"), ("And when?", "In 1922.")],
        ),
    ):
        runs = runs_in(tmp_path / "t.json", {**TRAJECTORY, "steps": more})
        assert [(run.question, run.answer) for run in runs] == expected
        assert all([ids(step.passages) for step in run.steps] == [["n"]] for run in runs)


def test_a_tool_without_an_argument_of_a_usual_name_is_asked_all_of_them(tmp_path):
    steps = [
        {"source": "user", "message": "Where is the flag?"},
        {"source": "agent", "message": "", "tool_calls": [call("c1", pattern="disabled", path="src")],
         "observation": {"results": [result("c1", found("f"))]}},
        {"source": "agent", "message": "In f."},
    ]  # fmt: skip
    (run,) = runs_in(tmp_path / "t.json", {**TRAJECTORY, "steps": steps})
    assert run.steps[0].query == "pattern: disabled, path: src"


def test_trajectories_may_stand_one_a_line_and_come_to_the_service(tmp_path):
    other = {**TRAJECTORY, "session_id": "s2"}
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, (TRAJECTORY, other))))
    assert RunReading(tmp_path / "t.jsonl").format() == "traces"
    assert len(list(runs_from(tmp_path / "t.jsonl"))) == 4
    broken = []
    assert len(list(packed_json(json.dumps(TRAJECTORY).encode(), broken))) == 11  # what POST /v1/traces takes
    assert len(list(read(json.dumps(TRAJECTORY).encode()))) == 2


def test_files_that_a_coding_agent_read_are_passages_where_that_is_declared(tmp_path):
    steps = [
        {"source": "user", "message": "Which flag disables it?"},
        {"source": "agent", "message": "", "tool_calls": [
            {"tool_call_id": "c1", "function_name": "read_file", "arguments": {"path": "forms.py"}}],
         "observation": {"results": [result("c1", "disabled=True switches it off")]}},
        {"source": "agent", "message": "disabled=True"},
    ]  # fmt: skip
    data = {**TRAJECTORY, "steps": steps}
    reading = RunReading(tmp_path / "t.json")
    assert runs_in(tmp_path / "t.json", data) == []
    assert list(reading.lines()) == []
    (remark,) = reading.remarks
    assert "tool read_file of ATIF (1)" in remark
    assert "--tool NAME" in remark
    (run,) = runs_in(tmp_path / "t.json", data, tools=["read_file"])
    (step,) = run.steps
    assert (step.query, step.tool, step.passages[0].text) == (
        "forms.py",
        "read_file",
        "disabled=True switches it off",
    )


def test_what_a_sub_agent_searched_is_a_step_of_the_run(tmp_path):
    inner = {
        "schema_version": "ATIF-v1.7",
        "trajectory_id": "inner",
        "agent": {"name": "helper"},
        "steps": STEPS[1:5],
    }
    steps = [
        {"source": "user", "message": "Ask the helper who founded it."},
        {"source": "agent", "message": "", "tool_calls": [call("d1", task="founder")], "observation": {"results": [
            {"source_call_id": "d1", "content": "Ada Berg", "subagent_trajectory_ref": [{"trajectory_id": "inner"}]}]}},
        {"source": "agent", "message": "Ada Berg"},
    ]  # fmt: skip
    data = {**TRAJECTORY, "steps": steps, "subagent_trajectories": [inner]}
    (run,) = runs_in(tmp_path / "t.json", data)
    assert run.question == "Ask the helper who founded it."
    assert [step.query for step in run.steps] == ["firm in Oslo", "Oslo", "founder of Nordvik"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"schema_version": "ATIF-v2.0"}, "schema_version: got 'ATIF-v2.0'; allowed: ATIF-v1.0 to ATIF-v1.7"),
        ({"steps": []}, "is the trajectory cut off"),
        ({"steps": [5]}, "is the trajectory cut off"),
    ],
)
def test_a_trajectory_that_cannot_be_read_is_one_remark(tmp_path, change, says):
    (tmp_path / "t.json").write_text(json.dumps(TRAJECTORY | change))
    reading = read(tmp_path / "t.json")
    assert list(reading) == []
    assert says in " ".join(reading.remarks)
    assert reading.counts["lines rejected"] == 1


def test_a_trajectory_that_is_cut_off_is_one_error(tmp_path):
    (tmp_path / "t.json").write_text(json.dumps(TRAJECTORY, indent=1)[:-40])
    with pytest.raises(InvalidInput, match="a whole document, which this is not"):
        list(runs_from(tmp_path / "t.json"))


ODD = [None, 5, "x", [], {}, [[]], [{"source": 5}], [{"source": "agent", "tool_calls": 5}],
       [{"source": "agent", "observation": {"results": [{"content": [5, {"text": 3}]}]}}]]  # fmt: skip


@pytest.mark.parametrize("name", ["steps", "agent", "session_id", "subagent_trajectories"])
def test_odd_parts_of_a_trajectory_raise_nothing_of_their_own(name):
    for odd in ODD:
        with suppress(InvalidInput):
            list(read(json.dumps(TRAJECTORY | {name: odd}).encode()))


@pytest.mark.slow
def test_a_long_trajectory_costs_time_in_proportion(tmp_path):
    """A thousand searches of 10 KB: each call of the model has the text that is new to it only."""
    steps = [STEPS[1]]
    for number in range(1000):
        text = json.dumps([{"id": f"p{number}", "text": f"{number} " + "x" * 10_000}])
        steps.append({"source": "agent", "message": "", "tool_calls": [call(f"c{number}", query=f"q{number}")],
                      "observation": {"results": [result(f"c{number}", text)]}})  # fmt: skip
    steps.append({"source": "agent", "message": "done"})
    path = tmp_path / "t.json"
    path.write_text(json.dumps({**TRAJECTORY, "steps": steps}, indent=1))
    (run,) = runs_from(path)
    assert len(run.steps) == 1000
    assert all(step.passages for step in run.steps)
