"""Thumbs that people gave in a real Phoenix correct the mean of a judge that is too kind."""

import json
from contextlib import suppress

import httpx
import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from support.commands import ragguard
from support.polling import eventually
from support.traced import documents

from ragguard.lab.labels.label_file import read_label_file

pytestmark = pytest.mark.phoenix
TRACES, WITH_THUMB = 32, 20
STATES = {"retrieval.documents.0.document.content": "Ada Berg founded this mill, as its books say."}


def question(number):
    return f"Who founded mill {number}?"


@pytest.fixture(scope="module")
def annotated(phoenix):
    """The address of a project whose first traces have a person's thumb, up and down by turns, and a model's: half of
    them on the root, half on the trace as a whole, and one on a session."""
    provider = TracerProvider(resource=Resource({"openinference.project.name": "people"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{phoenix}/v1/traces")))
    tracer, asked = provider.get_tracer("shop"), []
    for number in range(TRACES):
        chain = {
            "openinference.span.kind": "CHAIN",
            "input.value": question(number),
            "output.value": "Ada Berg",
            "session.id": "a conversation",
        }
        retriever = {
            "openinference.span.kind": "RETRIEVER",
            "input.value": question(number),
            **documents("a", "b"),
            **STATES,
        }
        with tracer.start_as_current_span("ask", attributes=chain) as span:
            context = span.get_span_context()
            asked.append((f"{context.span_id:016x}", f"{context.trace_id:032x}"))
            tracer.start_span("search", attributes=retriever).end()
    provider.shutdown()
    path = f"{phoenix}/v1/projects/people/spans"

    def there():
        with suppress(httpx.TimeoutException):
            answer = httpx.get(path, params={"limit": 100}, timeout=30)
            return answer.is_success and len(answer.json()["data"]) == 2 * TRACES

    eventually(there, 120, every=0.5)
    for level, first, after in (("span", 0, WITH_THUMB // 2), ("trace", WITH_THUMB // 2, WITH_THUMB)):
        annotate(phoenix, level, [
            (asked[number][level == "trace"], name, kind, by, up)
            for number in range(first, after)
            for name, kind, by, up in (
                ("user_feedback", "HUMAN", f"person {number % 3}", number % 2),
                ("correctness", "LLM", "a model", 1),
            )
        ])  # fmt: skip
    annotate(phoenix, "session", [("a conversation", "user_feedback", "HUMAN", "somebody", 0)])
    return phoenix.replace("http", "phoenix") + "/people"


def annotate(phoenix, level, given):
    data = [
        {f"{level}_id": id, "name": name, "annotator_kind": kind, "identifier": by,
         "result": {"label": "thumbs-up" if up else "thumbs-down", "score": float(up)}}
        for id, name, kind, by, up in given
    ]  # fmt: skip
    path = f"{phoenix}/v1/{level}_annotations"
    sent = httpx.post(path, params={"sync": True}, json={"data": data}, timeout=30)
    assert sent.is_success, sent.text


def printed(*words):
    return ragguard(*words, code=0).output


def test_thumbs_in_phoenix_correct_the_mean(annotated, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "right.jsonl").write_text(
        "\n".join(json.dumps({"question": question(n), "references": ["Ada Berg"]}) for n in range(TRACES))
    )
    printed("score", annotated, "-e", "nano", "--scorers", "words", "--references", "right.jsonl")
    said = printed("label", "ragguard.db", "--people")
    assert f"{WITH_THUMB} labels by 3 people" in said
    labels = read_label_file("labels.jsonl")
    assert {label.by for label in labels} == {f"person {number}" for number in range(3)}
    assert all(label.at for label in labels)
    report = json.loads(printed("report", "ragguard.db", "--labels", "labels.jsonl", "--json"))
    mean = report["corrected"]["means"]["answer_correct"]
    assert mean["raw"] == pytest.approx(1.0), "the words of each answer are right"
    assert mean["value"] == pytest.approx(0.5, abs=0.1), "people called every second one wrong"
    assert mean["low"] < 0.5 < mean["high"]
