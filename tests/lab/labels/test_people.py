"""Thumbs and annotations of people become labels, with author and time; those of models do not."""

import json
from collections import Counter

import httpx
import pytest
from support.commands import ragguard

from ragguard import Run, Score, ScoredRun, runs_from
from ragguard.lab.labels.label_file import read_label_file
from ragguard.lab.labels.people import people_labels
from ragguard.storage.sqlite.store import Store
from ragguard.traces import pulled
from ragguard.traces.pulled import spans_at
from ragguard.traces.reader import TracedRuns

RUNS = 40


def person(number, up, **changes):
    """An annotation as Phoenix' REST interface has it."""
    return {"name": "user_feedback", "annotator_kind": "HUMAN", "user_id": f"u{number % 3}",
            "result": {"label": "thumbs-up" if up else "thumbs-down"}, "updated_at": "2026-11-25T12:00:00+00:00",
            "span_id": f"{number:016x}"} | changes  # fmt: skip


def phoenix(number, annotations):
    documents = {
        "retrieval.documents.0.document.id": "a",
        "retrieval.documents.0.document.content": "text of a",
    }
    return {
        "name": "search", "context": {"trace_id": f"{number:032x}", "span_id": f"{number:016x}"}, "parent_id": None,
        "span_kind": "RETRIEVER", "start_time": "2026-11-25T10:00:00+00:00", "end_time": "2026-11-25T10:00:01+00:00",
        "attributes": {"input.value": f"who is number {number}?", **documents}, "events": [],
        "annotations": annotations,
    }  # fmt: skip


def judged(run, value=0.95):
    """The run with an answer that a judge takes for right."""
    run.answer = f"the answer of {run.question}"
    score = Score(
        "answer_correct", value, "run", run.id, label="correct", engine="judge", scorer="answers", version="1"
    )
    return ScoredRun(run, [score])


