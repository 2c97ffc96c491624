"""What led to a hop's query: words from passages of earlier hops, ties named as ties, and nothing invented."""

import io
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from ragguard import Passage, RagGuard, RetrievalStep, Run, read_runs, write_runs
from ragguard.analysis.hops import hop_table
from ragguard.facts.leads import _words, led_from, with_leads
from ragguard.facts.run_view import RunView
from ragguard.records import Lead, LeadSource
from studies.led_by import USELESS, judge, runs, table
from studies.readers.multi_hop import half, read

QUESTION = "Which town is home to the bank that lends to the firm of Ursula Almberg?"
FIRM = "Almberg Traders was founded by Ursula Almberg in Oslo."
BANK = "Almberg Traders borrows from Zangard Bank."
TOWN = "Zangard Bank stands in East Dundale, near the old mill."


def run_of(*hops, question=QUESTION):
    """Returns a run of hops, each a query and the texts that it found; a hop with a turn of its own as a third."""
    return with_leads(
        Run(
            id="run",
            question=question,
            steps=[
                RetrievalStep(
                    id=f"step-{at}", index=at, turn=turn[0] if turn else at, query=query,
                    passages=[Passage(text, id=f"{at}-{rank}") for rank, text in enumerate(texts, 1)],
                )
                for at, (query, texts, *turn) in enumerate(hops)
            ],
        )
    )  # fmt: skip


def printed(run):
    console = Console(width=200, file=io.StringIO())
    console.print(hop_table(RunView(run)))
    return console.file.getvalue()


def led_by(run, at):
    return [
        (lead.words, [(one.step_id, one.position) for one in lead.sources]) for lead in run.steps[at].led_by
    ]


def test_each_query_names_the_passage_whose_words_it_took():
    run = run_of(
        ("firm of Ursula Almberg", [TOWN.replace("Zangard", "Corwell"), FIRM]),
        ("bank of Almberg Traders", [BANK]),
        ("Where is Zangard Bank?", [TOWN]),
    )
    assert [step.led_by == [] for step in run.steps] == [True, False, False]
    assert led_by(run, 1) == [("Almberg Traders", [("step-0", 2)])]
    assert led_by(run, 2) == [("Zangard Bank", [("step-1", 1)])]
    assert run.steps[2].led_by[0].sources[0].passage_id == "1-1"


def test_words_of_the_question_and_of_earlier_queries_lead_to_nothing():
    run = run_of(("Ursula Almberg", [FIRM]), ("Ursula Almberg firm", [FIRM]), ("the firm of Almberg", [FIRM]))
    assert [step.led_by for step in run.steps] == [[], [], []]


def test_a_tie_of_hops_is_named_as_one():
    run = run_of(("one", [BANK]), ("two", [f"{BANK} So it is."]), ("Zangard Bank", [TOWN]))
    (lead,) = run.steps[2].led_by
    assert lead.steps == ["step-0", "step-1"]
    assert led_from(run.steps[2]) == []
    shown = printed(run)
    assert "its query took “Zangard Bank” from passage 1.1 or 2.1 (nobody can say which)" in shown


def test_a_passage_that_is_found_again_leads_to_nothing_more():
    run = run_of(("one", [BANK]), ("two", [BANK]), ("Zangard Bank", [TOWN]))
    assert led_by(run, 2) == [("Zangard Bank", [("step-0", 1)])]
    assert led_from(run.steps[2]) == ["step-0"]
    at_once = run_of(("one", [BANK], 0), ("two", [BANK], 0), ("Zangard Bank", [TOWN], 1))
    assert led_from(at_once.steps[2]) == []


def test_the_passage_that_answers_its_own_query_is_the_likelier_source():
    run = run_of(
        ("mill", ["Zangard Bank has an owner."]),
        ("Almberg Traders borrows", [BANK]),
        ("Zangard Bank", [TOWN]),
    )
    assert run.steps[2].led_by[0].steps == ["step-1"]
    assert "↳ its query took “Zangard Bank” from passage 2.1" in printed(run)


def test_two_names_of_two_hops_are_two_leads():
    run = run_of(
        ("a", ["It was Ada Berg who did it."]),
        ("b", ["Nordvik is the place."]),
        ("Did Ada Berg live in Nordvik?", []),
    )
    assert sorted(led_by(run, 2)) == [("Ada Berg", [("step-0", 1)]), ("Nordvik", [("step-1", 1)])]
    assert sorted(led_from(run.steps[2])) == ["step-0", "step-1"]


def test_further_words_that_name_nothing_led_nowhere():
    texts = ["It was Ada Berg who did it."], ["It is an Administrative place."]
    run = run_of(("a", texts[0]), ("b", texts[1]), ("Ada Berg, administrative", []))
    assert len(run.steps[2].led_by) == 2
    assert led_from(run.steps[2]) == [run.steps[2].led_by[0].steps[0]]


def test_hops_of_one_turn_lead_to_nothing_in_each_other():
    run = run_of(("a", [BANK], 0), ("Zangard Bank", [TOWN], 0), ("Zangard Bank again", [], 1))
    assert run.steps[1].led_by == []
    assert run.steps[2].led_by == []  # the query of the turn before has the words already


