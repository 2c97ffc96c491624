"""What the words of passages say of fourteen questions about two folders of notes: `examples/notes`, on which the rules
were written, and `club`, which was held out."""

from pathlib import Path

import pytest

from ragguard.cli.quotes import AskedQuestion, Fit, ground
from ragguard.records import Passage
from ragguard.text.chunks import HEADING
from ragguard.text.folder import read_folder
from ragguard.text.search import Search

HERE = Path(__file__).parent
NOTES, CLUB = HERE.parents[1] / "examples" / "notes", HERE / "club"


@pytest.fixture(scope="module")
def searches():
    return {folder: Search(read_folder(folder).passages) for folder in (NOTES, CLUB)}


def evidence(search, text):
    return AskedQuestion(text, search).evidence(search(text, 3))


@pytest.mark.parametrize(("folder", "text", "answer"), [
    (NOTES, "Who keeps the keys of the cupboard on the second floor?", "Marek Dolan"),
    (NOTES, "How many seats does Lynx have?", "seats: 20"),
    (NOTES, "What caused the last outage?", "full disk"),
    (NOTES, "When does security support for version 3 end?", "June 2026"),
    (NOTES, "Who restored the office building?", "Ines Calder"),
    (CLUB, "Where are the life jackets kept?", "in the shed"),
    (CLUB, "Who teaches the course for beginners?", "Ruth Adeyemi"),
    (CLUB, "How much did the repair of Petrel cost?", "2,300 pounds"),
    (CLUB, "How far ahead can a boat be booked?", "three weeks"),
    (CLUB, "What channel can the harbour master be called on?", "channel 12"),
])  # fmt: skip
def test_the_sentence_that_answers_is_quoted_and_none_disagrees(searches, folder, text, answer):
    found = evidence(searches[folder], text)
    assert answer in found.best.text
    assert (found.fit, list(found.rivals)) == (Fit.GOOD, [])


_SLIPWAY = (
    "The slipway was relaid in May 2017 by Harrow Brothers. The work cost 12,400 euro and lasted six weeks."
)
_OFFICERS = "The treasurer, Grete Holm, will present the accounts on 30 January 2025. She keeps the books."


@pytest.mark.parametrize(("text", "question", "quote", "fit"), [
    (_SLIPWAY, "How much did the slipway cost?", "The work cost 12,400 euro and lasted six weeks.", Fit.GOOD),
    (_SLIPWAY, "What did the work on the slipway cost?", "The work cost 12,400 euro and lasted six weeks.", Fit.GOOD),
    (_SLIPWAY, "When was the slipway relaid?",
     "The slipway was relaid in May 2017 by Harrow Brothers.", Fit.GOOD),
    (_OFFICERS, "When did Grete Holm join?",
     "The treasurer, Grete Holm, will present the accounts on 30 January 2025.", Fit.POOR),
    (_OFFICERS, "When does Grete Holm present the accounts?",
     "The treasurer, Grete Holm, will present the accounts on 30 January 2025.", Fit.GOOD),
])  # fmt: skip
def test_a_sentence_with_what_is_asked_for_is_preferred_and_a_name_by_itself_answers_nothing(
    text, question, quote, fit
):
    passage = Passage(text, "notes.md#1")
    asked = AskedQuestion(question, Search([passage]))
    found = asked.evidence([passage])
    assert (found.best.text, found.fit) == (quote, fit)
    assert asked.best_part(passage) == quote, "the table shows the sentence that is quoted"


@pytest.mark.parametrize(("question", "sentence", "words"), [
    ("Who took over from Miriam Oakes?", "Miriam Oakes took over from Tomas Rehn.", "over from"),
    ("Who took over from Tomas Rehn?", "Miriam Oakes took over from Tomas Rehn.", ""),
    ("Which boat was sold by Ada Berg?", "Petrel was sold by Emil Ros to Ada Berg.", "sold by"),
    ("Who took over from Ada Berg?", "Emil Ros came from Oslo.", ""),
])  # fmt: skip
def test_a_fact_that_is_the_other_way_round_is_noticed(question, sentence, words):
    assert AskedQuestion(question).reversed_by(sentence) == words


@pytest.mark.parametrize(("folder", "text", "stated"), [
    (NOTES, "How many days of paid leave does a full-time employee get?", {"25 days", "28 days"}),
    (CLUB, "How much does an adult pay a year?", {"180 pounds", "210 pounds"}),
])  # fmt: skip
def test_an_old_text_and_a_new_one_are_both_shown(searches, folder, text, stated):
    found = evidence(searches[folder], text)
    texts = [found.best.text, *(rival.text for rival in found.rivals)]
    assert all(any(part in sentence for sentence in texts) for part in stated)
    assert len(texts) == len(stated)


