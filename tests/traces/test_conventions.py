"""One retrieval in a pipeline, as each convention writes it, is the same run."""

import pytest
from support.captured import ids
from support.traced import documents, only_run, span

from ragguard.traces import read

DOCUMENTS = [
    {"page_content": "text of a", "id": "a", "metadata": {"page": 1}},
    {"page_content": "text of b", "id": "b", "metadata": {}},
]
NODES = [
    {"node": {"id_": one, "text": f"text of {one}", "class_name": "TextNode"}, "score": 0.5} for one in "ab"
]
PROMPT = "Read: text of b. Who?"

CONVENTIONS = {
    "OpenInference": [
        span(1, at=(1, 99), openinference__span__kind="CHAIN", input__value="Who?", output__value="Ada",
             session__id="s"),
        span(2, 1, openinference__span__kind="RETRIEVER", input__value="who", **documents("a", "b")),
        span(3, 1, openinference__span__kind="LLM", **{"llm.input_messages.0.message.content": PROMPT}),
    ],
    "OpenTelemetry GenAI": [
        span(1, at=(1, 99), gen_ai__operation__name="invoke_agent", gen_ai__conversation__id="s",
             gen_ai__input__messages=[{"role": "user", "parts": [{"type": "text", "content": "Who?"}]}],
             gen_ai__output__messages=[{"role": "assistant", "parts": [{"type": "text", "content": "Ada"}]}]),
        span(2, 1, gen_ai__operation__name="retrieval", gen_ai__retrieval__query__text="who",
             gen_ai__retrieval__documents=[{"id": one, "content": f"text of {one}", "score": 0.5} for one in "ab"]),
        span(3, 1, gen_ai__operation__name="chat",
             events=[("gen_ai.client.inference.operation.details",
                      {"gen_ai.input.messages": [{"role": "user", "parts": [{"type": "text", "content": PROMPT}]}]})]),
    ],
    "a tool of GenAI": [
        span(1, at=(1, 99), gen_ai__operation__name="invoke_agent", gen_ai__conversation__id="s",
             gen_ai__input__messages=[{"role": "user", "parts": [{"type": "text", "content": "Who?"}]}],
             gen_ai__output__messages=[{"role": "assistant", "parts": [{"type": "text", "content": "Ada"}]}]),
        span(2, 1, gen_ai__operation__name="execute_tool", gen_ai__tool__call__arguments={"query": "who"},
             gen_ai__tool__call__result={"results": [{"url": one, "content": f"text of {one}"} for one in "ab"]}),
        span(3, 1, gen_ai__operation__name="chat",
             gen_ai__input__messages=[{"role": "tool", "parts": [{"type": "tool_call_response", "response": PROMPT}]}]),
    ],
    "a memory": [
        span(1, at=(1, 99), gen_ai__operation__name="invoke_agent", gen_ai__conversation__id="s",
             gen_ai__input__messages=[{"role": "user", "content": "Who?"}],
             gen_ai__output__messages=[{"role": "assistant", "content": "Ada"}]),
        span(2, 1, gen_ai__operation__name="search_memory", gen_ai__memory__query__text="who",
             gen_ai__memory__records=[{"id": one, "content": f"text of {one}"} for one in "ab"]),
        span(3, 1, gen_ai__operation__name="chat", gen_ai__input__messages=[{"role": "user", "content": PROMPT}]),
    ],
    "OpenLLMetry": [
        span(1, at=(1, 99), traceloop__span__kind="workflow", traceloop__entity__input={"inputs": "Who?"},
             traceloop__entity__output={"outputs": "Ada"}, traceloop__association__properties__session_id="s"),
        span(2, 1, traceloop__span__kind="task", gen_ai__operation__name="vector_db_retrieve",
             traceloop__entity__input={"query": "who", "tags": []}, traceloop__entity__output={"documents": DOCUMENTS}),
        span(3, 1, llm__request__type="chat", **{"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": PROMPT}),
    ],
    "a task of OpenLLMetry": [
        span(1, at=(1, 99), traceloop__span__kind="workflow",
             traceloop__entity__input={"inputs": {"question": "Who?"}},
             traceloop__entity__output={"outputs": {"answer": "Ada"}},
             traceloop__association__properties__session_id="s"),
        span(2, 1, traceloop__span__kind="task", traceloop__entity__input={"str_or_query_bundle": "who"},
             traceloop__entity__output=NODES),
        span(3, 1, llm__request__type="chat", **{"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": PROMPT}),
    ],
    "Langfuse": [
        span(1, at=(1, 99), langfuse__observation__type="chain", langfuse__trace__input={"question": "Who?"},
             langfuse__trace__output={"answer": "Ada"}, session__id="s"),
        span(2, 1, langfuse__observation__type="retriever", langfuse__observation__input="who",
             langfuse__observation__output=DOCUMENTS),
        span(3, 1, langfuse__observation__type="generation",
             langfuse__observation__input=[{"role": "user", "content": PROMPT}]),
    ],
    "MLflow": [
        span(1, at=(1, 99), mlflow__spanType='"CHAIN"', mlflow__spanInputs={"question": "Who?"},
             mlflow__spanOutputs={"answer": "Ada"}, mlflow__trace__session="s"),
        span(2, 1, mlflow__spanType='"RETRIEVER"', mlflow__spanInputs={"query": "who"}, mlflow__spanOutputs=DOCUMENTS),
        span(3, 1, mlflow__spanType='"CHAT_MODEL"',
             mlflow__spanInputs={"messages": [{"role": "user", "content": PROMPT}]}),
    ],
}  # fmt: skip


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_a_retrieval_in_a_pipeline(convention):
    run = only_run(*CONVENTIONS[convention])
    assert (run.question, run.answer, run.metadata["session_id"]) == ("Who?", "Ada", "s")
    (step,) = run.steps
    assert step.query == "who"
    assert ids(step.candidates) == ["a", "b"]
    assert [one.text for one in step.candidates] == ["text of a", "text of b"]
    assert ids(step.passages) == ["b"]  # what stands in the prompt
    assert (step.trace.span_id, step.trace.foreign) == (f"{2:016x}", True)


