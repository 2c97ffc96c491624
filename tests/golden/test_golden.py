"""What is said where a golden file does not hold any more."""

import pytest
from support import golden


@pytest.fixture
def kept(tmp_path, monkeypatch):
    monkeypatch.setattr(golden, "DATA", tmp_path)
    monkeypatch.delenv("RAGGUARD_WRITE_GOLDEN", raising=False)
    return tmp_path


def test_a_difference_is_shown_as_a_diff_with_what_to_do(kept):
    (kept / "spans.json").write_text('{\n "name": "retrieval",\n "kind": 3\n}\n')
    with pytest.raises(AssertionError) as raised:
        golden.compare("spans", {"name": "search", "kind": 3})
    assert '- "name": "retrieval"' in str(raised.value)
    assert '+ "name": "search"' in str(raised.value)
    assert "make golden" in str(raised.value)


def test_a_file_that_is_not_there_yet_is_a_difference(kept):
    with pytest.raises(AssertionError, match="make golden"):
        golden.compare_lines("scores", [{"value": 1}])


def test_the_files_are_written_anew_on_demand(kept, monkeypatch):
    monkeypatch.setenv("RAGGUARD_WRITE_GOLDEN", "1")
    golden.compare_lines("scores", [{"value": 2}, {"value": 1}])
    monkeypatch.delenv("RAGGUARD_WRITE_GOLDEN")
    golden.compare_lines("scores", [{"value": 1}, {"value": 2}])
    assert (kept / "scores.jsonl").read_text() == '{"value": 1}\n{"value": 2}\n'
