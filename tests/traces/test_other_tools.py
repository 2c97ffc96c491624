"""Traces as Vercel's AI SDK, pydantic-ai and MLflow write them, and traces in which nothing known retrieves."""

from __future__ import annotations

import json

from support.traced import only_run, span

from ragguard.inputs.reading import RunReading
from ragguard.traces import read

FOUND = [{"id": "a", "text": "Ada Berg founded Nordlys."}, {"id": "b", "text": "Olav Dahl founded Skagen."}]


def vercel(number, operation, parent=0, **attributes):
    named = {f"ai.{name.replace('__', '.')}": value for name, value in attributes.items()}
    return span(number, parent, **{"ai.operationId": operation, **named})


def test_spans_of_the_vercel_ai_sdk():
    called = {"type": "tool-call", "toolCallId": "1", "toolName": "search", "args": {"query": "founder"}}
    result = {"type": "tool-result", "toolCallId": "1", "toolName": "search", "result": FOUND}
    question = {"role": "user", "content": [{"type": "text", "text": "Who founded Nordlys?"}]}
    run = only_run(
        span(1, at=(1, 99), **{"ai.operationId": "ai.generateText", "ai.prompt": json.dumps({"messages": [question]}),
             "ai.response.text": "Ada Berg", "ai.telemetry.functionId": "founders"}),
        vercel(2, "ai.generateText.doGenerate", 1, prompt__messages=[question],
               response__toolCalls=[{"toolCallId": "1", "toolName": "search", "input": {"query": "founder"}}]),
        vercel(3, "ai.toolCall", 1, toolCall__name="search", toolCall__args={"query": "founder"},
               toolCall__result=FOUND),
        vercel(4, "ai.generateText.doGenerate", 1, response__text="Ada Berg", prompt__messages=[
            question, {"role": "assistant", "content": [called]}, {"role": "tool", "content": [result]},
        ]),
    )  # fmt: skip
    (step,) = run.steps
    assert (run.question, run.answer, run.name) == ("Who founded Nordlys?", "Ada Berg", "founders")
    assert (step.query, step.tool, [one.id for one in step.passages]) == ("founder", "search", ["a", "b"])


def test_results_of_tools_as_pydantic_ai_writes_them():
    asked = [
        {"role": "user", "parts": [{"type": "text", "content": "Who founded Nordlys?"}]},
        {
            "role": "assistant",
            "parts": [{"type": "tool_call", "id": "1", "name": "search", "arguments": {"q": "it"}}],
        },
        {
            "role": "user",
            "parts": [{"type": "tool_call_response", "id": "1", "name": "search", "result": FOUND[:1]}],
        },
    ]
    run = only_run(
        span(1, at=(1, 99), gen_ai__operation__name="invoke_agent", gen_ai__agent__name="founders"),
        span(2, 1, gen_ai__operation__name="chat", gen_ai__input__messages=asked[:1],
             gen_ai__output__messages=asked[1:2]),
        span(3, 1, gen_ai__operation__name="execute_tool", gen_ai__tool__name="search",
             gen_ai__tool__call__arguments={"q": "it"}, gen_ai__tool__call__result=FOUND),
        span(4, 1, gen_ai__operation__name="chat", gen_ai__input__messages=asked,
             gen_ai__output__messages=[{"role": "assistant", "parts": [{"type": "text", "content": "Ada Berg"}]}]),
    )  # fmt: skip
    assert (run.question, run.answer, run.name) == ("Who founded Nordlys?", "Ada Berg", "founders")
    assert [one.id for one in run.steps[0].passages] == ["a"]


def test_texts_of_mlflow_have_no_quotes():
    run = only_run(
        span(1, at=(1, 99), mlflow__spanType="AGENT", mlflow__spanInputs=json.dumps("Who founded it?"),
             mlflow__spanOutputs=json.dumps('Ada "the first" Berg')),
        span(2, 1, mlflow__spanType="RETRIEVER", mlflow__spanInputs={"query": "who"}, mlflow__spanOutputs=FOUND),
    )  # fmt: skip
    assert (run.question, run.answer) == ("Who founded it?", 'Ada "the first" Berg')


def test_call_of_a_model_whose_input_no_span_holds_makes_what_was_read_unknown():
    run = only_run(
        span(1, at=(1, 99), openinference__span__kind="CHAIN", input__value="Who?", output__value="Ada"),
        span(2, 1, openinference__span__kind="RETRIEVER", input__value="who", output__value=FOUND),
        span(3, 1, openinference__span__kind="LLM", output__value="Ada"),
    )
    assert run.steps[0].metadata["ragguard.delivered"] == "unknown"


def test_traces_without_a_known_retrieval_are_counted_and_said_once():
    reading = read(
        [
            span(number, trace=f"{number:032x}", openinference__span__kind="LLM", input__value="Who?")
            for number in (1, 2)
        ]
    )
    assert list(reading) == []
    assert reading.counts["traces without a retrieval"] == 2
    (remark,) = reading.remarks
    assert "model of OpenInference (2)" in remark


def test_file_of_a_collector_that_begins_with_metrics_and_logs(tmp_path):
    attributes = [{"key": "openinference.span.kind", "value": {"stringValue": "RETRIEVER"}},
                  {"key": "input.value", "value": {"stringValue": "who"}},
                  {"key": "output.value", "value": {"stringValue": json.dumps(FOUND)}}]  # fmt: skip
    one = {"traceId": "0" * 31 + "1", "spanId": "0" * 15 + "1", "name": "search", "attributes": attributes,
           "startTimeUnixNano": "1", "endTimeUnixNano": "2"}  # fmt: skip
    lines = [
        {"resourceMetrics": []},
        {"resourceLogs": []},
        {"resourceSpans": [{"scopeSpans": [{"spans": [one]}]}]},
    ]
    path = tmp_path / "traces.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    assert RunReading(path).format() == "traces"
    reading = read(path)
    (found,) = reading
    assert [one.id for one in found.run.steps[0].passages] == ["a", "b"]
    assert reading.counts["lines rejected"] == 0
