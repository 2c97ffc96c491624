"""Scores that go back to where the traces are: to a server with Langfuse's API, and to an OpenTelemetry collector."""

import json
from base64 import b64encode
from urllib.parse import parse_qs

from support.commands import ragguard
from support.misbehaving_server import Reply, serving
from support.otlp_receiver import otlp_receiver
from support.traced import TRACE, documents, otlp_json, span

ROOT, SEARCH = f"{1:016x}", f"{2:016x}"
FIELDS = {
    "traceId": TRACE,
    "startTime": "2026-11-25T10:00:00.000Z",
    "endTime": "2026-11-25T10:00:01.000Z",
    "level": "DEFAULT",
}
OBSERVATIONS = [
    FIELDS | {
        "id": SEARCH, "type": "RETRIEVER", "name": "search", "parentObservationId": ROOT, "input": '"who"',
        "output": json.dumps([{"page_content": "text of a", "id": "a"}]),
    },
    FIELDS | {
        "id": ROOT, "type": "CHAIN", "name": "ask", "parentObservationId": "outside", "isRootObservation": True,
        "input": '{"question": "Who?"}', "output": '"Ada"', "sessionId": "chat-1",
    },
]  # fmt: skip


class Langfuse:
    """The two endpoints of Langfuse's documented API that are used: observations by cursor, and ingestion."""

    def __init__(self):
        self.scores, self.asked = {}, []

    def __call__(self, request):
        if request.headers.get("authorization") != "Basic " + b64encode(b"pk:sk").decode():
            return Reply({"message": "Invalid credentials"}, 401)
        if request.path == "/api/public/ingestion":
            for event in request.json["batch"]:
                assert event["type"] == "score-create"
                self.scores[event["body"]["id"]] = event["body"]
            done = [{"id": event["id"], "status": 201} for event in request.json["batch"]]
            return Reply({"successes": done, "errors": []}, 207)
        if request.path != "/api/public/v2/observations":
            return Reply({"message": "not found"}, 404)
        asked = {name: values[0] for name, values in parse_qs(request.query).items()}
        self.asked.append(asked)
        at = int(asked.get("cursor", "0"))
        meta = {"cursor": str(at + 1)} if at + 1 < len(OBSERVATIONS) else {}
        shown = OBSERVATIONS[at] if "io" in asked["fields"].split(",") else FIELDS
        return Reply({"data": [shown], "meta": meta})


def score(*arguments):
    options = ["-e", "nano", "--scorers", "utility", "--write-back"]
    return ragguard("score", *arguments, *options)


def test_a_project_of_langfuse_is_scored_and_its_scores_go_back_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    langfuse = Langfuse()
    with serving(langfuse) as url:
        address = url.removesuffix("/v1").replace("http", "langfuse+http")
        assert "LANGFUSE_SECRET_KEY" in score(address).output
        monkeypatch.setenv("LANGFUSE_PUBLIC_KEY", "pk")
        monkeypatch.setenv("LANGFUSE_SECRET_KEY", "sk")
        done = score(address, "--since", "2026-11-25")
        assert done.exit_code == 0, done.output
        assert [one["fromStartTime"][:10] for one in langfuse.asked] == ["2026-11-25"] * 2
        first = dict(langfuse.scores)
        again = score(address, "--since", "2026-11-25")
        assert (again.exit_code, "1 of them" in again.output) == (0, True)
        monkeypatch.setenv("LANGFUSE_SECRET_KEY", "wrong")
        refused = score(address)
        assert (refused.exit_code, "HTTP 401" in refused.output) == (2, True)
    assert {one["traceId"] for one in first.values()} == {TRACE}
    assert {one.get("observationId") for one in first.values()} >= {SEARCH}
    assert all(isinstance(one["value"], float) for one in first.values())
    assert langfuse.scores.keys() == first.keys()
    assert "udcg" in {one["name"] for one in first.values()}


def test_scores_of_a_file_of_traces_go_to_a_collector_in_their_traces(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spans = [
        span(1, at=(1, 99), openinference__span__kind="CHAIN", input__value="Who?", output__value="Ada"),
        span(2, 1, openinference__span__kind="RETRIEVER", input__value="who", **documents("a")),
    ]
    (tmp_path / "traces.jsonl").write_text(json.dumps(otlp_json(*spans)))
    assert score("traces.jsonl").exit_code == 2
    with otlp_receiver() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        done = score("traces.jsonl")
        assert done.exit_code == 0, done.output
        found = collector.spans
    assert {(one.name, one.trace_id, one.parent_id) for one in found} == {
        ("evaluate retrieval", TRACE, SEARCH),
        ("evaluate run", TRACE, ROOT),
    }
    events = [event for one in found for name, event in one.events if name == "gen_ai.evaluation.result"]
    assert "udcg" in {event["gen_ai.evaluation.name"] for event in events}
