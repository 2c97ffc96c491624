"""Spans that are pulled from a server: pages that do not end, or are too large, are one sentence."""

import json
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