def test_only_what_the_model_got_leads_on():
    run = run_of(("a", [FIRM]), ("Zangard Bank", [TOWN]))
    run.steps[0].candidates = [Passage(BANK), *run.steps[0].passages]
    run.steps[1].led_by = None
    assert with_leads(run).steps[1].led_by == []


@pytest.mark.parametrize(
    ("passage", "query", "words"),
    [
        ("Die Bank heißt Müller-Höhn.", "Wo liegt muller-hohn?", "muller-hohn"),  # accents and case
        ("The river is 1.240 km long.", "what has 1240 km?", None),  # one number, written otherwise
        ("The depth is 3117 m.", "lake of depth 3117", "3117"),
        ("the yellow lemons grow here", "why are yellow lemons sour", "yellow lemons"),  # two new words
        ("the yellow lemons grow here", "why is it yellow", None),  # one word without a capital is chance
        ("張偉明創立了公司。", "張偉明在哪裡？", "張偉明"),
        ("Ada’s firm", "what did Ada do", "Ada"),
    ],
)
def test_words_in_other_scripts_and_spellings(passage, query, words):
    found = led_by(run_of(("start", [passage]), (query, []), question="unrelated?"), 1)
    assert [lead[0] for lead in found] == ([] if words is None else [words])


@pytest.mark.parametrize(
    "hops",
    [
        [],
        [("only", [FIRM])],
        [("", []), ("", [])],
        [("a", ["", "   "]), ("Zangard Bank", [""])],
        [("Zangard Bank", [BANK])] * 50,
    ],
)
def test_runs_without_leads_have_empty_lists(hops):
    assert all(step.led_by == [] for step in run_of(*hops).steps)


texts = st.text(st.sampled_from("AB ab1.é張"), max_size=24)


@given(st.lists(st.tuples(texts, st.lists(texts, max_size=3)), max_size=6), texts)
def test_every_lead_is_true_of_the_texts(hops, question):
    hops = [(query, found, at // 2) for at, (query, found) in enumerate(hops)]
    run = run_of(*hops, question=question)
    steps = {step.id: step for step in run.steps}
    for step in run.steps:
        for lead in step.led_by:
            assert lead.words in step.query
            assert {word.form for word in _words(lead.words)} - {word.form for word in _words(question)}
            for source in lead.sources:
                earlier = steps[source.step_id]
                assert earlier.turn < step.turn
                assert earlier.passages[source.position - 1].id == source.passage_id


def test_a_stored_run_has_its_leads_and_a_file_keeps_those_it_is_given(tmp_path):
    own = [Lead("as the agent logged it", [LeadSource("a", 1)])]
    with RagGuard(engine=None, store=tmp_path / "s.db") as rg:
        with rg.run(QUESTION) as run:
            run.retrieved("firm of Ursula Almberg", [Passage(FIRM)])
            run.retrieved("bank of Almberg Traders", [Passage(BANK)])
        rg.flush(timeout=20)
        (stored,) = rg.runs()
    assert [lead.words for lead in stored.steps[1].led_by] == ["Almberg Traders"]
    stored.steps[1] = replace(stored.steps[1], led_by=own)
    write_runs([stored], tmp_path / "runs.jsonl")
    (again,) = read_runs(tmp_path / "runs.jsonl")
    assert again.steps[1].led_by == own
    assert with_leads(again).steps[1].led_by == own


def part(query, answer, paragraph):
    return {"question": query, "answer": answer, "paragraph_support_idx": paragraph}


def test_the_study_counts_right_tied_and_wrong_leads(tmp_path):
    path = tmp_path / "questions.jsonl"
    first = {
        "question": "Where was the founder of Corwell Mills born?", "answer": "Oslo", "answer_aliases": [],
        "paragraphs": [
            {"idx": at, "title": f"Title {at}", "paragraph_text": text, "is_supporting": at < 2}
            for at, text in enumerate(["Corwell Mills was founded by Ursula Almberg.", "Ursula Almberg is of Oslo.",
                                       *(f"Filler {at} says nothing." for at in range(8))])
        ],
        "question_decomposition": [part("Corwell Mills >> founder", "Ursula Almberg", 0),
                                   part("#1 >> born", "Oslo", 1)],
    }  # fmt: skip
    second = first | {"question": "And where else?"}
    path.write_text("".join(json.dumps(one) + "\n" for one in (first, second)))
    questions = list(read(path))
    assert questions[0].parts[1].query == "Ursula Almberg >> born"
    assert len(half(questions, 0)) + len(half(questions, 1)) == 2
    rows = {row[0]: row[1:] for row in table(questions, orders=2).rows}
    assert set(rows) == set(USELESS)
    assert rows["more of this question's"][:2] == (4, 1.0)
    (run, needed), *_ = runs(questions, USELESS[1], 1)
    dependent = next(step for step in with_leads(run).steps if step.id == "part-1")
    dependent.led_by = [Lead("x", [LeadSource("useless", 1)])]
    assert judge(dependent, needed["part-1"]) == "wrong"
