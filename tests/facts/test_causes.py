"""What runs count as: noted with their scores, counted over many runs, compared, and held to bounds."""

import json
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import replace

import pytest
from scipy.stats import binomtest
from support.commands import ragguard
from support.stored import scored_store

from ragguard.analysis.cause_tables import cause_changes, count_tables, two_sided
from ragguard.analysis.gate_check import check
from ragguard.errors import UnknownName
from ragguard.facts.causes import CAUSES, URGENCY, CauseCounts, note_of
from ragguard.facts.run_view import RunView
from ragguard.records import Passage, RetrievalStep, Run, Score, ScoredRun
from ragguard.storage.files.runfile import write_scores
from ragguard.storage.source import open_source
from ragguard.storage.sqlite.reader import StoreReader
from ragguard.storage.sqlite.store import Store

GOLD = Passage("Ada Berg was born in East Dundale.", id="gold")
FALSE = Passage("Ada Berg was born in West Ashwick.", id="false")
IDLE = Passage("Lemons are yellow.", id="idle")
RIGHT, WRONG = "East Dundale", "West Ashwick"


def scored_run(id, passages, answer, verdict, *, tool="search", name="", question="", status="ok"):
    """Returns a run of one hop with its scores; a false passage is judged relevant."""
    passages = [Passage(one.text, id=one.id) for one in passages]
    step = RetrievalStep(
        f"{id}-s", id, 0, 0, query="where?", passages=passages, candidates=passages, tool=tool
    )
    run = Run(id, question or f"where was it {id}?", [RIGHT], answer, [step], name=name, status=status)
    scores = (
        [Score("answer_correct", float(verdict == "correct"), "run", id, label=verdict)] if verdict else []
    )
    scores += [
        Score("utility", 0.9 if one.id != "idle" else 0.0, "passage", id, step.id, position=rank)
        for rank, one in enumerate(passages, 1)
    ]
    return ScoredRun(run, scores)


def some_runs():
    return [
        scored_run("a", [GOLD, IDLE], RIGHT, "correct", name="one"),
        scored_run("b", [FALSE, IDLE], WRONG, "wrong", name="one"),
        scored_run("c", [FALSE, IDLE], WRONG, "wrong", name="two", tool="web"),
        scored_run("d", [FALSE, GOLD], WRONG, "wrong", name="two"),
        scored_run("e", [IDLE], WRONG, "wrong"),
        scored_run("f", [IDLE], WRONG, ""),
    ]


@pytest.fixture
def store(tmp_path):
    return scored_store(tmp_path / "s.db", some_runs())


def test_a_run_and_its_documents_count_once_each():
    note = note_of(RunView(some_runs()[3].run, some_runs()[3].scores))
    assert note.cause == "contested"
    assert {one.id: (one.read, one.used, one.misled, one.contested) for one in note.documents} == {
        "false": (True, True, False, True),
        "gold": (True, True, False, True),
    }
    assert note.retrievers == ["search"]


def test_a_store_counts_its_runs_by_cause_document_retriever_and_name(store):
    counts = open_source(store).cause_counts()
    assert counts.sentence == (
        "6 runs: 1 right, 1 not found, 2 misled (by 1 document), 1 contested, 1 not judged"
    )
    assert [(one.id, one.misled, one.runs) for one in counts.misleading] == [("false", 2, 3)]
    assert {one.id for one in counts.contested} == {"false", "gold"}
    assert [(one.id, one.read, one.used) for one in counts.unused] == [("idle", 5, 0)]
    found = counts.as_dict()
    assert found["documents_left_out"] == {"misleading": 0, "contested": 0, "unused": 0}
    assert found["by_name"] == {"one": {"right": 1, "misled": 1}, "two": {"misled": 1, "contested": 1}}
    assert found["by_retriever"]["web"] == {"misled": 1}
    with closing(StoreReader(store)) as reader:
        assert Counter(run.cause for run in reader.runs()) == counts.causes


def test_plain_data_hold_all_groups_and_say_how_many_documents_they_leave_out(tmp_path):
    names = [f"name {number}" for number in range(30)]
    idle = [replace(IDLE, id=f"idle {number}") for number in range(103)]
    runs = [scored_run(name, idle, WRONG, "wrong", name=name, tool=name) for name in names]
    counts = open_source(scored_store(tmp_path / "s.db", runs)).cause_counts()
    found = counts.as_dict()
    assert {*found["by_name"]} == {*found["by_retriever"]} == {*names}
    assert len(found["documents"]["unused"]) == 100
    assert found["documents_left_out"]["unused"] == 3
    tables = {table.name: table for table in count_tables(counts)}
    assert [tables[name].notes for name in ("unused", "by-retriever")] == [
        ("and 98 more: --json",),
        ("and 20 more",),
    ]


def test_a_note_is_kept_with_the_run_and_found_again_when_scores_have_come(store):
    with closing(sqlite3.connect(store)) as db:
        db.execute("UPDATE causes SET cause = 'nothing_read' WHERE run = 1")  # shows whether a note is read
        db.commit()
    assert open_source(store).cause_counts().causes["nothing_read"] == 1
    with closing(sqlite3.connect(store)) as db:
        db.execute("UPDATE causes SET scored = 0")
        db.commit()
    assert open_source(store).cause_counts().causes["nothing_read"] == 0


def test_a_store_of_an_older_version_is_counted_too(store):
    with closing(sqlite3.connect(store)) as db:
        db.execute("DROP TABLE causes")
        db.commit()
    assert open_source(store).cause_counts().causes["misled"] == 2
    Store(store).close()  # a writer makes the table
    with closing(StoreReader(store)) as reader:
        assert [run.cause for run in reader.runs()] == [""] * 6
    assert open_source(store).cause_counts().causes["misled"] == 2


