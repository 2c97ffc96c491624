"""What the words of passages say of fourteen questions about two folders of notes: `examples/notes`, on which the rules
were written, and `club`, which was held out."""

from pathlib import Path

import pytest

from ragguard.cli.quotes import AskedQuestion
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
    assert (found.found, list(found.rivals)) == (True, [])


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
    assert not found.found
    assert found.missing == missing


def test_question_that_asks_for_a_number_is_not_answered_by_a_sentence_without_one():
    question = AskedQuestion("How many boats does the club own?")
    assert question.wants("The club owns three boats.")
    assert question.wants("The club owns boats.") is False
    assert AskedQuestion("Why?").wants("So.") is None
