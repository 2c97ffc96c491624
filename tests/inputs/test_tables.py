"""Tables as runs: the columns of ragas, DeepEval and plain ones, in every format, and what is wrong with them."""

import csv
import json
from types import SimpleNamespace

import pytest

from ragguard import read_runs, runs_from, write_runs
from ragguard.errors import InvalidInput, StoreError
from ragguard.inputs.formats import ReadOptions
from ragguard.inputs.reading import RunReading

PLAIN = {
    "question": "Who?",
    "contexts": ["Ada did.", "Bo did not."],
    "answer": "Ada",
    "reference": "Ada Berg",
}
RAGAS = dict(zip(("user_input", "retrieved_contexts", "response", "reference"), PLAIN.values(), strict=True))
DEEPEVAL = dict(
    zip(("input", "retrieval_context", "actual_output", "expected_output"), PLAIN.values(), strict=True)
)


def written(path, rows):
    """The rows as a file of the format that the name of the path says."""
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            table = csv.DictWriter(file, rows[0])
            table.writeheader()
            table.writerows(
                {name: json.dumps(cell) if isinstance(cell, list) else cell for name, cell in row.items()}
                for row in rows
            )
    elif path.suffix == ".parquet":
        arrow = pytest.importorskip("pyarrow")

        pytest.importorskip("pyarrow.parquet").write_table(arrow.Table.from_pylist(rows), path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows, indent=2))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def facts(run):
    (step,) = run.steps
    return run.question, [passage.text for passage in step.passages], run.answer, run.references


EXPECTED = ("Who?", ["Ada did.", "Bo did not."], "Ada", ["Ada Berg"])


@pytest.mark.parametrize("row", [PLAIN, RAGAS, DEEPEVAL], ids=["plain", "ragas", "DeepEval"])
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.json", "a.parquet"])
def test_the_columns_that_tools_write_need_no_map(tmp_path, name, row):
    path = written(tmp_path / name, [row, {**row, next(iter(row)): "And who else?"}])
    first, second = runs_from(path)
    assert facts(first) == EXPECTED
    assert (second.question, first.id == second.id) == ("And who else?", False)


@pytest.mark.parametrize(
    ("cell", "texts"),
    [
        ('["Ada did.", "Bo, too."]', ["Ada did.", "Bo, too."]),
        ("['Ada did.', \"Bo's, too.\"]", ["Ada did.", "Bo's, too."]),
        ("['Ada did.' 'Bo, too.'\n 'Cy']", ["Ada did.", "Bo, too.", "Cy"]),  # as NumPy writes an array
        ("Ada did. | Bo, too.", ["Ada did.", "Bo, too."]),
        ('[{"text": "Ada did.", "id": "p1"}]', ["Ada did."]),
        ("[sic] Ada did [it]", ["[sic] Ada did [it]"]),
        ("Ada did.", ["Ada did."]),
        ("", []),
        ("[]", []),
    ],
)
def test_contexts_in_one_cell(cell, texts):
    (run,) = runs_from([{"question": "Who?", "contexts": cell}], separator="|")
    assert facts(run)[1] == texts


@pytest.mark.parametrize(
    "cell", ["[kaputt", '["Ada did.", "Bo', "[Ada did., Bo too.]", '["Ada did."] and more']
)
def test_a_cell_that_begins_like_a_list_and_is_none_is_named_with_its_line(tmp_path, cell):
    rows = [{"question": "Who?", "contexts": text} for text in (cell, "[1] Ada did [it].", "[sic]: Ada did.")]
    first, *others = RunReading(written(tmp_path / "a.csv", rows)).lines()
    assert str(first.problem).startswith(f"line 2, contexts: got {cell!r}; allowed: a list in JSON")
    assert [len(line.run.steps[0].passages) for line in others] == [1, 1]


def test_ids_references_and_other_columns_are_kept():
    row = {
        **RAGAS,
        "id": 7,
        "retrieved_context_ids": ["p1", "p2"],
        "reference": ["Ada Berg", "A. Berg"],
        "topic": "x",
    }
    (run,) = runs_from([row])
    assert (run.id, run.references, run.metadata) == ("7", ["Ada Berg", "A. Berg"], {"topic": "x"})
    assert [passage.id for passage in run.steps[0].passages] == ["p1", "p2"]
    (run,) = runs_from([{**PLAIN, "answer": 1922, "reference": 1922.0}])
    assert (run.answer, run.references) == ("1922", ["1922"])


def test_other_names_are_mapped():
    row = {"Q": "Who?", "found": ["Ada did.", "Bo did not."], "said": "Ada", "gold": "Ada Berg"}
    (run,) = runs_from(
        [row], map={"question": "Q", "contexts": "found", "answer": "said", "reference": "gold"}
    )
    assert facts(run) == EXPECTED
    with pytest.raises(
        InvalidInput, match="--map question: got 'X'; allowed: a column of the data: Q, found"
    ):
        [*runs_from([row], map={"question": "X"})]
    with pytest.raises(InvalidInput, match="--map: got 'query'; allowed: 'question' or 'contexts'"):
        [*runs_from([row], map={"query": "Q"})]


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_frames_are_read_by_what_they_can_do(library):
    module = pytest.importorskip(library)
    make = module.Table.from_pylist if library == "pyarrow" else module.DataFrame
    first, second = runs_from(make([RAGAS, {**RAGAS, "response": None}]))
    assert (facts(first), second.answer) == (EXPECTED, None)


