"""The numbers of turns, and the place of a run and its steps in a trace of OpenTelemetry."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from support.captured import Captured

from ragguard.capture.events import Turns
from ragguard.capture.handle import RunHandle
from ragguard.capture.recorder import Recorder, trace_context


def test_steps_one_after_the_other_have_turns_of_their_own():
    turns = Turns()
    assert [turns.next() for _ in range(3)] == [0, 1, 2]


def test_steps_of_one_branch_that_overlap_share_a_turn():
    turns = Turns()
    first = turns.next()
    assert turns.next((), [((), first)]) == first
    branch = (("g", "a"),)
    second = turns.next(branch, [])
    assert turns.next(branch, [((), first), (branch, second)]) == second == 1


def test_branches_of_a_group_begin_at_one_turn_and_what_follows_comes_after_the_longest():
    turns = Turns()
    a, b = (("g", "a"),), (("g", "b"),)
    assert [turns.next(key) for key in (a, a, b, b, b)] == [0, 1, 0, 1, 2]
    assert [turns.next((("h", branch),)) for branch in "cd"] == [3, 3]
    assert turns.next() == 4


def test_groups_inside_parallel_branches_are_numbered_by_their_branch():
    turns = Turns()
    agents = [(("superstep 1", name),) for name in "ab"]
    for hop in range(2):  # each agent makes two hops, of two parallel searches each
        for agent in agents:
            assert [turns.next((*agent, ((agent, hop), call))) for call in "xy"] == [hop, hop]
    assert turns.next((("superstep 2", "c"),)) == 2


def test_outermost_calls_that_are_open_at_once_are_parallel_branches():
    turns = Turns()
    a, b = turns.began("a"), turns.began("b")
    assert [turns.next(key) for key in (a, b, a)] == [0, 0, 1]
    turns.ended("a")
    turns.ended("b")
    assert turns.next(turns.began("c")) == 2


def test_a_given_turn_is_kept_and_counted_on_from():
    turns = Turns()
    assert turns.given(4) == 4
    assert turns.next() == 5
    assert turns.given(4) == 4
    assert turns.next() == 6


def test_runs_and_steps_know_their_spans():
    tracer = TracerProvider().get_tracer("app")
    captured = Captured()
    recorder = Recorder(captured)
    with (
        tracer.start_as_current_span("request") as request,
        RunHandle(recorder, "q") as run,
        tracer.start_as_current_span("hop") as hop,
    ):
        run.retrieved("hop", ["a"])
    context = request.get_span_context()
    trace_of_run = captured.run.trace
    assert trace_of_run is not None
    assert int(trace_of_run.trace_id, 16) == context.trace_id
    assert int(trace_of_run.span_id, 16) == context.span_id
    assert (trace_of_run.sampled, trace_of_run.foreign) == (True, False)
    trace_of_step = captured.run.steps[0].trace
    assert trace_of_step is not None
    assert int(trace_of_step.span_id, 16) == hop.get_span_context().span_id


def test_an_unsampled_span_is_said_to_be_one():
    tracer = TracerProvider(sampler=ALWAYS_OFF).get_tracer("app")
    with tracer.start_as_current_span("request"):
        context = trace_context()
    assert context is not None
    assert not context.sampled


@pytest.mark.parametrize(
    "attributes", [{"openinference.span.kind": "RETRIEVER"}, {"gen_ai.operation.name": "retrieval"}]
)
def test_a_retrieval_span_of_somebody_else_is_recognised(attributes):
    tracer = TracerProvider().get_tracer("app")
    with tracer.start_as_current_span("retrieval", attributes=attributes):
        context = trace_context()
    assert context is not None
    assert context.foreign
