"""The page in a real browser: found by keyboard, filtered, told to screen readers, whole on a phone and on paper."""

import io
import re

import pytest
from rich.console import Console
from support.browser import CHROMIUM, chromium, lies_apart
from support.outcomes import outcome
from support.overviews import overviews

from ragguard import RagGuard
from ragguard.analysis.hops import hop_table
from ragguard.analysis.page import write_html
from ragguard.facts.run_view import RunView
from ragguard.records import Decision, Dropped, Passage, RetrievalStep, Run, Score, ScoredRun
from ragguard.storage.source import open_source

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="NO chromium HERE: apt-get install chromium"),
]
RUNS = 120
SECOND = 1_000_000_000


def scored(number):
    """Two hops; of every third run the guard dropped a misleading passage."""
    run = Run(
        f"run-{number:03d}", f"Who is number {number}?", ["Ada"], "Ada", started_ns=number * SECOND + 10**18
    )
    run.ended_ns = run.started_ns + SECOND
    said = [Score("seper_closed_book", 0.1, "run", run.id, reference_source="gold")]
    said += [Score("delta_seper_total", number / 200, "run", run.id, stderr=0.1, reference_source="gold")]
    for index in range(2):
        found = [Passage(f"Passage {place} of hop {index} about {number}.") for place in range(3)]
        began = run.started_ns + index * SECOND // 2
        step = RetrievalStep(
            f"{run.id}-{index}", run.id, index, index, "which?", found, found, began, began + SECOND // 4
        )
        if index and number % 3 == 0:
            step.decision = Decision(
                found[:2], [Dropped(found[2], 3, "utility -0.80 < -0.20", -0.8)], "pruned", 100.0
            )
            step.passages = found[:2]
        run.steps.append(step)
        of = {"run_id": run.id, "step_id": step.id}
        said.append(Score("delta_seper", number / 400, "step", stderr=0.1, reference_source="gold", **of))
        said += [Score("utility", 0.9 - place, "passage", position=place + 1, **of) for place in range(3)]
        said += [
            Score("answerability", 5 - place, "passage", position=place + 1, sub_question=0, **of)
            for place in range(3)
        ]
    return ScoredRun(run, said)


def written(folder, runs):
    """The address of a page of these runs."""
    write_html(overviews(runs), folder / "report.html")
    return (folder / "report.html").as_uri()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    return written(tmp_path_factory.mktemp("page"), map(scored, range(RUNS)))


@pytest.fixture(scope="module")
def browser():
    with chromium() as made:
        yield made


def test_page_is_used_by_keyboard_alone(browser, address):
    page = browser.open(address)
    page.press("/")
    assert page.value("document.activeElement.id") == "search"
    page.call("Input.insertText", text="number 77")
    assert page.value("count.textContent") == "1 of 120 runs"
    page.value("search.value = ''; search.dispatchEvent(new Event('input')); runs.focus()")
    first = page.value("document.querySelector('.question').textContent")
    page.press("ArrowDown")
    assert page.value("document.querySelector('.question').textContent") != first
    assert (
        page.value("document.getElementById(runs.getAttribute('aria-activedescendant')).ariaSelected")
        == "true"
    )
    page.press("Enter")
    assert page.value("document.activeElement.id") == "run"


def test_filters_orders_and_pages(browser, address):
    page = browser.open(address)
    assert page.value("runs.children.length") == 50
    page.value("pages.querySelector('button:last-of-type').click()")
    assert "page 2 of 3" in page.value("pages.textContent")
    page.value("filter.value = 'dropped'; filter.dispatchEvent(new Event('input'))")
    assert page.value("count.textContent") == "40 of 120 runs"
    page.value(
        "sort.value = 'gain-down'; sort.dispatchEvent(new Event('input')); runs.firstElementChild.click()"
    )
    assert page.value("document.querySelector('.question').textContent") == "Who is number 117?"
    assert page.value("location.hash") == "#run-117"


def test_gold_and_support_are_drawn_apart_and_nothing_has_no_minus(browser, tmp_path):
    """A belief in the run's own answer is never averaged with one in the right answer."""
    runs = []
    for number in range(24):
        item = scored(number)
        own = number % 2 == 1
        for score in item.scores:
            if score.name == "delta_seper_total":
                score.value, score.reference_source = (0.9, "answer") if own else (-0.001, "gold")
        runs.append(item)
    page = browser.open(written(tmp_path, runs))
    page.value("document.getElementById('charts-of-all').open = true")
    text = page.value("charts.innerText")
    told = {
        one.splitlines()[0]: one for one in page.value("[...charts.children].map((one) => one.innerText)")
    }
    assert "between 0.00 and 0.00" in told["ΔSePer over time"], text
    assert "between 0.90 and 0.90" in told["Support over time"], text
    assert not re.search(r"−0\.0+\b", page.value("document.body.innerText"))


