"""What a real Phoenix shows of a scored two-hop run: its documents, its span scores, its document scores."""

import asyncio

import httpx
import pytest
from support.polling import eventually
from support.scored_runs import two_hops

from ragguard.telemetry.back_ends import BackEndError, PhoenixSink
from ragguard.telemetry.otlp import ExportError

pytestmark = pytest.mark.phoenix


def poll(url, path, enough, **params):
    """What Phoenix says, once it has taken in enough; it does so some seconds later."""
    last = []

    def come():
        answer = httpx.get(f"{url}{path}", params=params, timeout=5)
        last[:] = [answer.text[:2000]]
        data = answer.json()["data"] if answer.is_success else []
        return data if enough(data) else None

    return eventually(come, 30, every=0.2, found=lambda: last)


@pytest.fixture(scope="module")
def shown(phoenix):
    """Two scored runs as Phoenix has them: its address, and the spans."""

    async def send():
        sink = PhoenixSink(phoenix, project="two-hops")
        await sink.submit(two_hops())
        await sink.submit(two_hops())
        await sink.aclose()

    asyncio.run(send())
    spans = poll(phoenix, "/v1/projects/two-hops/spans", lambda data: len(data) >= 14)
    return phoenix, spans


def ids(spans, kind):
    return [span["context"]["span_id"] for span in spans if span["span_kind"] == kind]


def test_the_documents_arrive_with_their_scores(shown):
    _, spans = shown
    retrieval = next(span for span in spans if span["span_kind"] == "RETRIEVER")
    attributes = retrieval["attributes"]
    assert attributes["retrieval.documents.0.document.id"] == "doc-0"
    assert attributes["retrieval.documents.0.document.score"] == 0.5
    assert len(ids(spans, "GUARDRAIL")) == 2
    assert len(ids(spans, "EVALUATOR")) == 6


def test_the_scores_of_steps_and_runs_become_annotations(shown):
    url, spans = shown
    wanted = ids(spans, "RETRIEVER") + ids(spans, "CHAIN")
    found = poll(
        url,
        "/v1/projects/two-hops/span_annotations",
        lambda data: len(data) >= 8,
        span_ids=wanted,
        limit=100,
    )
    by_name = {item["name"]: item for item in found}
    assert set(by_name) == {"udcg", "delta_seper", "delta_seper.support", "coverage_total"}
    assert by_name["udcg"]["result"]["score"] == 0.61
    assert by_name["udcg"]["annotator_kind"] == "LLM"
    assert by_name["coverage_total"]["annotator_kind"] == "CODE"
    assert by_name["udcg"]["identifier"] == "utility/1.ab"


def test_sending_again_changes_nothing(shown):
    url, spans = shown
    wanted = ids(spans, "RETRIEVER")
    before = poll(
        url, "/v1/projects/two-hops/span_annotations", lambda data: len(data) >= 6, span_ids=wanted, limit=100
    )
    again = [
        {
            "span_id": item["span_id"],
            "name": item["name"],
            "annotator_kind": item["annotator_kind"],
            "identifier": item["identifier"],
            "result": {"score": 0.99},
        }
        for item in before
    ]
    httpx.post(f"{url}/v1/span_annotations", params={"sync": "true"}, json={"data": again}).raise_for_status()
    after = poll(
        url, "/v1/projects/two-hops/span_annotations", lambda data: len(data) >= 6, span_ids=wanted, limit=100
    )
    assert len(after) == len(before)
    assert {item["result"]["score"] for item in after} == {0.99}


def project_spans(url, fields):
    """What Phoenix's own pages ask for, of every span."""
    projects = httpx.get(f"{url}/v1/projects", timeout=5).json()["data"]
    (project,) = [item for item in projects if item["name"] == "two-hops"]
    query = (
        "query($id: ID!) { node(id: $id) { ... on Project "
        f"{{ spans(first: 50) {{ edges {{ node {{ spanId {fields} }} }} }} }} }} }}"
    )
    answer = httpx.post(
        f"{url}/graphql", json={"query": query, "variables": {"id": project["id"]}}, timeout=5
    ).json()
    assert "errors" not in answer, answer["errors"]
    return {edge["node"]["spanId"]: edge["node"] for edge in answer["data"]["node"]["spans"]["edges"]}


def test_the_scores_of_passages_stand_on_their_documents(shown):
    url, spans = shown
    wanted = ids(spans, "RETRIEVER")

    def scored():
        found = project_spans(url, "documentEvaluations { name score label explanation documentPosition }")
        complete = [found[span]["documentEvaluations"] for span in wanted]
        complete = [evaluations for evaluations in complete if len(evaluations) == 6]
        return complete if len(complete) == 2 else None

    for evaluations in eventually(scored, 30, every=0.2):
        by_name = {
            (item["name"], item["documentPosition"]): (item["score"], item["label"]) for item in evaluations
        }
        assert by_name["p_relevant", 1] == (pytest.approx(0.8), None)
        assert [by_name["utility", position] for position in range(3)] == [
            (None, "helps"), (None, "does little"), (None, "misleads"),
        ]  # fmt: skip
        said = {item["explanation"] for item in evaluations if item["name"] == "utility"}
        assert {one.partition(":")[0] for one in said} == {
            "utility 0.900",
            "utility -0.100",
            "utility -1.100",
        }


async def test_a_refusal_is_an_error_of_ours(phoenix):
    sink = PhoenixSink(phoenix + "/nowhere", project="elsewhere")
    with pytest.raises(BackEndError, match="span_annotations"):
        await sink.submit(two_hops())
    with pytest.raises(ExportError, match="7 spans not exported"):
        await sink.aclose()