def test_the_results_of_a_vector_database_stand_in_events():
    events = [
        (
            "db.query.result",
            {"db.query.result.id": "a", "db.query.result.distance": 0.1, "db.query.result.document": "A"},
        )
    ]
    (step,) = only_run(span(1, name="chroma.query", events=events)).steps
    assert [(one.id, one.text) for one in step.passages] == [("a", "A")]


def test_documents_count_under_the_key_of_another_convention():
    (step,) = only_run(span(1, openinference__span__kind="RETRIEVER", mlflow__spanOutputs=DOCUMENTS)).steps
    assert ids(step.passages) == ["a", "b"]


def test_documents_without_ids_get_those_of_the_output():
    bare = {
        "retrieval.documents.0.document.content": "text of a",
        "retrieval.documents.1.document.content": "text of b",
    }
    (step,) = only_run(
        span(1, openinference__span__kind="RETRIEVER", output__value={"documents": DOCUMENTS}, **bare)
    ).steps
    assert ids(step.passages) == ["a", "b"]


def test_nothing_found_is_a_step_and_documents_that_are_not_there_are_a_remark():
    (empty,) = only_run(
        span(1, openinference__span__kind="RETRIEVER", output__value='{"documents": []}')
    ).steps
    assert (empty.passages, empty.status) == ([], "ok")
    (found,) = read([span(1, name="search", openinference__span__kind="RETRIEVER", input__value="who")])
    assert found.run.steps == []
    assert found.remarks == found.run.metadata["remarks"]
    assert "'search' holds no documents" in found.remarks[0]


def test_documents_without_texts_are_said():
    (found,) = read(
        [span(1, gen_ai__operation__name="retrieval", gen_ai__retrieval__documents=[{"id": "a", "score": 1}])]
    )
    assert ids(found.run.steps[0].passages) == ["a"]
    assert "without their texts" in found.remarks[0]


def test_evaluations_of_others_are_kept():
    said = {"gen_ai.evaluation.name": "relevance", "gen_ai.evaluation.score.value": 0.5}
    events = [("gen_ai.evaluation.result", said)]
    run = only_run(span(1, openinference__span__kind="RETRIEVER", **documents("a"), events=events))
    assert run.metadata["evaluations"] == [said]


def test_an_http_request_is_no_pipeline():
    assert list(read([span(1, http__method="GET")])) == []