def test_a_run_tells_what_the_guard_dropped_and_where_the_time_went(browser, address):
    page = browser.open(address + "#run-117")
    text = page.value("run.innerText")
    for expected in ("guard dropped 1 in 100.0 ms", "would mislead; dropped: utility -0.80 < -0.20",
                     "expected: Ada", "±", "Where the time went",
                     "250.0 ms, guard 100.0", "Which passage answers"):  # fmt: skip
        assert expected in text, expected
    assert page.value("document.querySelectorAll('tr.dropped').length") == 1
    page.value("search.value = 'number 117'; search.dispatchEvent(new Event('input'))")
    assert "2 hops" in page.value("runs.innerText")
    assert "1 misleading" in page.value(
        "runs.innerText"
    )  # two passages mislead, of which the guard dropped one
    assert page.value("document.querySelectorAll('.cell.gone').length") == 1


def test_a_screen_reader_hears_names_and_numbers(browser, address):
    page = browser.open(address + "#run-117")
    told = page.call("Accessibility.getFullAXTree")["nodes"]
    names = {(node.get("role", {}).get("value"), node.get("name", {}).get("value")) for node in told}
    assert ("article", "Run: Who is number 117?") in names
    assert ("searchbox", "Search") in names
    assert ("listbox", "Runs; arrow keys move, Enter opens") in names
    assert any(
        role == "image" and str(name).startswith("Belief in the right answer: before 0.10")
        for role, name in names
    )
    assert any(role == "image" and name == "utility +0.90" for role, name in names)
    controls = "[...document.querySelectorAll('input, select, button')]"
    assert page.value(f"{controls}.filter((one) => !one.labels?.length && !one.textContent).length") == 0


@pytest.mark.parametrize("value", [-0.03496, 0.125, -0.375, 0.04504, -0.004999, 0.04499])
def test_the_page_shows_the_number_that_the_terminal_shows(browser, tmp_path, value):
    item = scored(1)
    item.scores = [one for one in item.scores if one.name != "delta_seper"]
    item.scores += [
        Score("delta_seper", value, "step", item.run.id, step_id=step.id, stderr=0.125)
        for step in item.run.steps
    ]
    page = browser.open(written(tmp_path, [item]) + "#run-001")
    console = Console(width=150, file=io.StringIO(), record=True)
    console.print(hop_table(RunView(item.run, item.scores)))
    (shown, *_) = re.findall(r"ΔSePer (\S+ ± \S+)", console.export_text().partition("hop 1:")[2])
    assert f"ΔSePer of the step {shown}".replace("-", "−") in page.value("run.innerText")


SAMPLED = {"seper_closed_book": 0.9, "delta_seper_total": 0.08, "delta_seper": [0.0, 0.08]}
LIKELY = {"likelihood_closed_book": 0.3, "delta_likelihood_total": 0.6, "delta_likelihood": [0.1, 0.5]}


RIGHT_ANSWER = "Belief in the right answer: before 0.90, hop 1 {}, hop 2 {}, after 0.98"
LIKELIHOOD = "Likelihood of the right answer: before 0.30, hop 1 {}, hop 2 {}, after 0.90"


@pytest.mark.parametrize(
    ("scores", "bars"),
    [
        ({**SAMPLED, "credit": [0.45, 0.6]}, RIGHT_ANSWER.format("0.00", "+0.08")),
        ({**SAMPLED, "credit": [0.03, 0.05]}, RIGHT_ANSWER.format("+0.03", "+0.05")),
        ({**SAMPLED, **LIKELY, "credit": [0.25, 0.35]}, LIKELIHOOD.format("+0.25", "+0.35")),
        ({**LIKELY, "credit": [0.7, 0.8]}, LIKELIHOOD.format("+0.10", "+0.50")),
        ({**LIKELY, "credit": [0.8, -0.2]}, LIKELIHOOD.format("+0.10", "+0.50")),
        ({"seper_closed_book": 0.9, "delta_seper": [0.0, 0.9]}, ""),
    ],
)
def test_the_bars_of_belief_are_of_one_quantity_and_end_at_1_at_most(browser, tmp_path, scores, bars):
    item = scored(1)
    item.scores = [one for one in item.scores if "seper" not in one.name]
    run = item.run
    for name, known in scores.items():
        if isinstance(known, float):
            item.scores.append(Score(name, known, "run", run.id, reference_source="gold"))
        else:
            item.scores += [
                Score(name, value, "step", run.id, step_id=step.id, stderr=0.0, reference_source="gold")
                for step, value in zip(run.steps, known, strict=True)
            ]
    page = browser.open(written(tmp_path, [item]) + "#run-001")
    label = "document.querySelector('#run .sides figure svg')?.getAttribute('aria-label') ?? ''"
    assert page.value(label) == bars


