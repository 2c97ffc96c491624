"""Each study has a page that shows what was measured, and runs from the command line."""

import re
import subprocess
import sys

import pytest

from studies import STUDIES
from studies.figures import FIGURES, FOLDER, digest
from studies.page import PAGES, ROOT, kept_results, page


@pytest.mark.parametrize("name", STUDIES)
def test_the_page_holds_the_tables_that_were_kept(name):
    text = (PAGES / f"{name}.md").read_text()
    assert f"<!-- study: {name} -->" in text
    assert page(text) == text, f"run `make study-{name}`"


@pytest.mark.parametrize("name", STUDIES)
def test_a_page_s_figures_show_the_tables_of_today(name):
    for study in re.findall(r"<!-- study: (\w+) -->", (PAGES / f"{name}.md").read_text()):
        for table in kept_results(study)["tables"]:
            if table["name"] in FIGURES:
                drawn = (FOLDER / f"{table['name']}.svg").read_text()
                assert digest(table) in drawn, f"run `make study-{name}`"


def test_a_figure_has_its_columns():
    tables = [table for name in STUDIES for table in kept_results(name)["tables"]]
    for name, figure in FIGURES.items():
        for table in tables:
            assert table["name"] != name or set(figure.series) <= set(table["columns"])


def studies(*words):
    return subprocess.run(
        [sys.executable, "-m", "studies", *map(str, words)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_small_study_is_printed_and_not_kept():
    before = (PAGES / "distractors.md").read_text()
    done = studies("distractors", "--questions", 2)
    assert done.returncode == 0, done.stderr
    assert "### " in done.stdout
    assert (PAGES / "distractors.md").read_text() == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("udcg",), "coverage"),
        (("belief", "--engine", "x"), "nano"),
        (("lists", "--engine", "nano", "--engine", "smol"), "lists compares no readers"),
    ],
)
def test_study_that_cannot_run_is_one_sentence(words, said):
    done = studies(*words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
