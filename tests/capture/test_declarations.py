"""What a user declared and capture does not find: the sentences name the way out."""

from __future__ import annotations

from ragguard.capture.declarations import unknown_key


def test_an_unknown_key_names_the_one_that_was_meant():
    sentence = unknown_key("ragguard_qestion", ["ragguard_question", "ragguard_run_id"])
    assert "'ragguard_qestion'" in sentence
    assert "did you mean 'ragguard_question'?" in sentence
    assert "did you mean" not in unknown_key("ragguard_qestion", ["ragguard_resume", "ragguard_run_id"])
