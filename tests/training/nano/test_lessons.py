"""The lessons: the form in which a question is learnt is the form in which it is asked."""

from __future__ import annotations

import numpy as np

from ragguard.engines.nano.nano_engine import load_tokenizer
from ragguard.engines.prompts import load_prompts
from training.nano.batches import document_ids, make_batch, turn_ids
from training.nano.lessons import Level, make_row

TOKENIZER = load_tokenizer()


def test_a_taught_question_is_the_rendered_prompt() -> None:
    prompts = load_prompts("nano")
    met = set()
    for index in range(250):
        row = make_row(5, index, Level())
        for task, slots, answer in row.turns[:4]:
            rendered = prompts.render(task, row.passages, **slots)  # type: ignore[arg-type]
            assert document_ids(TOKENIZER, row.passages) + turn_ids(
                TOKENIZER, task, slots
            ) == TOKENIZER.encode_chat(rendered.messages)
            assert answer
            met.add(task)
    assert met == set(prompts.templates)


def test_nothing_taught_is_unknown() -> None:
    for step in range(4):
        batch = make_batch(1, step, 16, 256, Level())
        assert not (batch.ids[batch.branch >= 0] == TOKENIZER.unknown).any()
        assert not (batch.targets[batch.weights > 0] == TOKENIZER.unknown).any()


def test_questions_of_a_row_start_over_after_the_documents() -> None:
    batch = make_batch(1, 7, 8, 256, Level())
    for row in range(8):
        documents = int((batch.branch[row] == 0).sum())
        for number in range(1, int(batch.branch[row].max()) + 1):
            places = np.flatnonzero(batch.branch[row] == number)
            assert batch.positions[row, places[0]] == documents
            assert (np.diff(batch.positions[row, places]) == 1).all()


def test_rows_are_numbered_not_drawn() -> None:
    assert make_row(3, 17, Level()) == make_row(3, 17, Level())
    assert make_row(3, 17, Level()) != make_row(3, 18, Level())


def test_withheld_answer_stands_in_no_document() -> None:
    for index in range(300):
        row = make_row(6, index, Level())
        if len(row.passages) < 2:
            continue
        for task, _, answer in row.turns:
            if task == "abstention" and answer != "NO-RESPONSE":
                assert any(answer in passage for passage in row.passages) or " " in answer