@pytest.mark.parametrize(("folder", "text", "missing"), [
    (NOTES, "Where can I park my car?", ["park", "car"]), (CLUB, "What time does the bar close?", ["bar", "close"]),
])  # fmt: skip
def test_what_is_not_there_is_not_answered(searches, folder, text, missing):
    found = evidence(searches[folder], text)
    assert found.fit is Fit.NONE
    assert found.missing == missing


def test_question_that_asks_for_a_number_is_not_answered_by_a_sentence_without_one():
    question = AskedQuestion("How many boats does the club own?")
    assert question.wants("The club owns three boats.")
    assert question.wants("The club owns boats.") is False
    assert AskedQuestion("Why?").wants("So.") is None


@pytest.mark.parametrize(("folder", "text", "nearest", "missing"), [
    (NOTES, "Who renovated the office building?", "restored in 1998", ["renovated"]),
    (NOTES, "When do we ship releases?", "go out on Tuesdays", ["ship"]),
    (CLUB, "Who donated Curlew?", "given to us by the family Hartog", ["donated"]),
    (CLUB, "Where do I report damage?", "reported to Joan Whitlock", ["damage"]),
])  # fmt: skip
def test_a_text_that_says_it_in_other_words_is_the_nearest_and_not_called_absent(
    searches, folder, text, nearest, missing
):
    found = evidence(searches[folder], text)
    assert (found.fit, found.missing) == (Fit.POOR, missing)
    assert nearest in found.best.text


def search_of(*texts):
    return Search([
        Passage(f"{heading}\n{text}", f"{place}.md#1", metadata={HEADING: heading})
        for place, (heading, text) in enumerate(texts)
    ])  # fmt: skip


PORTS = search_of(
    ("Port of Torsby", "The quay is 85 metres long."), ("Port of Lindvik", "There are 140 parking places.")
)


@pytest.mark.parametrize("town", ["Torsby", "torsby"])
def test_a_word_that_only_another_passage_has_is_said(town):
    found = evidence(PORTS, f"How many parking places does the Port of {town} have?")
    assert "140 parking places" in found.best.text
    assert found.elsewhere == [town]


def test_a_name_that_no_passage_has_is_not_there_although_its_first_word_is():
    found = evidence(PORTS, "How long is the quay at Port Granvik?")
    assert (found.fit, found.missing) == (Fit.NONE, ["Granvik"])


def test_of_a_sentence_with_the_subject_only_a_neighbour_that_says_more_is_taken():
    halden = search_of(
        (
            "Halden Ferries",
            "Halden Ferries was begun in 1974 with one boat. It has 46 hands; 12 work in summer only.",
        )
    )
    found = evidence(halden, "How many people work for Halden Ferries?")
    assert "46 hands" in found.best.text
    assert "46 hands" in evidence(halden, "How many hands does Halden Ferries have?").best.text
    only = evidence(halden, "How many cars has Halden Ferries?")
    assert only.question.open_words(only.best) == ["cars"]


def test_a_number_of_something_else_is_no_count():
    berths = Passage("The harbour was dug in 1871. It has 112 berths, and six large ones.", id="harbour.md#1")
    fees = Passage("A berth costs 340 euros a season.", id="harbour.md#2")
    question = AskedQuestion("How many berths does the harbour have?")
    found = question.evidence([berths, fees])
    assert found.best.text == "It has 112 berths, and six large ones."
    holders = [
        ground(f"It has {number} berths.", question, found, [berths, fees]).sentence for number in (340, 112)
    ]
    assert holders[0] is None
    assert holders[1].text == found.best.text
    assert question.counts("berths: 112; depth: 3 m") == {"112"}


def test_numbers_in_words_disagree_as_figures_do():
    old, new = (
        Passage(f"Boats are booked at most {days} days ahead.", id=f"{days}.md#1")
        for days in ("seven", "fourteen")
    )
    found = AskedQuestion("How far ahead can boats be booked?").evidence([old, new])
    assert [found.best.passage, *(rival.passage for rival in found.rivals)] == [old, new]


@pytest.mark.parametrize(("question", "text", "missing"), [
    ("Which one applies before tax?", "Apply the discount before tax.", []),
    ("挪威的首都是哪一座城市?", "挪威的首都奥斯陆位于峡湾。", ["座", "城", "市"]),
])  # fmt: skip
def test_only_words_that_a_text_could_have_are_missing(question, text, missing):
    assert AskedQuestion(question).evidence([Passage(text)]).missing == missing