def test_data_sets_of_ragas_and_deepeval():
    sample = SimpleNamespace(**RAGAS, model_dump=lambda: RAGAS)
    ragas = SimpleNamespace(samples=[sample], to_list=lambda: [RAGAS])  # what an EvaluationDataset has
    deepeval = SimpleNamespace(test_cases=[SimpleNamespace(**DEEPEVAL)])
    for data in (ragas, deepeval, [sample], (row for row in [RAGAS])):
        (run,) = runs_from(data)
        assert facts(run) == EXPECTED
    with pytest.raises(InvalidInput, match="one of its parts: train, test"):
        [*runs_from({"train": [RAGAS], "test": [RAGAS]})]
    with pytest.raises(InvalidInput, match="rows that can be iterated"):
        [*runs_from(5)]


def test_a_data_set_of_hugging_face_on_the_disk(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    table = arrow.Table.from_pylist([RAGAS])
    folder = tmp_path / "set" / "train"
    folder.mkdir(parents=True)
    with (
        arrow.OSFile(str(folder / "data.arrow"), "wb") as file,
        arrow.ipc.new_stream(file, table.schema) as out,
    ):
        out.write_table(table)
    (folder / "state.json").write_text('{"_data_files": [{"filename": "data.arrow"}]}')
    (folder.parent / "dataset_dict.json").write_text('{"splits": ["train"]}')
    (run,) = runs_from(folder)
    assert facts(run) == EXPECTED
    with pytest.raises(InvalidInput, match=r"one of its splits: .*train"):
        [*runs_from(folder.parent)]
    (folder / "data.arrow").write_bytes(b"no Arrow")
    with pytest.raises(StoreError, match="could not be read as a data set"):
        [*runs_from(folder)]


def test_a_table_becomes_run_lines(tmp_path):
    path = written(tmp_path / "a.csv", [RAGAS])
    write_runs(runs_from(path), tmp_path / "a.jsonl")
    assert [facts(run) for run in read_runs(tmp_path / "a.jsonl")] == [EXPECTED]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("Q,ctx\nWho?,\"['a', 'b']\"\n", "score FILE.csv --map question=Q --map contexts=ctx`"),
        ("Q,ctx,gave,gold,n\nWho?,a,b,c,d\n",
        "map question=Q --map contexts=ctx --map answer=gave --map reference=gold`"),
        ("question,answer\nWho?,Ada\n", "FILE, columns: got 'question, answer'; allowed: a name for contexts, such as "
        "contexts, or: .*--map contexts=CON"),
        ("question,contexts,question\na,b,c\n", "column: got 'question'; allowed: a name that only one column has"),
        ("question,contexts\n,a\n,b\n", "none of its first 2 lines could be read as a run; line 2, question: got ''"),
        ("question,contexts\n\xe4,a\n".encode("latin-1"), "iconv -f WINDOWS-1252"),
        ('question,contexts\n"Who?,a\n', "a quote inside quotes is doubled"),
        ("question,contexts\nWho?\n", "its only line could not be read as a run; line 2, cells: got 1; allowed: 2, "
        "as in the first line"),
        ("what is this\n", "a run file, traces or a trajectory in JSON, a store, or a table"),
        (b"\x89PNG\r\n\x1a\n\0\0", "a run file, traces or a trajectory in JSON, a store, or a table"),
        ("question,contexts\nWho?,a\n".encode("utf-16"), "got 'UTF-16'; allowed: UTF-8, which `iconv -f UTF-16 "
        "-t UTF-8 FILE > NEW` makes"),
        ('{"question": "q"}\n'.encode("utf-16-be"), "got 'UTF-16'; allowed: UTF-8, which `iconv"),
        (b"PAR1 and nothing", "could not be read as Parquet"),
        ('{"question": 5, "contexts": ["a"]}\n', "question: got 5; allowed: a text"),
        ('{"question": "q", "contexts": [5]}\n', r"contexts\[0\]: got 5; allowed: a text"),
        ('{"question": "q", "contexts": ["a"], "answer": true}\n', "answer: got True; allowed: a text"),
        ('{"user_input": [{"content": "q"}], "contexts": []}\n', "conversations are read from traces"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_one_sentence_with_the_way_out(tmp_path, monkeypatch, text, says):
    monkeypatch.chdir(tmp_path)
    name = "FILE.csv" if "Q,ctx" in str(text) else "FILE"
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    if "PAR1" in str(text):
        pytest.importorskip("pyarrow")
    with pytest.raises((InvalidInput, StoreError), match=says):
        [*RunReading(name).lines()]


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("s.jsonl", DEEP, "line 1, JSON"),
        ("s.json", f'[\n{{"question": "q", "contexts": {DEEP}}}]', "line 1, JSON"),
        ("s.json", f'[{{"question": "q", "contexts": ["a"], "more": {DEEP}}}]', "line 1, JSON"),
        ("s.jsonl", f'{{"resourceSpans": {DEEP}}}', "line 1, JSON"),
        ("s.csv", f'question,contexts\nq,"{DEEP}"', "line 2, contexts"),
    ],
)
def test_what_is_nested_too_deeply_is_one_error_with_its_file_and_line(tmp_path, name, text, says):
    (tmp_path / name).write_text(text)
    with pytest.raises(InvalidInput) as raised:
        list(runs_from(tmp_path / name))
    said = str(raised.value)
    assert str(tmp_path / name) in said
    assert says in said
    assert "JSON" not in says or said.endswith("allowed: less deeply nested")


