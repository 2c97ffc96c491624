"""Files and bodies of traces: OTLP in protobuf and JSON, what Phoenix and Langfuse write, and what is none of these."""

import gzip
import json
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.captured import ids
from support.traced import TRACE, documents, otlp_json, span

from ragguard.errors import InvalidInput
from ragguard.inputs.reading import RunReading
from ragguard.traces import read
from ragguard.traces.pulled import server_of, since_time, spans_at

SPANS = [
    span(1, at=(1, 99), openinference__span__kind="CHAIN", input__value="Who?", output__value="Ada"),
    span(2, 1, openinference__span__kind="RETRIEVER", input__value="who", **documents("a", "b")),
]
PHOENIX = {
    "name": "search", "context": {"trace_id": TRACE, "span_id": "0000000000000002"}, "span_kind": "RETRIEVER",
    "parent_id": None, "start_time": "2026-11-25T10:00:00.000001+00:00", "end_time": "2026-11-25T10:00:01+00:00",
    "status_code": "OK", "status_message": "", "events": [],
    "attributes": {"input.value": "who", **documents("a", "b")},
}  # fmt: skip
LANGFUSE = {
    "id": "5f0c", "traceId": "7d1a", "type": "RETRIEVER", "name": "search", "startTime": "2026-11-25T10:00:00.000Z",
    "endTime": "2026-11-25T10:00:01.000Z", "parentObservationId": None, "level": "DEFAULT", "input": {"query": "who"},
    "output": [{"page_content": "text of a", "id": "a"}, {"page_content": "text of b", "id": "b"}],
}  # fmt: skip


def snake(data):
    """The same in snake case, as Phoenix writes it."""
    if isinstance(data, list):
        return [snake(item) for item in data]
    if not isinstance(data, dict):
        return data
    return {
        "".join(f"_{c.lower()}" if c.isupper() else c for c in key): snake(value)
        for key, value in data.items()
    }


@pytest.mark.parametrize("line", [otlp_json(*SPANS), snake(otlp_json(*SPANS)), PHOENIX, LANGFUSE],
                         ids=["the Collector", "Phoenix in OTLP", "Phoenix", "Langfuse"])  # fmt: skip
@pytest.mark.parametrize("name", ["traces.jsonl", "traces.jsonl.gz"])
def test_a_file_of_traces_is_known_by_its_first_object(tmp_path, line, name):
    path = tmp_path / name
    raw = ("\n" + json.dumps(line) + "\n").encode()
    path.write_bytes(gzip.compress(raw) if name.endswith("gz") else raw)
    assert RunReading(path).format() == "traces"
    (found,) = read(path)
    (step,) = found.run.steps
    assert (step.query, ids(step.passages)) == ("who", ["a", "b"])
    assert step.ended_ns > step.started_ns > 0


def test_spans_of_one_trace_may_stand_in_many_lines(tmp_path):
    path = tmp_path / "traces.jsonl"
    path.write_text("".join(json.dumps(otlp_json(one)) + "\n" for one in reversed(SPANS)))
    (found,) = read(path)
    assert (found.run.question, len(found.run.steps)) == ("Who?", 1)
    assert found.run.metadata["service"] == "shop"


def test_a_body_in_json_is_one_in_protobuf():
    body = json.dumps(otlp_json(*SPANS)).encode()
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for one in SPANS:
        made = scope.spans.add(trace_id=bytes.fromhex(one.trace_id), span_id=bytes.fromhex(one.span_id), name=one.name,
                               parent_span_id=bytes.fromhex(one.parent_id), start_time_unix_nano=one.started_ns,
                               end_time_unix_nano=one.ended_ns)  # fmt: skip
        for key, value in one.attributes.items():
            kind = "string_value" if isinstance(value, str) else "double_value"
            setattr(made.attributes.add(key=key).value, kind, value)
    (json_run,), (protobuf_run,) = read(body), read(request.SerializeToString())
    json_run.run.metadata.pop("service")
    assert json_run == protobuf_run


def test_lines_that_are_no_spans_are_counted_and_the_others_read(tmp_path):
    path = tmp_path / "traces.jsonl"
    wrong = otlp_json(*SPANS)
    wrong["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["traceId"] = "not hexadecimal"
    lines = [otlp_json(*SPANS), wrong, {"question": "Who?"}, [], "["]
    path.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in lines))
    reading = read(path)
    assert len(list(reading)) == 1
    assert reading.counts["lines rejected"] == 4
    assert sum(remark.startswith("line ") for remark in reading.remarks) == 4


@pytest.mark.parametrize("body", [
    b"\x0a\xff\xff\xff", b"\xff" * 100, b"{", b"[]", b'{"resourceSpans": 1}', b'{"a":' * 100_000,
    b'{"resourceSpans": [' + b"[]," * 2_100_000 + b"]}", b'{"resourceSpans": [{"scopeSpans": [{"spans": [{}]}]}]}',
])  # fmt: skip
def test_a_broken_body_is_refused(body):
    with pytest.raises(InvalidInput):
        list(read(body))


def test_json_over_several_lines_is_one_document(tmp_path):
    path = tmp_path / "traces.json"
    path.write_text(json.dumps(otlp_json(*SPANS), indent=2))
    assert RunReading(path).format() == "traces"
    assert [found.run.question for found in read(path)] == ["Who?"]
    path.write_text(path.read_text()[:-20])
    with pytest.raises(InvalidInput, match="a whole document, which this is not"):
        [*RunReading(path).runs()]


def test_a_project_is_pulled_page_by_page():
    pages = {"": {"data": [PHOENIX], "next_cursor": "two"}, "two": {"data": [PHOENIX], "next_cursor": None}}
    asked = []

    def answer(request):
        asked.append(request.url)
        return httpx.Response(200, json=pages[request.url.params.get("cursor", "")])

    since = datetime(2026, 11, 25, tzinfo=UTC)
    assert len(list(spans_at("phoenix://host/my shop", since, httpx.MockTransport(answer)))) == 2
    assert str(asked[0]).startswith("http://host:6006/v1/projects/my%20shop/spans?")
    spans = [url for url in asked if url.path.endswith("/spans")]
    assert [url.params["start_time"] for url in spans] == [since.isoformat()] * 2


def test_addresses_and_times():
    assert server_of("phoenix://host:1/shop") == ("phoenix", "http://host:1", "shop")
    assert server_of("phoenix+https://host/shop") == ("phoenix", "https://host", "shop")
    assert server_of("langfuse://host:1/") == ("langfuse", "https://host:1", "")
    assert server_of("langfuse+http://host") == ("langfuse", "http://host", "")
    for wrong in (
        "phoenix://host", "phoenix:///shop", "phoenix://host/a/b", "langfuse://", "langfuse://host/project"
    ):  # fmt: skip
        with pytest.raises(InvalidInput):
            server_of(wrong)
    assert since_time("2026-11-25") == datetime(2026, 11, 25, tzinfo=UTC)
    assert timedelta(days=6) < datetime.now(UTC) - since_time("1w") < timedelta(days=8)
    for wrong in ("", "d", "soon", "1e999d"):
        with pytest.raises(InvalidInput):
            since_time(wrong)
    with pytest.raises(InvalidInput):
        read("traces.jsonl", since="7d")
