"""Tables of scored runs for spreadsheets and data frames, and a data set on its way through them."""

import csv
import json
from dataclasses import replace

import pytest
from support.commands import ragguard

from ragguard import Passage, RagGuard, runs_from
from ragguard.analysis.frames import Frame
from ragguard.analysis.pairs import read_questions
from ragguard.errors import InvalidInput
from ragguard.storage.source import open_source
from ragguard.storage.sqlite.score_rows import titles
from ragguard.world import cases

FORMULA = '=HYPERLINK("http://127.0.0.1/")'


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A run of nano's world, and one with cells that a spreadsheet would compute, which nano cannot judge."""
    path = tmp_path_factory.mktemp("frames") / "a.db"
    (case,) = cases(1, seed=3)
    with RagGuard("nano", store=str(path), scorers=("belief", "utility")) as rg:
        with rg.run(case.question, references=[case.answer, "another name"]) as run:
            run.retrieved(case.question, [replace(case.gold[0], id="p1"), case.distractors[0]])
            run.answered(case.answer)
        with rg.run(FORMULA) as run:
            run.retrieved("-2 + 3", [Passage("+1", id="p3")])
            run.answered("@Ada Berg")
        rg.flush(60)
    return path


def rows_of(store, kind, tmp_path):
    out = tmp_path / "out.csv"
    done = ragguard("report", store, "--csv", out, "--rows", kind, code=0)
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert f"{len(rows)} rows written" in done.output
    return rows


def test_a_row_a_question_has_its_texts_and_the_numbers_of_compare(store, tmp_path):
    row, other = rows_of(store, "questions", tmp_path)
    assert row["reference"] == f"{row['answer']} | another name"
    assert (row["hops"], row["passages_read"], row["status"]) == ("1", "2", "ok")
    values_of = read_questions(store).values
    named = titles(values_of)
    compared = {named[series]: [*by_question.values()] for series, by_question in values_of.items()}
    assert {"seper", "utility", "delta_seper_total"} <= compared.keys()
    for title, values in compared.items():
        assert float(row[title] or other[title]) == pytest.approx(values[0])


def test_a_row_a_hop_and_a_row_a_passage(store, tmp_path):
    hop, _ = rows_of(store, "hops", tmp_path)
    assert (hop["hop"], hop["query"], hop["found"], hop["read"]) == ("1", hop["question"], "2", "2")
    passages = rows_of(store, "passages", tmp_path)
    assert [(one["hop"], one["rank"], one["id"], one["was_read"]) for one in passages[::2]] == [
        ("1", "1", "p1", "True"),
        ("1", "1", "p3", "True"),
    ]
    scores = [score for one in open_source(store).scored_runs() for score in one.scores]
    assert float(hop["seper"]) == pytest.approx(next(one.value for one in scores if one.name == "seper"))
    utilities = [one.value for one in scores if one.name == "utility"]
    assert [float(one["utility"]) for one in passages if one["utility"]] == pytest.approx(utilities)


def test_cells_that_a_spreadsheet_would_compute_are_quoted(store, tmp_path):
    _, row = rows_of(store, "questions", tmp_path)
    assert (row["question"], row["answer"]) == (f"'{FORMULA}", "'@Ada Berg")
    assert rows_of(store, "passages", tmp_path)[2]["text"] == "'+1"
    assert rows_of(store, "hops", tmp_path)[1]["query"] == "'-2 + 3"
    numbers = [
        value for row in rows_of(store, "questions", tmp_path) for value in row.values() if value[:1] == "-"
    ]
    assert all(float(value) < 0 for value in numbers)


def test_frames_go_to_pandas_and_polars_through_arrow(store):
    pytest.importorskip("pyarrow")
    with RagGuard(engine=None, store=str(store)) as rg:
        table = rg.frame()
        passages = rg.frame("passages")
        with pytest.raises(
            InvalidInput, match="rows: got 'words'; allowed: 'questions' or 'hops' or 'passages'"
        ):
            rg.frame("words")
    assert table.num_rows == 2
    assert passages.column("was_read").to_pylist() == [True] * 3
    for library in ("pandas", "polars"):
        module = pytest.importorskip(library)
        frame = table.to_pandas() if library == "pandas" else module.from_arrow(table)
        assert list(frame["question"])[1:] == [FORMULA]
        assert {run.question for run in runs_from(frame, map={"contexts": "answer"})} == {*frame["question"]}


def test_a_store_without_runs_gives_a_header_only(tmp_path):
    with RagGuard(engine=None, store=str(tmp_path / "a.db")):
        pass
    frame = Frame.of("hops", open_source(tmp_path / "a.db").each)
    assert frame.write_csv(tmp_path / "a.csv") == 0
    assert (tmp_path / "a.csv").read_text().startswith("run,question,hop,query")


@pytest.mark.slow
def test_tables_of_two_retrievers_are_compared_and_drawn_in_three_commands(tmp_path, monkeypatch):
    """The way of a data scientist: two files with the columns of ragas, one page that says which is better."""
    monkeypatch.chdir(tmp_path)
    asked = cases(20, seed=3)
    for name, best in (("a.csv", False), ("b.csv", True)):
        with open(name, "w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["user_input", "retrieved_contexts", "response", "reference"])
            for case in asked:
                gold = [passage.text for passage in case.gold]
                found = gold if best else [passage.text for passage in case.distractors][:2]
                table.writerow([case.question, json.dumps(found), case.answer if best else "", case.answer])

    for side in "ab":
        ragguard(
            "score", f"{side}.csv", "--store", f"{side}.db", "--engine", "nano", "--scorers", "belief", code=0
        )
    said = ragguard("compare", "a.db", "b.db", "--html", "compare.html", code=0).output
    assert "better" in said
    page = (tmp_path / "compare.html").read_text()
    assert "<svg" in page
    assert len(read_questions("b.db").asked) == 20
