"""The hand-written part of a study's page says no number that its results do not have.

Each number with a fraction or a percent sign must be one of the results, rounded as the page rounds it, or stand in a
table's notes or in the name of a row, as settings do. The paper's own numbers stand in brackets that say so. Many
results are alike when rounded to two digits: `CLAIMS` ties the sentences that a page rests on to their very cells.
"""

import json
import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "studies").glob("*.md"))
NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?: %| of 100)?")
OF_THE_PAPER = re.compile(r"\([^()]*the paper[^()]*\)|in the\s+paper \d[^,;)]*")
LINK = re.compile(r"\]\([^)]*\)")
CLAIMS = [
    # page, words of the sentence, then per number: table, row, column, factor
    ("belief", "Pearson {:.2f} for one hop", [("belief-utility", "ΔSePer, soft", "1 hop", 1)]),
    ("belief", "and {:.2f} for two", [("belief-utility", "ΔSePer, soft", "2 hops", 1)]),
    (
        "belief", "between five draws of everything is {:.3f}",
        [("belief-stability", "1 hop: 10 answers", "σ of SePer", 1)],
    ),
    (
        "belief", "with σ at {:.0f} % of the mean and the correlation differing by {:.1f} %",
        [
            ("belief-stability", "2 hops: 10 answers", "σ/mean of SePer", 100),
            ("belief-stability", "2 hops: 10 answers", "σ/mean of the correlation", 100),
        ],
    ),
    (
        "coverage", "τ is {:.2f}, outside its own interval of\n{:.2f} to {:.2f}",
        [("coverage-intervals", "Hard, pipelines, k = |Z*|: Cov(Z)", column, 1) for column in (1, 2, 3)],
    ),
    (
        "coverage", "(Hard, η = 5: {:.2f} instead of {:.2f})",
        [("coverage-thresholds", f"Hard: η = {eta}", "Cov(Z)", 1) for eta in (5, 3)],
    ),
    (
        "sets", "it is behind for K < N_p, by {:.2f}\n  ({:.2f} to {:.2f})",
        [("sets-differences", "Statements-n: T − nDCG@K of the list", column, -1) for column in (1, 3, 2)],
    ),
    (
        "belief", "the judge's relevance falls from {:.2f} to {:.2f}, ΔSePer to {:.2f}",
        [
            ("belief-utility", "Relevance of the passage (judge)", "1 hop", 1),
            ("belief-utility", "Relevance of the passage (judge)", "1 hop, half known", 1),
            ("belief-utility", "ΔSePer, soft", "1 hop, half known", 1),
        ],
    ),
    (
        "belief", "semantic entropy {:.2f} for one hop and {:.2f} for two, perplexity {:.2f} and {:.2f}",
        [
            ("belief-utility", method, hops, 1)
            for method in ("Semantic entropy", "Perplexity")
            for hops in ("1 hop", "2 hops")
        ],
    ),
    (
        "belief", "an unrelated passage ({:.2f} ± {:.2f}) and near misses ({:.2f} ± {:.2f} and {:.2f} ± {:.2f})",
        [
            ("belief-properties", f"1 hop: {kind}", column, 1)
            for kind in ("unrelated", "near miss, same relation", "near miss, same subject")
            for column in ("ΔSePer, soft", "±")
        ],
    ),
    (
        "belief", "exact match is ahead for one hop ({:.3f} beside {:.3f}) and with both hops ({:.3f} beside {:.3f})",
        [
            ("belief-utility", method, hops, 1)
            for hops in ("1 hop", "2 hops, also both")
            for method in ("Exact match", "ΔSePer, soft")
        ],
    ),
    (
        "distraction", "by {:.2f} for one hop and by {:.2f} to {:.2f} for two (p = .001)",
        [
            ("distraction-differences", than, f"{hops}, more by", 1)
            for than, hops in (("MRR", "one hop"), ("NDCG@K", "two hops"), ("MRR", "two hops"))
        ],
    ),
    (
        "distraction", "**HITS equals UDCG for one hop** ({:.3f} and {:.3f}), PREC comes close ({:.3f})",
        [("distraction-correlations", metric, "one hop", 1) for metric in ("HITS", "UDCG", "PREC")],
    ),
    (
        "distraction", "knows nothing of two** ({:.3f})", [("distraction-correlations", "eRAG", "two hops", 1)],
    ),
    (
        "distraction", "**UDCGθ is below UDCG for two hops** (by {:.2f})",
        [("distraction-differences", "UDCGθ", "two hops, more by", 1)],
    ),
    (
        "distraction", "One hop: {:.3f} beside {:.3f}.",
        [("distraction-correlations", metric, "one hop", 1) for metric in ("UDCG, judge's relevance", "UDCG")],
    ),
    (
        "distraction", "Two hops, judged for the whole question: {:.3f}.",
        [("distraction-correlations", "UDCG, judge's relevance", "two hops", 1)],
    ),
    (
        "distraction", "as an agent's steps are scored: {:.3f}.",
        [("distraction-correlations", "UDCG, hop by hop, judge's relevance", "two hops", 1)],
    ),
    (
        "sets", "{:.2f} beside F's {:.2f} (Parts), {:.2f} beside {:.2f} (Statements), {:.2f} beside {:.2f} (Hard)",
        [
            ("sets-correlations", f"{name}-n", measure, 1)
            for name in ("Parts", "Statements", "Hard")
            for measure in ("T", "F")
        ],
    ),
    (
        "sets", "by {:.2f} to {:.2f} (Parts), {:.2f} (Hops), {:.2f} (Hard, K ≥ N_p)",
        [
            ("sets-differences", f"{name}: T − nDCG@K of the list", "difference", 1)
            for name in ("Parts-n", "Parts-w", "Hops-w", "Hard-w")
        ],
    ),
    (
        "sets", "it is behind, by {:.2f} and {:.2f} for K ≥ N_p",
        [("sets-differences", f"{name}: F_e − F", "difference", -1) for name in ("Hops-w", "Parts-w")],
    ),
    (
        "likelihood", "AUC {:.3f} for unknown facts and {:.3f} for known ones, ΔSePer {:.3f} and {:.3f}",
        [
            ("likelihood-methods", number, kind, 1)
            for number in ("Δ likelihood", "ΔSePer")
            for kind in ("1 hop", "1 hop, known")
        ],
    ),
    (
        "likelihood", "SePer is {:.2f} for unknown facts and {:.2f} for known ones",
        [("likelihood-reading", kind, "with what is needed", 1) for kind in ("1 hop", "1 hop, known")],
    ),
    (
        "distractors", "nano's {:.0f} ({:.0f} to {:.0f})",
        [("distractors-strength", "ragguard/nano", column, 1) for column in ("difference", "low", "high")],
    ),
    (
        "distractors", "with 10 answers it is off by {:.3f} in the mean, with 20 by {:.3f}",
        [("distractors-sampling", answers, "mean error", 1) for answers in ("10", "20")],
    ),
    (
        "distractors", "(root mean square {:.3f}, by chance alone {:.3f})",
        [("distractors-sampling", "20", column, 1) for column in ("root mean square", "by chance alone")],
    ),
    (
        "distractors", "{:.1f} % right beside four weak ones and {:.1f} % beside four hard ones",
        [("distractors-strength", "ragguard/nano", f"{kind}: correct, %", 1) for kind in ("weak", "hard")],
    ),
]  # fmt: skip


