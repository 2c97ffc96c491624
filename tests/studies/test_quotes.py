"""The study of quotes on lines in CLAPnq's form."""

import json

from studies.quotes import read, table


def line(question, sentences, selected):
    passage = {"title": "The mill", "sentences": sentences}
    return json.dumps(
        {"input": question, "passages": [passage], "output": [{"selected_sentences": selected}]}
    )


def test_shares_are_of_questions_whose_sentence_people_selected(tmp_path):
    built = ["The mill stands by the river.", "It was built in 1922 by Ada Berg.", "Lemons are yellow."]
    path = tmp_path / "clapnq.jsonl"
    lines = [line("when was the mill built", built, [built[1]])] * 2 + [line("no one marked this", built, [])]
    path.write_text("\n".join(lines), encoding="utf-8")
    items = list(read(path))
    assert len(items) == 2
    shares = {row[0]: row[1:] for row in table(items).rows}
    assert shares["ragguard try"] == (1.0, 1.0)
    assert shares["the first sentence"] == (0.0, 0.0)
    assert [round(share, 3) for share in shares["chance"]] == [0.333, 0.333]