@pytest.mark.parametrize(("width", "height"), [(390, 844), (768, 1024), (1280, 900)])
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_is_cut_off_and_nothing_is_refused(browser, address, width, height, dark):
    page = browser.open(address + "#run-117", width, height, dark=dark)
    assert page.value("document.documentElement.scrollWidth") <= width
    assert page.value("(window.violations || []).length") == 0
    ground = page.value("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(20, 22, 26)") is dark


def test_address_of_a_run_brings_it_into_view_on_a_phone_where_its_matrix_scrolls(browser, tmp_path):
    item = scored(1)
    step = item.run.steps[0]
    step.passages = step.candidates = [Passage(f"Passage {place}.") for place in range(12)]
    of = {"run_id": item.run.id, "step_id": step.id}
    item.scores += [
        Score("answerability", 4, "passage", position=place + 1, sub_question=0, **of)
        for place in range(3, 12)
    ]
    item.scores.append(Score("p_relevant", 0.5, "passage", position=4, **of))
    page = browser.open(written(tmp_path, [scored(2), item, scored(3)]) + "#run-001", 390, 844)
    assert -1 <= page.value("run.getBoundingClientRect().top") <= 844 / 2
    matrix = "document.querySelector('.matrix').parentElement"
    assert page.value(f"{matrix}.scrollWidth > {matrix}.clientWidth")
    assert page.value("document.querySelectorAll('.matrix .cell.yes').length") >= 9
    page.value(f"{matrix}.scrollLeft = 200")
    assert page.value("document.querySelector('.matrix tbody th').getBoundingClientRect().left") >= 0
    assert page.value("document.documentElement.scrollWidth") <= 390


def test_paper_shows_the_run_alone(browser, address):
    page = browser.open(address + "#run-117", media="print", dark=True)
    assert page.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.value("list.offsetHeight + overview.offsetHeight") == 0
    assert page.value("run.offsetHeight") > 0


@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_run_page_keeps_each_number_in_one_line_and_the_chart_fills_its_column(browser, tmp_path, width):
    item = scored(1)
    item.scores.append(
        Score("contested", 1.0, "run", item.run.id, label="1.2 against 1.3; 2.1 against 2.2; " * 3)
    )
    page = browser.open(written(tmp_path, [item]), width)
    rows = page.value(
        "[...document.querySelectorAll('.facts-list dt')].map((one) => [one.getBoundingClientRect().right, "
        "one.nextSibling.getBoundingClientRect().left, one.nextSibling.getClientRects()[0].height])"
    )
    assert rows
    for term_ends, number_begins, height in rows:
        assert term_ends <= number_begins
        assert height < 30
    numbers = page.value(
        "[...document.querySelectorAll('.numbers b')].map((one) => one.getClientRects().length)"
    )
    assert set(numbers) == {1}
    drawn, column = page.value(
        "['svg', 'figure'].map((one) => document.querySelector('.sides ' + one).clientWidth)"
    )
    assert drawn >= 0.75 * column


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    return written(tmp_path_factory.mktemp("outcomes"), map(outcome, range(13)))


def test_the_head_counts_how_runs_came_out_and_each_count_opens_its_runs(browser, outcomes):
    page = browser.open(outcomes)
    told = page.value(
        "[...document.querySelectorAll('.outcome')].map((one) => one.innerText.replaceAll('\\n', ' '))"
    )
    assert told == [
        "3 right 23\u00a0%",
        "8 wrong 62\u00a0%",
        "2 not judged 15\u00a0%",
        "2 not found: no passage that was retrieved states the reference",
        "2 misled by a passage that states the wrong answer",
        "2 contested: one passage states the wrong answer, another one the reference",
        "2 dropped: the reference was retrieved, and the model did not get it",
        "2 of 4 passages dropped by the guard; a reference stood in one of them in 2 runs",
    ]
    page.value("document.querySelectorAll('.outcome')[1].click()")
    assert page.value("count.textContent") == "8 of 13 runs"
    page.value("document.querySelectorAll('.outcome')[4].click()")
    assert page.value("count.textContent") == "2 of 13 runs"
    assert page.value("document.querySelector('.question').textContent") == "Who founded firm 1?"
    assert "misled" in page.value("only.innerText")
    page.value("only.querySelector('button').click()")
    assert page.value("count.textContent") == "13 runs"


