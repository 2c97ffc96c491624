"""`ragguard compare BEFORE AFTER --html`: the verdict in a sentence, pictures, the questions that moved, and causes."""

from __future__ import annotations

import re

import pytest
from support.browser import CHROMIUM, chromium, lies_apart
from support.commands import ragguard
from support.stored import scored_store

from ragguard.records import Passage, RetrievalStep, Run, Score, ScoredRun

HOSTILE = "<script>alert(1)</script> who founded firm 0?"


def side(path, better):
    """A store of twelve questions; on the better side ten of them are answered from the right passage, before two."""
    runs = []
    for number in range(12):
        right = number >= 2 if better else number < 2
        passage = Passage("Ada Berg founded it." if right else "Carl Dahl founded it.")
        run = Run(f"r{number}", HOSTILE if not number else f"who founded firm {number}?", ["Ada Berg"])
        run.answer = "Ada Berg" if right else "Carl Dahl"
        run.steps = [RetrievalStep(f"s{number}", run.id, query="who?", passages=[passage], k=1)]
        scores = [
            Score("utility", 0.9, "passage", run.id, f"s{number}", position=1),
            Score("answer_correct", float(right), "run", run.id, label="correct" if right else "wrong"),
            Score(
                "delta_seper_total",
                (0.5 if right else -0.2) + number / 100,
                "run",
                run.id,
                reference_source="gold",
            ),
        ]
        runs.append(ScoredRun(run, scores))
    return scored_store(path, runs)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sides")
    before, after = side(folder / "before.db", False), side(folder / "after.db", True)
    html = folder / "compare.html"
    done = ragguard("compare", before, after, "--html", html)
    assert (done.exit_code, "is written to" in done.output) == (0, True), done.output
    sentence = next(
        line for line in done.stdout.splitlines() if line.startswith(("Better", "Undecided", "Mixed"))
    )
    return html, sentence


def test_the_page_says_what_the_terminal_says_and_names_what_rose_and_fell(page):
    html, sentence = page
    text = html.read_text(encoding="utf-8")
    assert sentence.split(":")[0] in text
    assert "over 12 questions." in text
    assert "Belief: ΔSePer of the run" in text, "the plain name stands first"
    assert re.search(r"p is McNemar.*exact test for each cause.*With p corrected for \d+ causes, ", text)
    assert text.count(">p</th>") == 2, "the p that the notes explain stands in both tables"
    assert "2 of 12 questions fell by 0.02 or more</h2>" in text
    assert "10 questions rose, and fell in nothing</h2>" in text
    assert (
        text.index("2 of 12 questions fell by 0.02 or more</h2>")
        < text.index("who founded firm 1?")
        < text.index("10 questions rose, and fell in nothing</h2>")
    )
    assert "misled by a passage that states the wrong answer" in text
    assert "of 12 questions: 10 became better (above the line), 2 worse (under it)" in text


def test_difference_and_verdict_stand_before_the_wide_picture(page):
    """On a phone the table is wider than the screen, and what stands behind the picture is out of sight."""
    table = page[0].read_text(encoding="utf-8").partition("<table")[2].partition("</thead>")[0]
    assert (
        table.index("difference")
        < table.index("verdict")
        < table.index("worse | better")
        < table.index("before →")
    )


def test_texts_are_escaped_and_nothing_is_fetched_or_run(page):
    text = page[0].read_text(encoding="utf-8")
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert "default-src &#x27;none&#x27;" in text or "default-src 'none'" in text
    assert not re.search(r"(src|href)=", text)


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="NO chromium HERE: apt-get install chromium")
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 1280, 1920])
def test_the_page_is_whole_in_a_browser(page, width, dark):
    with chromium() as browser:
        tab = browser.open(
            page[0].as_uri(), width, 900, dark=dark, until="document.readyState === 'complete'"
        )
        lies_apart(
            tab, width, ("body > header", ".answers > section", "main > section", "footer"), (0, 10**6)
        )
        assert tab.value("(window.violations || []).length") == 0
        ground = tab.value("getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(20, 22, 26)") is dark
        assert tab.value("document.querySelectorAll('circle').length") > 12
