"""Runs of spans: roots, order, turns, what is nested, what was left out, and traces that are broken."""

from dataclasses import replace

import pytest
from support.captured import ids
from support.traced import documents, only_run, span

from ragguard.traces import read
from ragguard.traces.spans import SpanEvent

CHAIN, RETRIEVER, TOOL, LLM = (
    {"openinference.span.kind": kind} for kind in ("CHAIN", "RETRIEVER", "TOOL", "LLM")
)


def model(number, parent, prompt, reply="", **more):
    asked = {"llm.input_messages.0.message.content": prompt}
    replied = {
        "llm.output_messages.0.message.content": reply,
        "llm.output_messages.0.message.role": "assistant",
    }
    return span(number, parent, **LLM, **asked, **replied, **more)


def hop(number, parent, *found, query="", **more):
    return span(
        number, parent, **RETRIEVER, input__value=query or f"query {number}", **documents(*found), **more
    )


def test_nested_retrievals_are_one_step_with_its_parts():
    run = only_run(
        span(1, at=(1, 99), **CHAIN, input__value="Who?"),
        hop(2, 1, "a", at=(10, 40), query="who"),
        hop(3, 2, "a", "b", at=(11, 20)),
        hop(4, 2, "c", at=(21, 30)),
    )
    (step,) = run.steps
    assert (step.query, ids(step.passages), ids(step.candidates)) == ("who", ["a"], ["a", "b", "c"])
    assert [(part.query, ids(part.passages)) for part in step.sub_steps] == [
        ("query 3", ["a", "b"]),
        ("query 4", ["c"]),
    ]


def test_all_retrievals_count_in_the_order_in_which_they_began():
    run = only_run(hop(3, 1, "c"), hop(2, 1, "b"), span(1, at=(1, 99), **CHAIN, input__value="Who?"))
    assert [(step.index, step.turn, ids(step.passages)) for step in run.steps] == [
        (0, 0, ["b"]),
        (1, 1, ["c"]),
    ]


def test_parallel_retrievals_share_a_turn():
    run = only_run(
        span(1, at=(1, 99), **CHAIN, input__value="Who?"),
        model(2, 1, "Who?", at=(2, 9)),
        span(3, 1, **TOOL, at=(10, 20), input__value="x", tool__name="search"), hop(4, 3, "a", at=(11, 14)),
        span(5, 1, **TOOL, at=(10, 30), input__value="y", tool__name="search"), hop(6, 5, "b", at=(21, 25)),
        model(7, 1, "text of a, text of b", at=(40, 45)),
        span(8, 1, **TOOL, at=(50, 60), input__value="z", tool__name="other"), hop(9, 8, "c", at=(51, 55)),
    )  # fmt: skip
    assert [(step.turn, step.tool) for step in run.steps] == [(0, "search"), (0, "search"), (1, "other")]


@pytest.mark.parametrize(("named", "k"), [(1, None), (2, 2), (5, 5), (-3, None), ("five", None)])
def test_k_that_a_span_names_counts_where_it_is_no_less_than_its_documents(named, k):
    retrieval = {"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.top_k": named}
    run = only_run(
        span(1, at=(1, 99), **CHAIN, input__value="Who?"), span(2, 1, **retrieval, **documents("a", "b"))
    )
    assert run.steps[0].k == k


def test_a_reranker_leaves_candidates_and_passages():
    rerank = {"openinference.span.kind": "RERANKER"}
    for number, id in enumerate("ab"):
        rerank[f"reranker.input_documents.{number}.document.id"] = id
    rerank["reranker.output_documents.0.document.id"] = "b"
    run = only_run(
        span(1, at=(1, 99), **CHAIN, input__value="Who?"),
        hop(2, 1, "a", "b"),
        hop(3, 1, "c"),
        span(4, 1, **rerank),
    )
    assert [(ids(step.candidates), ids(step.passages), step.k) for step in run.steps] == [
        (["a", "b"], ["b"], 1),
        (["c"], ["c"], None),
    ]


def test_a_task_that_filters_documents_is_a_reranker():
    task = {"traceloop.span.kind": "task"}
    found = [{"page_content": f"text of {one}", "id": one, "metadata": {}} for one in "ab"]
    run = only_run(
        span(1, at=(1, 99), traceloop__span__kind="workflow", traceloop__entity__input="Who?"),
        span(2, 1, **task, traceloop__entity__input={"query": "who"}, traceloop__entity__output=found),
        span(
            3, 1, **task, traceloop__entity__input={"documents": found}, traceloop__entity__output=found[:1]
        ),
    )
    (step,) = run.steps
    assert (ids(step.candidates), ids(step.passages)) == (["a", "b"], ["a"])


def test_what_only_a_grader_saw_was_not_read():
    run = only_run(
        span(1, at=(1, 99), **CHAIN, input__value="Who?", output__value="Ada"),
        hop(2, 1, "a", "b"),
        model(3, 1, "Is it relevant? text of a", "yes"),
        model(4, 1, "text of b Who?", "Ada"),
    )
    assert ids(run.steps[0].passages) == ["b"]
    assert run.steps[0].metadata["ragguard.judged_only"] == 1


def test_the_query_of_a_tool_is_that_of_its_retrieval():
    run = only_run(
        span(1, at=(1, 99), **TOOL, tool__name="search", input__value={"query": "who"}),
        hop(2, 1, "a", query="\nquery is who\n"),
    )
    assert (run.steps[0].query, run.steps[0].tool) == ("who", "search")


