"""Spans that are pulled from a server: pages that do not end, or are too large, are one sentence."""

import json
from collections import Counter
from datetime import UTC, datetime

import httpx
import pytest

from ragguard.traces import pulled
from ragguard.traces.pulled import PullError, spans_at


def spans(handle):
    """Pulls the spans of a project from a server that answers as `handle` says."""
    return list(
        spans_at("phoenix://host/mine", datetime(2026, 11, 25, tzinfo=UTC), httpx.MockTransport(handle))
    )


def test_page_that_comes_again_and_again_is_given_up():
    page = {"data": [], "next_cursor": "same"}
    with pytest.raises(PullError, match="the same page again and again"):
        spans(lambda request: httpx.Response(200, json=page))


@pytest.mark.parametrize(
    ("name", "value", "said"), [("LARGEST_PAGE", 1_000, "over 0 MB"), ("PAGE_SECONDS", -1.0, "over -1 s")]
)
def test_page_that_is_too_large_or_does_not_end_is_given_up(monkeypatch, name, value, said):
    monkeypatch.setattr(pulled, name, value)
    body = json.dumps({"data": [], "padding": "x" * 2_000}).encode()
    with pytest.raises(PullError, match=f"takes {said}: it was given up"):
        spans(lambda request: httpx.Response(200, content=iter([body])))


SPAN = {"name": "ask", "context": {"trace_id": "1" * 32, "span_id": "2" * 16}, "attributes": {}, "events": [],
        "start_time": "2026-11-25T10:00:00Z", "end_time": "2026-11-25T10:00:01Z"}  # fmt: skip


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    "items",
    [DEEP, '[{"name": 1}]', "[1]", '[{"context": null}]', '[{"context": {"trace_id": 1, "span_id": "2"}}]'],
)
def test_page_of_another_form_or_nested_too_deeply_is_one_error_with_the_address(items):
    with pytest.raises(
        PullError, match=r"^[^\n]*http://host:6006/v1/projects/mine/spans[^\n]*in a Phoenix there\?$"
    ):
        spans(lambda request: httpx.Response(200, text=f'{{"data": {items}}}'))


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (httpx.Response(200, text='{"data": [1]}'), "annotations that cannot be read"),
        (httpx.Response(200, text='{"data": [{"span_id": []}]}'), "annotations that cannot be read"),
        (httpx.Response(200, text=f'{{"data": {DEEP}}}'), "annotations were asked of"),
        (httpx.Response(404, text="no such path"), "HTTP 404: no such path"),
        (httpx.Response(200, json={"data": [], "next_cursor": "same"}), "the same page again and again"),
        (httpx.Response(200, json=[]), "no page of annotations"),
        (httpx.Response(200, text="<html>"), "annotations were asked of"),
    ],
)
def test_annotations_that_cannot_be_pulled_are_one_remark_and_the_spans_are_there(answer, says):
    asked = Counter()

    def handle(request):
        asked[request.url.path] += 1
        if request.url.path.endswith("/span_annotations"):
            return answer
        last = "cursor" in request.url.params
        return httpx.Response(200, json={"data": [SPAN], "next_cursor": None if last else "second"})

    remarks = Counter()
    pulled_spans = list(spans_at("phoenix://host/mine", None, httpx.MockTransport(handle), remarks))
    assert len(pulled_spans) == 2
    ((sentence, count),) = remarks.items()
    assert (count, says in sentence) == (1, True), sentence
    assert "`ragguard label --people`" in sentence
    assert "Update the server" in sentence
    assert asked["/v1/projects/mine/span_annotations"] <= 4, "the second page of spans asks for none"


def test_scores_of_langfuse_are_read_to_their_last_page(monkeypatch):
    monkeypatch.setenv("LANGFUSE_PUBLIC_KEY", "p")
    monkeypatch.setenv("LANGFUSE_SECRET_KEY", "s")
    observation = {"id": "o1", "traceId": "t1", "type": "SPAN", "startTime": "2026-11-25T10:00:00Z"}

    def handle(request):
        if "observations" in request.url.path:
            return httpx.Response(200, json={"data": [observation]})
        number = int(request.url.params.get("page", 1))
        score = {"name": "thumb", "source": "ANNOTATION", "value": number}
        return httpx.Response(200, json={"data": [score], "meta": {"page": number, "totalPages": 3}})

    (span,) = spans_at("langfuse://host", transport=httpx.MockTransport(handle))
    assert [event.attributes["score"] for event in span.events] == [1, 2, 3]
