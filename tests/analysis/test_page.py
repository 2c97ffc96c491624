"""The page: complete, self-contained, and deaf to whatever passages say."""

import io
import re

import pytest
from rich.console import Console
from support.browser import CHROMIUM, chromium
from support.overviews import overviews

from ragguard import RagGuard
from ragguard.analysis.hops import print_hops
from ragguard.analysis.page import BLOCK, detail, write_html
from ragguard.errors import InvalidInput, StoreError
from ragguard.records import Decision, Dropped, Failure, Passage, RetrievalStep, Run, Score, ScoredRun
from ragguard.storage.source import open_source

HOSTILE = (
    "</script><script>document.title='pwned'</script>",
    "<img src=x onerror=\"document.title='pwned'\">",
    "<svg/onload=document.title='pwned'>",
    "<!--<script>document.title='pwned'",
    "\u2028document.title='pwned'\u2029",
    "javascript:document.title='pwned'",
    "{{script}} {{policy}} <!-- data -->",
    "lone \ud800 surrogate \x00 and zero",
)


def scored(number=0, text="An ordinary passage."):
    """A two-hop run whose every text is `text`."""
    run = Run(f"run-{number}{text}", f"Question {number}? {text}", [text], text, name=text, started_ns=10**18)
    scores = [
        Score("seper_closed_book", 0.1, "run", run.id, reference_source="gold"),
        Score("delta_seper_total", 0.5, "run", run.id, reference_source="gold"),
        Score("udcg_context", 0.6, "run", run.id),
        Score("answer_correct", 1.0, "run", run.id, label=text),
    ]
    for index in range(2):
        passages = [Passage(f"{text} {number} {index} {place}", f"{text}-{place}", 0.5) for place in range(4)]
        step = RetrievalStep(
            f"s{index}", run.id, index, index, text, passages[:3], passages, error=text, tool=text
        )
        step.decision = Decision(passages[:3], [Dropped(passages[3], 4, text, -0.9)], "pruned", 1.0, text)
        run.steps.append(step)
        scores.append(
            Score("delta_seper", 0.25, "step", run.id, step.id, stderr=0.05, reference_source="gold")
        )
        for place in range(4):
            of = {"run_id": run.id, "step_id": step.id, "position": place + 1}
            scores.append(Score("utility", 0.5 - place / 2, "passage", **of))
            scores.append(Score("answerability", place, "passage", sub_question=0, **of))
    run.sub_questions = [text]
    return ScoredRun(run, scores, [Failure("belief", text, text, True, run.id)])


def test_nothing_is_fetched_from_anywhere(tmp_path):
    page = tmp_path / "report.html"
    assert write_html(overviews([scored()]), page) == 1
    text = page.read_text()
    assert not re.search(r"(?:src|href)\s*=\s*[\"']?(?:https?:)?//", text)
    assert "default-src 'none'" in text


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_becomes_markup(tmp_path, text):
    page = tmp_path / "report.html"
    write_html(overviews([scored(text=text)]), page)
    written = page.read_text()
    assert written.count("</script>") == written.count("<script")
    assert "pwned'</script>" not in written
    assert "onerror=" not in re.sub(
        r'<script type="application/json".*?</script>', "", written, flags=re.DOTALL
    )


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="NO chromium HERE: apt-get install chromium")
def test_hostile_passages_do_nothing_in_a_real_browser(tmp_path):
    page = tmp_path / "report.html"
    write_html(overviews(scored(number, text) for number, text in enumerate(HOSTILE)), page, "the title")
    with chromium() as browser:
        dom = browser.open(page.as_uri()).value("document.documentElement.outerHTML")
    assert "<title>the title</title>" in dom
    assert "<img" not in dom
    assert dom.count("<script") == 3


def test_runs_are_written_as_they_come(tmp_path):
    """However many there are, some blocks of them are in memory. `make bench-report` measures the time."""
    sizes = []

    def coming():
        for number, run in enumerate(overviews(scored(number) for number in range(5 * BLOCK))):
            if number % BLOCK == 0:
                sizes.append(sum(draft.stat().st_size for draft in tmp_path.rglob("report.html")))
            yield run

    assert write_html(coming(), tmp_path / "report.html") == 5 * BLOCK
    assert len(sizes) == 5
    assert sizes[1:] == sorted(set(sizes[1:])), "the file grows with each block"


def test_no_runs_leave_no_file(tmp_path):
    with pytest.raises(InvalidInput, match="ragguard score"):
        write_html([], tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_that_name_is_one_clear_error_and_nothing_is_left_over(tmp_path):
    (tmp_path / "report.html").mkdir()
    with pytest.raises(
        StoreError, match=r"report\.html could not be written \(Is a directory\); name another file"
    ):
        write_html(overviews([scored()]), tmp_path / "report.html")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_a_fault_in_the_middle_leaves_the_old_page(tmp_path):
    page = tmp_path / "report.html"
    page.write_text("old")

    def broken():
        yield from overviews([scored()])
        raise RuntimeError("gone")

    with pytest.raises(RuntimeError, match="gone"):
        write_html(broken(), page)
    assert page.read_text() == "old"
    assert list(tmp_path.iterdir()) == [page]


QUESTION = "When was Corwell Mills founded?"
SHORT = (
    "did not fit the model's context, so that its scores are about a part: passage 1, what was read so far"
)


def test_a_context_that_nano_cannot_read_whole_is_said_in_hops_page_and_scores(tmp_path):
    console = Console(width=200, file=io.StringIO())
    with RagGuard(engine="nano", store=tmp_path / "runs.db", scorers=["belief", "utility"]) as rg:
        for _ in range(2):
            with rg.run(QUESTION, references=["1903"]) as run:
                texts = [
                    "Zantek Foods is based in East Dundale. " * 500,
                    "Corwell Mills was founded in 1903.",
                ]
                run.retrieved(QUESTION, texts)
        assert rg.flush(timeout=60)
        print_hops(rg, console)
        utilities = [score.metadata for score in rg.scores(run.id) if score.name == "utility"]
    shown = console.file.getvalue()
    assert shown.count(SHORT) == 2
    assert [metadata.get("cut_tokens", 0) > 1000 for metadata in utilities] == [True, False]
    source = open_source(tmp_path / "runs.db")
    for overview in source.overviews():
        [hop] = detail(overview, {})["steps"]
        assert hop["notice"] == SHORT