def test_pipelines_beside_each_other_are_runs_of_their_own():
    found = list(
        read([
            span(1, at=(1, 999), http__method="POST"),
            span(2, 1, **CHAIN, input__value="One?", output__value="1"), hop(3, 2, "a"),
            span(4, 1, **CHAIN, input__value="Two?", output__value="2"), hop(5, 4, "b"),
        ])
    )  # fmt: skip
    assert [(one.run.question, one.run.answer) for one in found] == [("One?", "1"), ("Two?", "2")]
    assert len({one.run.id for one in found}) == 2


def test_loose_spans_of_a_request_are_one_run():
    run = only_run(
        span(1, at=(1, 999), http__method="POST"),
        hop(2, 1, "a", query="who"),
        model(3, 1, "text of a", "Ada"),
    )
    assert (run.question, run.answer, ids(run.steps[0].passages)) == ("who", "Ada", ["a"])


def test_annotations_of_a_request_are_those_of_the_one_run_inside_it():
    thumb = SpanEvent("annotation", {"name": "thumb", "kind": "HUMAN", "score": 1})
    request = replace(span(1, at=(1, 999), http__method="POST"), events=[thumb])
    chains = [(span(2, 1, **CHAIN), hop(3, 2, "a")), (span(4, 1, **CHAIN), hop(5, 4, "b"))]
    assert only_run(request, *chains[0]).metadata["annotations"] == [thumb.attributes]
    for one in read([request, *chains[0], *chains[1]]):
        assert "annotations" not in one.run.metadata, "it may be about either"


def test_a_retrieval_that_failed_is_a_step():
    (step,) = only_run(span(1, **RETRIEVER, input__value="who", failed=True)).steps
    assert (step.status, step.error, step.passages) == ("error", "it failed", [])


def test_a_trace_without_its_root_is_one_run():
    run = only_run(hop(2, 1, "a", query="who"), hop(3, 1, "b"))
    assert [ids(step.passages) for step in run.steps] == [["a"], ["b"]]
    assert run.id.endswith(f"{1:016x}")  # as with the root that is missing


def test_spans_that_come_twice_count_once():
    begun = hop(2, 1, at=(20, 0))
    run = only_run(begun, hop(2, 1, "a"), hop(2, 1, "a"), span(1, at=(1, 99), **CHAIN, input__value="Who?"))
    assert [ids(step.passages) for step in run.steps] == [["a"]]


def test_a_circle_of_parents_is_cut():
    run = only_run(hop(1, 3, "a"), hop(2, 1, "b"), hop(3, 2, "c"))
    assert len(run.steps) == 1
    assert len(run.steps[0].sub_steps) == 2
    assert [ids(one.passages) for one in only_run(hop(1, 1, "a")).steps] == [["a"]]


def test_clocks_that_disagree_change_the_order_alone():
    run = only_run(
        span(1, at=(5_000, 5_100), **CHAIN, input__value="Who?"), hop(2, 1, "a"), hop(3, 1, "b", at=(9, 0))
    )
    assert [ids(step.passages) for step in run.steps] == [["b"], ["a"]]


@pytest.mark.parametrize("shape", ["deep", "wide"])
def test_more_spans_than_a_trace_may_have_are_counted(shape):
    spans = (span(n, n - 1 if shape == "deep" else 1, **TOOL) for n in range(1, 12_001))
    reading = read([hop(20_000, 1, "a"), *spans])
    (found,) = reading
    assert len(found.run.steps) == 1
    assert (reading.counts["spans"], reading.counts["spans rejected"]) == (10_000, 2_001)
    assert any("more than 10,000 spans" in remark for remark in reading.remarks)


def test_retrievals_beyond_a_thousand_are_said():
    (found,) = read([span(1, openinference__span__kind="AGENT"), *(hop(n, 1, "a") for n in range(2, 1005))])
    assert len(found.run.steps) == 1000
    assert found.remarks == ["a retrieval beyond the first 1,000 of a run is left out (3 times)"]


def test_a_whole_run_that_cannot_be_read_is_a_remark_and_the_spans_are_read():
    run = only_run(
        span(1, at=(1, 99), **CHAIN, input__value="Who?", ragguard__run__whole="{"), hop(2, 1, "a")
    )
    assert [ids(step.passages) for step in run.steps] == [["a"]]
    assert "the run in the span 'span 1' is not read" in run.metadata["remarks"][0]


@pytest.mark.parametrize(("side", "name"), [("input", "messages"), ("output", "input")])
def test_a_question_that_no_root_has_is_that_of_the_first_task_with_messages(side, name):
    """A step of LlamaIndex's agents has no input, and gives the messages to the next step."""
    asked = {name: [{"role": "user", "blocks": [{"block_type": "text", "text": "Who?"}]}]}
    spans = [
        span(1, at=(1, 99), traceloop__span__kind="workflow", traceloop__entity__output={"result": "Ada"}),
        span(
            2, 1, traceloop__span__kind="task", traceloop__entity__input={"kwargs": {"query": "no question"}}
        ),
        span(3, 1, traceloop__span__kind="task", **{f"traceloop__entity__{side}": asked}),
        hop(4, 1, "a", query="who"),
    ]
    assert only_run(*spans).question == "Who?"
