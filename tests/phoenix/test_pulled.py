"""Traces of a real Phoenix: pulled, scored, and their scores written back to the spans that are there."""

import httpx
import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from support.commands import ragguard
from support.polling import eventually
from support.traced import documents

from ragguard.storage.sqlite.reader import StoreReader

pytestmark = pytest.mark.phoenix
RETRIEVER = {"openinference.span.kind": "RETRIEVER", "input.value": "Who founded Corwell Mills?"}


@pytest.fixture(scope="module")
def project(phoenix):
    """The address of a project with two traces, and the ids of their retrievals."""
    provider = TracerProvider(resource=Resource({"openinference.project.name": "shop"}))
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{phoenix}/v1/traces")))
    tracer, found = provider.get_tracer("mine"), []
    for _ in range(2):
        with (
            tracer.start_as_current_span(
                "ask", attributes={"openinference.span.kind": "CHAIN", "input.value": "Who?"}
            ),
            tracer.start_as_current_span(
                "search", attributes={**RETRIEVER, **documents("a", "b")}
            ) as retrieval,
        ):
            found.append(f"{retrieval.get_span_context().span_id:016x}")
    provider.shutdown()
    eventually(lambda: len(asked(phoenix, "spans")) == 4, 60, every=0.2)
    return phoenix, found


def asked(url, what, **params):
    answer = httpx.get(f"{url}/v1/projects/shop/{what}", params=params, timeout=10)
    return answer.json()["data"] if answer.is_success else []


def score(url, *options):
    address = url.replace("http", "phoenix") + "/shop"
    return ragguard("score", address, "-e", "nano", "--scorers", "utility", *options)


def test_the_traces_of_a_project_are_scored_and_their_scores_written_back(project, tmp_path, monkeypatch):
    url, retrievals = project
    monkeypatch.chdir(tmp_path)
    done = score(url, "--write-back")
    assert done.exit_code == 0, done.output
    runs = list(StoreReader("ragguard.db").runs())
    assert sorted(run.steps[0].id for run in runs) == sorted(retrievals)

    def with_udcg():
        annotations = asked(url, "span_annotations", span_ids=retrievals, limit=100)
        return {one["span_id"] for one in annotations if one["name"] == "udcg"}

    assert eventually(lambda: with_udcg() == set(retrievals), 60, every=0.2)  # Phoenix writes them one by one
    again = score(url, "--write-back", "--since", "1h")
    assert again.exit_code == 0, again.output
    assert "2 of them were scored by an earlier command" in " ".join(again.output.split()), again.output


def test_what_cannot_be_pulled_is_one_sentence(project, tmp_path, monkeypatch):
    url, _ = project
    monkeypatch.chdir(tmp_path)
    nowhere = ragguard("score", url.replace("http", "phoenix") + "/nowhere", "-e", "nano")
    assert (nowhere.exit_code, "Is that project in a Phoenix there?" in nowhere.output) == (2, True)
