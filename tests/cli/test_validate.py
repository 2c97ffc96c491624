"""`ragguard validate` as a user types it."""

import json
from functools import partial
from pathlib import Path

import pytest
from support.commands import ragguard

from ragguard import world

ROOT = Path(__file__).parents[2]


validate = partial(ragguard, "validate")


@pytest.fixture(scope="module")
def contexts(tmp_path_factory):
    """Contexts of the world without outcomes: with the gold passage, without it, with a lie."""
    path = tmp_path_factory.mktemp("data") / "runs.jsonl"
    with path.open("w") as file:
        for case in world.cases(7, seed=21):
            others = case.of_kind("unrelated")[:2]
            for name, passages in {
                "gold": [*others, *case.gold], "none": others, "lie": [*case.of_kind("contradiction")[:1], *others],
            }.items():  # fmt: skip
                graded = [{"text": one.text, "grade": 5 if one in case.gold else 1} for one in passages]
                file.write(json.dumps({
                    "id": f"{case.question} {name}", "question": case.question, "references": case.references,
                    "steps": [{"passages": graded}],
                }) + "\n")  # fmt: skip
    return path


def test_contexts_are_answered_graded_and_compared(contexts, tmp_path):
    out, page = tmp_path / "tables.json", tmp_path / "tables.md"
    done = validate(contexts, "--engine", "nano", "--json", out, "--markdown", page, code=0)
    first, second = json.loads(out.read_text())
    rows = {row[0]: row for row in first["rows"]}
    assert {"udcg", "ndcg_at_k", "precision"} <= rows.keys()
    assert rows["udcg"][1] > 0.3
    assert second["columns"][0] == "than"
    assert "| udcg |" in page.read_text()
    assert "udcg" in done.output


def test_likelihoods_are_compared_without_a_judge(contexts, tmp_path):
    out = tmp_path / "tables.json"
    validate(contexts, "--engine", "nano", "--scorers", "likelihood", "--json", out, code=0)
    names = {row[0] for row in json.loads(out.read_text())[0]["rows"]}
    assert {"likelihood", "delta_likelihood", "precision"} <= names
    assert "udcg" not in names


def test_the_example_says_what_the_page_shows(tmp_path):
    validate(
        ROOT / "examples" / "graded_runs.jsonl", "--engine", "nano", "--markdown", tmp_path / "t.md", code=0
    )
    assert (tmp_path / "t.md").read_text() in (ROOT / "docs" / "background" / "validation.md").read_text()


def found_something(question, number, passages, outcome, text="{} {}"):
    graded = [{"text": text.format(question, n), "id": f"p{n}", "grade": 5} for n in range(passages)]
    return {
        "id": f"{question}-{number}", "question": question, "metadata": {"outcome": outcome},
        "steps": [{"passages": graded}],
    }  # fmt: skip


def test_contexts_that_an_engine_cannot_read_are_counted(tmp_path):
    path, out = tmp_path / "c.jsonl", tmp_path / "out.json"
    objects = [found_something("q", n, n, n % 2) for n in range(4)]
    objects.append(found_something("q", 4, 1, 1, text=""))
    path.write_text("".join(json.dumps(one) + "\n" for one in objects))
    validate(path, "-e", "nano", "--json", out, code=0)
    assert "1 contexts without texts were left out" in json.loads(out.read_text())[0]["notes"][-1]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "DATA"),
        (("none.jsonl",), "none.jsonl could not be read"),
        (("DATA", "--engine", "http://127.0.0.1:9/v1"), "check the address"),
        (("DATA",), "--engine"),
        (("DATA", "--scorers", "utilty"), "--engine, for --scorers and --judge"),
        (("DATA", "--engine", "ftp://x"), "ftp"),
        (("DATA", "--engine", "nano", "--scorers", "utilty"), "utilty"),
        (("DATA", "--engine", "nano", "--metric", "udgc"), "one of"),
        (("DATA", "--engine", "nano", "--markdown", "/no/such/folder/x.md"), "a folder that exists"),
        (("exam", "--entailers", "words", "--engine", "nano"), "nothing beside --engine"),
        (
            ("DATA", "--engine", "nano", "--engine", "smol", "--metric", "udcg"),
            "nothing beside several --engine",
        ),
    ],
)
def test_validate_of_wrong_input_ends_in_one_sentence(contexts, arguments, told):
    done = validate(*(contexts if one == "DATA" else one for one in arguments), code=2)
    text = " ".join(done.output.split())
    assert told in text
    assert "Traceback" not in text


def test_a_file_of_a_paper_is_no_input_as_the_pages_of_the_studies_say(tmp_path):
    passage = {"doc_id": "d", "text": "Ada Berg founded it.", "is_relevant": True}
    path = tmp_path / "udcg.jsonl"
    path.write_text(
        json.dumps({"example_id": "1", "question": "Who?", "passages": [passage], "udcg": {"m": 1}})
    )
    assert "outcome: got None" in validate(path, "--engine", "nano", code=2).output
