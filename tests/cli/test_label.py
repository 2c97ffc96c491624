"""`ragguard label`, and the numbers that its labels correct in `report` and `compare`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.browser import CHROMIUM, chromium
from support.commands import ragguard, refusal
from support.judged_runs import fill_in, graded_runs, judged_runs
from support.polling import eventually
from support.stored import scored_store

from ragguard.lab.labels.items import METRIC_OF, in_order_of_worth, items_of
from ragguard.lab.labels.label_file import line_of, read_label_file
from ragguard.storage.source import open_source


def store_of(path, make=judged_runs, **how):
    runs, right = make(**how)
    scored_store(path, runs)
    return right


def write_sheet(store, path, number):
    """Writes the items that are worth most, without labels."""
    items = in_order_of_worth(items_of(open_source(store).scored_runs(), "relevance"), number)
    path.write_text("".join(line_of(item) + "\n" for item in items))


@pytest.fixture
def sheet(tmp_path):
    right = store_of(tmp_path / "a.db")
    write_sheet(tmp_path / "a.db", tmp_path / "labels.jsonl", 40)
    return tmp_path, right


def test_page_names_the_kinds_that_the_option_takes():
    page = (Path(__file__).parents[2] / "docs/how-to/labels.md").read_text(encoding="utf-8")
    table = page.partition("| `--kind` |")[2].partition("\n\n")[0]
    rows = [re.findall(r"`(\w+)`", row) for row in table.splitlines()[2:]]
    assert {kind: metric for kind, metric, *_ in rows} == METRIC_OF
    assert "| `relevance` (default) |" in table


def test_labels_correct_the_report(sheet):
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
    shown = ragguard("report", folder / "a.db", "--labels", folder / "labels.jsonl", code=0)
    assert "p_relevant" in shown.output
    data = json.loads(
        ragguard("report", folder / "a.db", "--labels", folder / "labels.jsonl", "--json").output
    )
    mean = data["corrected"]["means"]["p_relevant"]
    assert mean["labels"] == 40
    assert mean["low"] < right.mean() < mean["high"] < mean["raw"]
    assert f"{mean['value']:.3f}" in shown.output


def test_validate_shows_the_judge_beside_people_and_the_corrected_means(sheet):
    folder, right = sheet
    fill_in(folder / "labels.jsonl", right)
    words = ("validate", folder / "a.db", "--labels", folder / "labels.jsonl", "--json", folder / "out.json")
    ragguard(*words, code=0)
    beside, means = json.loads((folder / "out.json").read_text())
    together, ann = beside["rows"]
    assert together[1:3] == ["all together", 40]
    assert ann[1] == "ann"
    assert 0 < ann[5] < 1  # κ of a judge that leans
    assert ann[4] > ann[3]  # to yes: recall over precision
    found = dict(zip(means["columns"], means["rows"][0], strict=True))
    assert found["low"] < right.mean() < found["high"] < found["by the judge"]
    assert found["labels"] == 40


def test_keys_are_kept_and_a_second_person_and_a_second_call_go_on(tmp_path):
    store_of(tmp_path / "a.db")
    labels = tmp_path / "labels.jsonl"
    common = ("label", tmp_path / "a.db", "-n", 14, "-o", labels)
    first = ragguard(*common, "--by", "ann", input="yxnq", code=0)
    assert "2 labels by ann" in first.output
    again = ragguard(*common, "--by", "ann", input="s" + "y" * 11)
    assert "13 labels by ann, 1 skipped, in" in again.output
    assert "3 of 14" in again.output
    bob = ragguard(*common, "--by", "bob", input="yn" + "y" * 12)
    assert "ann and bob both labelled 13 items: κ" in bob.output
    kept = [json.loads(line) for line in labels.read_text().splitlines()]
    assert [one["label"] for one in kept[:2]] == [1, 0]
    assert [(one["label"], one["by"]) for one in kept if one.get("skipped")] == [(None, "ann")]
    assert kept[0]["drawn"] == kept[1]["drawn"] < kept[2]["drawn"]
    report = ragguard("report", tmp_path / "a.db", "--labels", labels).output
    assert "skipped" not in report  # bob labelled what ann skipped
    assert len({one["by"] for one in kept}) == 2
    assert "--by" in ragguard("label", tmp_path / "a.db", "-o", labels).output


def test_grades_are_asked_as_digits_and_correct_the_report_the_tables_and_the_gate(tmp_path):
    store, labels = tmp_path / "a.db", tmp_path / "labels.jsonl"
    right = store_of(store, graded_runs)
    asked = ragguard(
        "label", store, "--kind", "grade", "-n", 30, "-o", labels, "--by", "ann", input="y35" + "q"
    )
    assert "from 1 (off the subject" in asked.output
    assert [json.loads(line)["label"] for line in labels.read_text().splitlines()] == [3, 5]
    labels.unlink()
    items = in_order_of_worth(items_of(open_source(store).scored_runs(), "grade"), 60)
    labels.write_text("".join(line_of(item) + "\n" for item in items))
    fill_in(labels, right)
    mean = json.loads(ragguard("report", store, "--labels", labels, "--json").output)["corrected"]["means"][
        "grade"
    ]
    assert mean["low"] < right.mean() < mean["high"] < mean["raw"]
    ragguard("validate", store, "--labels", labels, "--json", tmp_path / "v.json", code=0)
    kind, _, count, precision, recall, kappa, _ = json.loads((tmp_path / "v.json").read_text())[0]["rows"][0]
    assert (kind, count, recall) == ("grade", 60, 1.0)
    assert precision < 1
    assert 0 < kappa < 1
    gate = ("compare", store, store, "--labels", labels, "--corrected", "--fail-if", "grade < -0.5")
    ragguard(*gate, code=0)
    labels.write_text(labels.read_text().replace('"label": 5', '"label": 6'))
    assert "a `label` from 1 to 5" in ragguard("report", store, "--labels", labels).output


def test_labels_of_a_model_are_refused_unless_called_so(sheet):
    folder, right = sheet
    fill_in(folder / "labels.jsonl", right, by="gpt-6-luna")
    report = ("report", folder / "a.db", "--labels", folder / "labels.jsonl")
    refused = ragguard(*report, code=2)
    assert 'say "model": true where a model gave the label' in refused.output
    text = (folder / "labels.jsonl").read_text().replace('"label":', '"model": true, "label":')
    (folder / "labels.jsonl").write_text(text)
    ragguard(*report, code=0)


def test_gate_on_corrected_numbers(tmp_path):
    """The judge calls the new side better by what it leans; people say that it is worse."""
    a, b = tmp_path / "a.db", tmp_path / "b.db"
    right = store_of(a, prefix="a", rate=0.6), store_of(b, prefix="b", rate=0.2, seed=1)
    labels = tmp_path / "labels.jsonl"
    parts = []
    for path, truth in ((a, right[0]), (b, right[1])):
        sheet = tmp_path / f"{path.stem}.jsonl"
        write_sheet(path, sheet, 60)
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
    assert "metrics that the labels correct" in unknown.output


def test_calibrate_refuses_labels_of_a_model_before_it_asks_any(sheet):
    folder, right = sheet
    labels = folder / "labels.jsonl"
    fill_in(labels, right)
    labels.write_text(labels.read_text().replace('"label":', '"model": true, "label":'))
    found = ragguard("calibrate", folder / "a.db", "-e", "nano", "--labels", labels, "-o", folder / "c.json")
    assert "labels of people; a model's correct nothing" in found.output


@pytest.mark.parametrize("wrong", ["nothing.jsonl", "", "a.db", "words.jsonl", "deep.jsonl"])
def test_labels_that_cannot_be_read_are_one_sentence_before_anything_is_shown(sheet, wrong):
    folder, _ = sheet
    (folder / "words.jsonl").write_text("words\n")
    (folder / "deep.jsonl").write_text("[" * 100_000)
    for command in ("report", "validate"):
        line = refusal(command, folder / "a.db", "--labels", folder / wrong)
        assert "ragguard label` wrote" in line
        assert "Err" not in line


def test_options_without_effect_and_paths_that_cannot_be_written_are_refused(sheet):
    folder, _ = sheet
    store, labels, here = folder / "a.db", folder / "labels.jsonl", "a folder that exists"
    for words, told in (
        (("report", store, "--html", folder), here),
        (("label", store, "--page", folder), here),
        (("label", store, "--page", folder / "none" / "x.html"), here),
        (("label", store, "--by", "ann", "--out", folder), here),
        (("label", store, "--by", "ann", "--page", folder / "x.html"), "nothing beside --page"),
        (("compare", store, store, "--markdown", folder), here),
        (("compare", store, store, "--labels", labels, "--corrected"), "--fail-if beside it"),
        (
            ("compare", store, folder / "none.jsonl"),
            "none.jsonl could not be read",
        ),
    ):
        assert told in refusal(*words)


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="NO chromium HERE: apt-get install chromium")
def test_page_asks_by_keyboard_goes_on_and_saves_lines_that_are_read(tmp_path):
    store_of(tmp_path / "a.db")
    address = tmp_path / "label.html"
    done = ragguard("label", tmp_path / "a.db", "-n", 12, "--page", address)
    assert "12 items" in done.output
    with chromium() as browser:
        page = browser.open(address.as_uri(), until="document.getElementById('count')?.textContent > ''")
        browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
        page.press("y")
        assert page.value("document.activeElement.id") == "by"  # a label has a name
        page.call("Input.insertText", text="ann")
        page.press("Enter")
        first = page.value("document.getElementById('text').textContent")
        counted = "document.getElementById('count')?.textContent"
        for _ in range(4):  # Chromium itself may lose what a page stored just before it was loaded again
            for key in "ynsbn":  # the third was skipped, and is gone back to
                page.press(key)
            assert page.value(counted) == "4 of 12, 3 labelled"
            page.value("window.before = true")
            page.value("new Promise(done => setTimeout(done, 500))")
            page.call("Page.reload")
            page.wait(f"!window.before && {counted} > ''")
            if page.value(counted) == "4 of 12, 3 labelled":
                break
            page.value("document.getElementById('by').value = 'ann'")
            page.value("document.getElementById('by').dispatchEvent(new Event('input'))")
        else:
            pytest.fail(f"what was labelled is gone: {page.value(counted)}")
        page.press("b")
        for key in "n" + "y" * 9 + "w":
            page.press(key)
        saved = tmp_path / "labels.jsonl"
        eventually(saved.exists)
    labels = read_label_file(saved)
    assert [label.value for label in labels] == [1, 0, 0] + [1] * 9
    assert {label.by for label in labels} == {"ann"}
    assert json.loads(saved.read_text().splitlines()[0])["text"] == first
    ragguard("report", tmp_path / "a.db", "--labels", saved, code=0)