def test_a_deleted_run_counts_no_more(store):
    with closing(Store(store)) as writing:
        writing.delete("b")
    assert open_source(store).cause_counts().causes["misled"] == 1


@pytest.mark.parametrize(
    ("run", "cause"),
    [
        (Run("r", "who?", ["Ada"], status="open"), "open"),
        (Run("r", "who?", ["Ada"]), "unjudged"),
        (Run("r", "", None, "Ada"), "unjudged"),
    ],
)
def test_runs_without_a_judgement_are_rows_of_their_own(run, cause):
    assert note_of(RunView(run)).cause == cause


def test_a_run_of_a_score_file_is_not_said_to_have_read_nothing():
    judged = [Score("answer_correct", 0.0, "run", "r", label="wrong")]
    assert note_of(RunView(Run("r", "who?"), judged)).cause == "unexplained"
    assert note_of(RunView(Run("r", "who?", ["Ada"], "Bo"), judged)).cause == "nothing_read"


def test_report_begins_with_the_causes_and_lists_the_runs_of_one(store):
    printed = ragguard("report", store).output
    assert printed.startswith("6 runs: 1 right, 1 not found, 2 misled (by 1 document)")
    found = json.loads(ragguard("report", store, "--json").stdout)
    assert found["causes"]["causes"] == {
        "right": 1, "not_found": 1, "misled": 2, "contested": 1, "unjudged": 1,
    }  # fmt: skip
    misled = json.loads(ragguard("report", store, "--json", "--cause", "misled").stdout)
    assert [one["id"] for one in misled["runs"]] == ["b", "c"]
    wrong = ragguard("report", store, "--cause", "mislead")
    assert (wrong.exit_code, "--cause" in wrong.stderr) == (2, True)


def sides(tmp_path, before, after):
    """Returns two stores of the same questions; each side says which of them are misled."""
    paths = []
    for side, misled in (("before", before), ("after", after)):
        runs = [
            scored_run(f"{side}-{at}", [FALSE], WRONG, "wrong", question=f"question {at}?")
            if bad
            else scored_run(f"{side}-{at}", [GOLD], RIGHT, "correct", question=f"question {at}?")
            for at, bad in enumerate(misled)
        ]
        paths.append(scored_store(tmp_path / f"{side}.db", runs))
    return paths


def test_a_comparison_says_which_causes_came_and_the_gate_holds_their_shares(tmp_path):
    before, after = sides(tmp_path, [False] * 20, [True] * 6 + [False] * 14)
    checked = check(before, after, ["misled > 0.1", "right < -0.5"])
    assert [(gate.metric, gate.passed) for gate in checked.gates] == [("misled", False), ("right", True)]
    (misled,) = [one for one in checked.found.causes if one.cause == "misled"]
    assert (misled.before, misled.after, misled.came, misled.went) == (0.0, 0.3, 6, 0)
    assert misled.p == pytest.approx(2 / 2**6)
    assert misled.low < misled.difference < misled.high
    (table,) = [one for one in checked.tables() if one.name == "causes"]
    assert "misled" in table.markdown()
    assert checked.as_dict()["causes"][0]["cause"] == "right"
    with pytest.raises(UnknownName, match="mislead"):
        check(before, after, "mislead > 0.1")


def test_score_files_have_no_causes_to_compare(tmp_path):
    paths = []
    for side in "ab":
        paths.append(tmp_path / f"{side}.jsonl")
        write_scores([scored_run(f"{side}1", [FALSE], WRONG, "wrong", question="who?")], paths[-1])
    assert check(*paths).found.causes == []


def test_questions_with_several_runs_count_by_their_shares():
    (right, misled) = cause_changes(
        {"q": Counter(right=2, misled=2), "only": Counter(right=1)},
        {"q": Counter(misled=4), "unjudged": Counter()},
        ["q", "unjudged"],
    )
    assert (right.before, right.after, right.went, misled.came, misled.questions) == (0.5, 0.0, 1, 1, 1)


@pytest.mark.parametrize(("came", "went"), [(0, 0), (6, 0), (3, 9), (10, 10), (400, 520)])
def test_p_is_that_of_an_exact_sign_test(came, went):
    expected = binomtest(came, came + went).pvalue if came + went else 1.0
    assert two_sided(came, went) == pytest.approx(expected)


@pytest.mark.parametrize("questions", [5, 8, 14, 40])
def test_the_interval_of_a_share_holds_0_as_long_as_the_exact_test_does_not_reject_it(questions):
    right, wrong = Counter(right=1), Counter(misled=1)
    for came in range(questions + 1):
        for went in range(questions + 1 - came):
            same = questions - came - went
            sides = (
                dict(enumerate([*[wrong] * came, *[right] * (went + same)])),
                dict(enumerate([*[right] * came, *[wrong] * went, *[right] * same])),
            )
            change = cause_changes(*sides, range(questions))[0]
            assert (change.low <= 0 <= change.high) == (change.p > 0.05)


def test_every_cause_has_words_and_no_runs_are_no_table_of_groups():
    counts = CauseCounts()
    assert (counts.sentence, counts.rows) == ("0 runs", [])
    (table,) = count_tables(counts)
    assert table.rows == ()
    for cause in CAUSES:
        counts.causes[cause] += 2
    assert len(count_tables(counts)[0].rows) == len(CAUSES)


def test_each_cause_has_a_place_in_the_order_in_which_a_person_should_look():
    assert sorted(URGENCY) == sorted(CAUSES)
    assert URGENCY.index("misled") < URGENCY.index("unjudged") < URGENCY.index("right")