def test_rows_that_are_wrong_are_problems_between_the_others(tmp_path):
    lines = ["question,contexts", '"one', 'more?",a', "Who?,a,b", "", ",a", "Who else?,a"]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    found = [(line.number, line.run and line.run.question) for line in RunReading(tmp_path / "a.csv").lines()]
    assert found == [(2, "one\nmore?"), (4, None), (6, None), (7, "Who else?")]


def test_an_id_that_is_there_twice_is_named_with_both_lines(tmp_path):
    rows = [
        {**PLAIN, "id": "r1"},
        {**PLAIN, "id": "r2"},
        {**PLAIN, "id": "r1", "answer": "Bo"},
        {**PLAIN, "id": "r1"},
        {**PLAIN, "id": "r1", "contexts": ["Other passages."]},
    ]
    lines = list(RunReading(written(tmp_path / "a.jsonl", rows)).lines())
    assert [line.run is not None for line in lines] == [
        True,
        True,
        False,
        True,
        False,
    ]  # equal rows are one run
    for line in (lines[2], lines[4]):
        place = f"line {line.number}, id: got 'r1'; allowed: an id of its own: line 1 has it"
        assert str(line.problem).startswith(place)


@pytest.mark.parametrize(
    ("separator", "said"),
    [("|", "--separator '|' "), (";", "--separator ';' "), ("\n\n", r"--separator $'\n\n' ")],
)
def test_cells_that_may_hold_several_contexts_are_said_with_what_splits_them(tmp_path, separator, said):
    path = written(tmp_path / "a.csv", [{"question": "Who?", "contexts": f"a {separator} b"}])
    reading = RunReading(path)
    assert [len(line.run.steps[0].passages) for line in reading.lines()] == [1]
    (remark,) = reading.remarks
    assert said in remark
    (line,) = RunReading(path, ReadOptions(separator=separator)).lines()
    assert len(line.run.steps[0].passages) == 2


def test_columns_that_are_not_read_are_said(tmp_path):
    path = written(tmp_path / "a.csv", [{**PLAIN, "response": "Bo", "notes": "n"}])
    reading = RunReading(path)
    (line,) = reading.lines()
    assert line.run.answer == PLAIN["answer"]
    assert [*reading.remarks] == [
        "answer is read from answer, not from response; --map answer=response changes that",
        "columns not used, only kept as metadata: response, notes",
    ]
    reading = RunReading(path, ReadOptions(columns={"answer": "response"}))
    assert [line.run.answer for line in reading.lines()] == ["Bo"]
    assert [*reading.remarks] == ["columns not used, only kept as metadata: answer, notes"]


def test_folders_that_hold_no_data(tmp_path):
    with pytest.raises(StoreError, match="it is an empty folder; name files"):
        [*runs_from(tmp_path)]
    for name in "abcde":
        (tmp_path / f"{name}.png").write_bytes(b"\x89PNG")
    with pytest.raises(StoreError, match=r"a folder with a\.png, b\.png, c\.png and more; name files"):
        [*runs_from(tmp_path)]


def test_many_rows_are_read_one_at_a_time(tmp_path):
    """The first run is there before the file is read on."""
    with (tmp_path / "a.csv").open("w") as file:
        file.write("question;contexts\n")
        for number in range(100_000):
            file.write(f"Who is number {number}?;a\n")
    positions = []
    reading = RunReading(tmp_path / "a.csv", on_position=positions.append).lines()
    assert next(reading).run.question == "Who is number 0?"
    assert max(positions, default=0) < 1_000_000
    assert sum(1 for _ in reading) == 99_999
    assert positions[-1] == (tmp_path / "a.csv").stat().st_size


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('{"question": "q", "steps": []}', "a run file"),
        ('{"question": "q"}', "a run file"),
        ("{broken", "a run file"),
        (json.dumps(RAGAS), "a table in JSON"),
        ("\ufeffquestion;contexts\n", "a table in CSV"),
    ],
)
def test_a_format_is_known_by_what_the_file_begins_with(tmp_path, text, name):
    (tmp_path / "file").write_text("\n" + text if text[0] == "{" else text)
    assert RunReading(tmp_path / "file").format() == name