def test_a_cause_that_no_run_has_is_counted_too_and_the_three_sums_lie_in_one_row(browser, tmp_path):
    write_html(overviews([outcome(0), outcome(2)]), tmp_path / "report.html")  # right, and contested
    page = browser.open((tmp_path / "report.html").as_uri(), 360, 800)
    text = page.value("outcomes.innerText")
    assert "1\nwrong" in text
    assert "0\nmisled by a passage" in text
    assert "0\nnot found" in text
    tops = page.value(
        "[...document.querySelectorAll('.sums button')].map((one) => one.getBoundingClientRect().top)"
    )
    assert len(set(tops)) == 1


def test_abstentions_are_no_wrong_answers_and_only_causes_that_blame_a_passage_blame_its_hop(
    browser, tmp_path
):
    asked = [
        *(
            (f"What is the price of model {one}?", "9 euro", "Cats purr.", "I don't know.")
            for one in range(3)
        ),
        ("Who leads the port?", "Mia Holt", "Tom Arl leads the port.", "Director Tom Arl."),
        ("Who leads the dock?", "Mia Holt", "Tom Arl leads the dock.", "However, Tom Arl."),
        ("Who leads the quay?", "Mia Holt", "Cats purr.", "Otto Berg."),
    ]
    with RagGuard("nano", store=tmp_path / "runs.db", scorers=["words"]) as rg:
        for question, reference, text, answer in asked:
            with rg.run(question, references=reference) as run:
                run.retrieved(question, [text])
                run.answered(answer)
    write_html(open_source(tmp_path / "runs.db").overviews(), tmp_path / "report.html")
    page = browser.open((tmp_path / "report.html").as_uri())
    told = page.value(
        "[...document.querySelectorAll('.outcome')].map((one) => one.innerText.replaceAll('\\n', ' '))"
    )
    assert told == [
        "0 right 0\u00a0%",
        "3 wrong 50\u00a0%",
        "3 abstained 50\u00a0%",
        "0 not judged 0\u00a0%",
        "4 not found: no passage that was retrieved states the reference",
        "2 misled by a passage that states the wrong answer",
    ]
    assert "brought the wrong answer in\n1\t6 runs\t2 runs" in page.value("culprits.innerText")
    assert "Cats purr." not in page.value("culprits.innerText")
    page.value("document.querySelectorAll('.outcome')[2].click()")
    assert page.value("count.textContent") == "3 of 6 runs"
    page = browser.open((tmp_path / "report.html").as_uri(), 360, 800)
    narrow = "Math.min(...[...document.querySelectorAll('.sums span')].map((one) => one.getBoundingClientRect().width))"
    assert page.value(narrow) > 50, "four sums have room for their words"


def test_the_head_names_the_documents_and_says_what_the_guard_cost(browser, outcomes):
    page = browser.open(outcomes)
    culprits = page.value("culprits.innerText")
    assert "old/handbook.md" in culprits
    row = "[...document.querySelectorAll('.culprits tr')].find((one) => one.innerText.startsWith('old/handbook.md'))"
    assert "4 runs" in page.value(f"{row}.innerText")  # misled and contested
    page.value(f"{row}.querySelector('button').click()")
    assert page.value("count.textContent") == "4 of 13 runs"
    junk = "The guard dropped 2 of 4 passages: in 2 runs a reference stood in one of them."
    assert junk in page.value("document.getElementById('junk').innerText")


def test_runs_that_need_a_person_come_first(browser, outcomes):
    page = browser.open(outcomes)
    asked = page.value("[...document.querySelectorAll('#runs .asked')].map((one) => one.textContent)")
    order = [int(one.removesuffix("?").split()[-1]) % 6 for one in asked]
    assert order == [1, 1, 2, 2, 4, 4, 3, 3, 5, 5, 0, 0, 0]
    assert page.value("document.querySelector('.question').textContent") == asked[0]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 1280, 1920])
def test_no_part_of_the_page_lies_over_another_and_no_text_is_in_a_tooltip_only(
    browser, outcomes, width, dark
):
    page = browser.open(outcomes, width, 900, dark=dark)
    page.value("for (const one of document.querySelectorAll('details')) one.open = true")
    # A list that is sticky must not cover what follows.
    lies_apart(page, width, ("body > header", ".answers", "#list", "#run", "footer"), (0, 400, 1200, 10**6))
    assert page.value("document.querySelectorAll('#pictures figure').length") >= 1
    lies_apart(page, width, ("#tiles", "#pictures", "#charts-of-all"))


def test_a_page_where_nothing_was_judged_says_so_and_has_no_count_of_the_misled(browser, tmp_path):
    page = browser.open(written(tmp_path, [outcome(5), outcome(11)]))
    text = page.value("outcomes.innerText")
    assert "2\nnot judged" in text
    assert "No answer was judged" in text
    assert "misled" not in text
    assert "0\nright" in text
    text = page.value("culprits.innerText + junk.innerText")
    assert "The answers of 2 runs were not judged" in text or "Nothing was judged" in text
    assert "No passage misleads" not in text