def tables_of(page):
    """Returns the tables of all results that stand on a page."""
    text = (ROOT / "docs" / "studies" / f"{page}.md").read_text()
    return [
        table for study in re.findall(r"<!-- study: (\w+) -->", text) for table in results_of(study)["tables"]
    ]


def results_of(study):
    return json.loads((ROOT / "studies" / "results" / f"{study}.json").read_text())


def numbers_in(value):
    """Yields every number within plain data."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from numbers_in(item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)


def written(text):
    """Returns the hand-written statements of a page about its own results."""
    statements = text.partition("## What is not done")[0].partition("<!-- study:")[0]
    return LINK.sub("]", OF_THE_PAPER.sub("", statements))


def unknown_numbers(statements, tables):
    """Returns the numbers of a text that no table has, as they stand there."""
    measured = [abs(number) for table in tables for number in numbers_in(table["rows"])]
    labels = [str(row[0]) for table in tables for row in table["rows"]]
    notes = " ".join([note for table in tables for note in table["notes"]] + labels)
    unknown = []
    for match in NUMBER.finditer(statements):
        digits, _, unit = match[0].partition(" ")
        if "." not in digits and not unit:
            continue  # a count, such as of questions
        places = len(digits.partition(".")[2])
        scales = (1, 100) if unit else (1,)
        same = any(f"{number * scale:.{places}f}" == digits for number in measured for scale in scales)
        if not same and digits not in notes:
            unknown.append(match[0])
    return unknown


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_numbers_of_a_page_are_in_its_results(page):
    found = unknown_numbers(written(page.read_text()), tables_of(page.stem))
    assert not found


@pytest.mark.parametrize(
    ("page", "sentence", "cells"), CLAIMS, ids=[f"{claim[0]}: {claim[1][:30]}" for claim in CLAIMS]
)
def test_a_claim_has_the_numbers_of_its_cells(page, sentence, cells):
    tables = {table["name"]: table for table in tables_of(page)}
    values = []
    for name, row, column, factor in cells:
        (cell,) = [
            line[column if isinstance(column, int) else tables[name]["columns"].index(column)]
            for line in tables[name]["rows"]
            if line[0] == row
        ]
        values.append(factor * cell)
    text = (ROOT / "docs" / "studies" / f"{page}.md").read_text()
    assert " ".join(sentence.format(*values).split()) in " ".join(text.split())


def test_the_error_rate_of_comparisons_is_the_measured_one():
    results = json.loads((ROOT / "benchmarks" / "results" / "comparison.json").read_text())
    six = [100 * row[4] for row in results["rows"] if row[3] == 6]
    more = [100 * row[4] for row in results["rows"] if row[3] > 6]
    page = (ROOT / "docs" / "tutorial" / "compare.md").read_text()
    for sentence in (
        f"in {min(more):.1f} to {max(more):.1f} % of the pairs, on average in {np.mean(more):.1f} %",
        f"at six questions in {min(six):.1f} to {max(six):.1f} %",
        "in {:.0f} % of the pairs at 100 questions and in {:.0f} % at 200".format(
            *(100 * found for found, _ in results["power"].values())
        ),
        "in {:.0f} % and {:.0f} %".format(*(100 * best for _, best in results["power"].values())),
    ):
        assert sentence in page


def test_the_errors_of_beliefs_are_the_measured_ones():
    results = json.loads((ROOT / "benchmarks" / "results" / "belief_errors.json").read_text())
    rows = [
        row for rows in results["sets"].values() for row in rows if "hard" in row[0] or "entropy" in row[0]
    ]
    ratios, held = [row[2] for row in rows], [100 * row[3] for row in rows]
    page = " ".join((ROOT / "docs" / "concepts.md").read_text().split())
    assert f"were {min(ratios):.2f} to {max(ratios):.2f} times the real spread" in page
    assert f"{min(held):.0f} to {max(held):.0f} % of the 95 % intervals" in page


def test_a_number_that_was_not_measured_is_found():
    tables = [{"rows": [["a", 0.8765], ["b", None]], "notes": ["at 3.5 of 5"]}]
    assert unknown_numbers("0.88, 88 %, 3.5, and 7 questions", tables) == []
    assert unknown_numbers("0.87, 89 %", tables) == ["0.87", "89 %"]