def test_a_trace_with_thumbs_is_corrected_by_them(tmp_path, monkeypatch):
    """The judge calls all answers right; people called every second one of the twenty that they saw wrong."""
    monkeypatch.chdir(tmp_path)
    lines = []
    for number in range(1, RUNS + 1):
        of_model = person(number, True, annotator_kind="LLM", name="correctness", user_id="gpt")
        lines.append(
            phoenix(number, [of_model, *([person(number, number % 2)] if number <= RUNS // 2 else [])])
        )
    (tmp_path / "spans.jsonl").write_text("\n".join(map(json.dumps, lines)))
    runs = list(runs_from(tmp_path / "spans.jsonl"))
    assert [len(run.metadata.get("annotations", ())) for run in runs] == [1] * 20 + [0] * 20
    assert all(len(run.metadata["evaluations"]) == 1 for run in runs), "what a model said is kept apart"
    store = Store("a.db", scored=False)
    store.add_scored(map(judged, runs))
    store.close()
    done = ragguard("label", "a.db", "--people", code=0)
    assert "20 labels by 3 people in labels.jsonl" in done.output
    labels = read_label_file("labels.jsonl")
    assert {(label.by, label.at, label.unasked) for label in labels} == {
        (f"u{number}", "2026-11-25T12:00:00+00:00", True) for number in range(3)
    }
    again = ragguard("label", "a.db", "--people")
    assert len(read_label_file("labels.jsonl")) == 20, again.output
    done = ragguard("report", "a.db", "--labels", "labels.jsonl", "--json")
    data = json.loads(done.output)["corrected"]
    mean = data["means"]["answer_correct"]
    assert mean["raw"] == pytest.approx(0.95)
    assert mean["value"] == pytest.approx(0.5, abs=0.05)
    assert any("were not drawn" in remark for remark in data["remarks"])


def test_what_is_no_label_is_counted_with_its_reason():
    odd = [
        {"name": "tone", "label": "good"}, {"name": "thumb", "score": 0.4},
        {"name": "thumb", "label": "up", "by": "gpt-5"},
        {"name": "Thumb", "score": 1, "by": "ann"}, {"name": "thumb", "score": -1, "by": "ann"},
    ]  # fmt: skip
    run = Run("r1", "who?", metadata={"annotations": odd, "feedback": {"thumb": "up"}})
    unjudged = ScoredRun(Run("r2", "who?", metadata={"feedback": {"thumb": "down"}}), [])
    skipped = Counter()
    found = list(people_labels([judged(run), unjudged], skipped))
    assert [(one.by, one.value) for one in found] == [("a user", 1.0), ("ann", 0.0)], "the last of a person"
    assert sorted(skipped.values()) == [1, 1, 1, 1]
    assert any("no judge has judged" in reason for reason in skipped)


def test_evaluations_in_attributes_of_openinference():
    line = phoenix(1, [])
    line["attributes"] |= {
        "trace.evaluations.0.evaluation.name": "thumb", "trace.evaluations.0.evaluation.label": "up",
        "trace.evaluations.0.evaluation.metadata": '{"annotator_kind": "HUMAN", "author": "ann", "created_at": "now"}',
        "trace.evaluations.1.evaluation.name": "correctness", "trace.evaluations.1.evaluation.score": 0.0,
    }  # fmt: skip
    (found,) = TracedRuns(map(pulled.phoenix_span, [line]))
    (annotation,) = found.run.metadata["annotations"]
    assert (annotation["label"], annotation["by"], annotation["at"]) == ("up", "ann", "now")
    assert [one["name"] for one in found.run.metadata["evaluations"]] == ["correctness"]


def test_annotations_are_pulled_with_the_spans(monkeypatch):
    scores = [{"name": "user-feedback", "source": "API", "value": 0, "traceId": "t1", "timestamp": "2026"},
              {"name": "quality", "source": "ANNOTATION", "value": 1, "observationId": "o1", "authorUserId": "ann"},
              {"name": "correctness", "source": "EVAL", "value": 1, "traceId": "t1"}]  # fmt: skip
    observation = {"id": "o1", "traceId": "t1", "type": "RETRIEVER", "startTime": "2026-11-25T10:00:00Z",
                   "input": "who?", "output": [{"page_content": "text", "id": "a"}]}  # fmt: skip

    def answer(request):
        path = request.url.path
        if path.endswith("/span_annotations"):
            assert request.url.params.get_list("span_ids") == [f"{1:016x}"]
            return httpx.Response(200, json={"data": [person(1, True)], "next_cursor": None})
        if path.endswith("/scores"):
            return httpx.Response(200, json={"data": scores})
        return httpx.Response(200, json={"data": [observation if "observations" in path else phoenix(1, [])]})

    monkeypatch.setenv("LANGFUSE_PUBLIC_KEY", "p")
    monkeypatch.setenv("LANGFUSE_SECRET_KEY", "s")
    for address, by in (("phoenix://host/shop", ["u1"]), ("langfuse://host", [None, "ann"])):
        (found,) = TracedRuns(spans_at(address, transport=httpx.MockTransport(answer)))
        assert [one["by"] for one in found.run.metadata["annotations"]] == by
        assert len(found.run.metadata.get("evaluations", ())) == (address[0] == "l")


def test_scores_that_were_written_back_are_no_annotations_of_the_trace():
    own = person(1, True, name="udcg", annotator_kind="LLM", metadata={"scorer": "utility/4"})
    other = person(1, True, name="udcg", annotator_kind="LLM", metadata={"model": "gpt"})
    for given, count in (([], 0), ([own], 0), ([own, other], 1)):
        (found,) = TracedRuns(map(pulled.phoenix_span, [phoenix(1, given)]))
        assert len(found.run.metadata.get("evaluations", ())) == count


def test_a_store_without_thumbs_is_one_sentence(tmp_path):
    store = Store(tmp_path / "a.db", scored=False)
    store.add_scored([judged(Run("r1", "who?"))])
    store.close()
    done = ragguard("label", tmp_path / "a.db", "--people", "--out", tmp_path / "l.jsonl", code=2)
    assert "thumbs (run.feedback) or annotations of people" in done.output
