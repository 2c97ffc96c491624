"""`ragguard label`, and the numbers that its labels correct in `report` and `compare`."""

from __future__ import annotations

import json

import pytest
from support.judged_runs import fill_in, judged_runs
from support.stored import captured, store_scores
from typer.testing import CliRunner

from ragguard.cli.app import app
from ragguard.storage.sqlite.store import Store


def store_of(path, **how):
    runs, right = judged_runs(**how)
    store = Store(path)
    for one in runs:
        captured(store, one.run)
        store_scores(store, one.run, one.scores)
    store.close()
    return right


def ragguard(*arguments, **more):
    return CliRunner().invoke(app, [str(one) for one in arguments], **more)


@pytest.fixture
def sheet(tmp_path):
    right = store_of(tmp_path / "a.db")
    done = ragguard("label", tmp_path / "a.db", "--sheet", "-n", 40, "-o", tmp_path / "labels.jsonl")
    assert done.exit_code == 0, done.output
    return tmp_path, right


def test_sheet_is_filled_in_and_corrects_the_report(sheet):
    folder, right = sheet
    lines = [json.loads(line) for line in (folder / "labels.jsonl").read_text().splitlines()]
    assert len(lines) == 40
    assert lines[0].keys() >= {"label", "by", "at", "query", "text", "digest", "run"}
    assert lines[0]["label"] is None
    assert (
        "at least one label"
        in ragguard("report", folder / "a.db", "--labels", folder / "labels.jsonl").output
    )
    fill_in(folder / "labels.jsonl", right)
    shown = ragguard("report", folder / "a.db", "--labels", folder / "labels.jsonl")
    assert shown.exit_code == 0, shown.output
    assert "p_relevant" in shown.output
    data = json.loads(
        ragguard("report", folder / "a.db", "--labels", folder / "labels.jsonl", "--json").output
    )
    mean = data["corrected"]["means"]["p_relevant"]
    assert mean["labels"] == 40
    assert mean["low"] < right.mean() < mean["high"] < mean["raw"]
    assert f"{mean['value']:.3f}" in shown.output


def test_keys_are_kept_and_a_second_person_and_a_second_call_go_on(tmp_path):
    store_of(tmp_path / "a.db")
    labels = tmp_path / "labels.jsonl"
    common = ("label", tmp_path / "a.db", "-n", 14, "-o", labels)
    first = ragguard(*common, "--by", "ann", input="yxnq")
    assert first.exit_code == 0, first.output
    assert "2 labels by ann" in first.output
    again = ragguard(*common, "--by", "ann", input="s" + "y" * 11)
    assert "13 labels by ann" in again.output
    assert "3 of 14" in again.output
    bob = ragguard(*common, "--by", "bob", input="yn" + "y" * 12)
    assert "ann and bob both labelled 13 items: κ" in bob.output
    kept = [json.loads(line) for line in labels.read_text().splitlines()]
    assert [one["label"] for one in kept[:2]] == [1, 0]
    assert len({one["by"] for one in kept}) == 2
    assert "--by" in ragguard("label", tmp_path / "a.db", "-o", labels).output


def test_labels_of_a_model_are_refused_unless_called_so(sheet):
    folder, right = sheet
    fill_in(folder / "labels.jsonl", right, by="gpt-6-luna")
    report = ("report", folder / "a.db", "--labels", folder / "labels.jsonl")
    refused = ragguard(*report)
    assert refused.exit_code == 2
    assert 'say "model": true where a model gave the label' in refused.output
    text = (folder / "labels.jsonl").read_text().replace('"label":', '"model": true, "label":')
    (folder / "labels.jsonl").write_text(text)
    assert ragguard(*report).exit_code == 0


def test_gate_on_corrected_numbers(tmp_path):
    """The judge calls the new side better by what it leans; people say that it is worse."""
    a, b = tmp_path / "a.db", tmp_path / "b.db"
    right = store_of(a, prefix="a", rate=0.6), store_of(b, prefix="b", rate=0.2, seed=1)
    labels = tmp_path / "labels.jsonl"
    parts = []
    for path, truth in ((a, right[0]), (b, right[1])):
        sheet = tmp_path / f"{path.stem}.jsonl"
        ragguard("label", path, "--sheet", "-n", 60, "-o", sheet)
        fill_in(sheet, truth)
        parts.append(sheet.read_text())
    labels.write_text("".join(parts))
    gate = ("compare", a, b, "--labels", labels, "--fail-if", "p_relevant < -0.1", "--corrected")
    found = ragguard(*gate, "--json")
    data = json.loads(found.output)
    assert found.exit_code == 1
    assert data["failed"] == ["p_relevant < -0.1"]
    gap = data["corrected"]["differences"]["p_relevant"]
    assert gap["low"] < right[1].mean() - right[0].mean() < gap["high"]
    assert "Corrected by" in ragguard(*gate).output
    assert "--labels FILE" in ragguard("compare", a, b, "--corrected").output
    unknown = ragguard(*gate[:4], labels, "--corrected", "--fail-if", "coverage < 0")
    assert "a metric that the labels correct" in unknown.output


def test_calibrate_refuses_labels_of_a_model_before_it_asks_any(sheet):
    folder, right = sheet
    labels = folder / "labels.jsonl"
    fill_in(labels, right)
    labels.write_text(labels.read_text().replace('"label":', '"model": true, "label":'))
    found = ragguard("calibrate", folder / "a.db", "-e", "nano", "--labels", labels, "-o", folder / "c.json")
    assert "labels of people; a model's correct nothing" in found.output
