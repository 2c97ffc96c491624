"""The pytest fixture, in a test suite of its own as a user would have it."""

from pathlib import Path

from support.program import run_suite

from ragguard.records import RetrievalStep, Run, Score, ScoredRun
from ragguard.storage.files.runfile import write_scores

ROOT = Path(__file__).parents[1]
SUITE = """
def test_holds(ragguard_gate):
    assert ragguard_gate("a.jsonl", "b.jsonl", fail_if="udcg < -0.5").paired == 20

def test_odd_arguments(ragguard_gate):
    import pytest

    for words in ((3, "b.jsonl"), ("a.jsonl", None)):
        with pytest.raises(pytest.fail.Exception, match="allowed:"):
            ragguard_gate(*words)
    for odd in ({"udcg": 0}, [3]):
        with pytest.raises(pytest.fail.Exception, match="fail.if: got"):
            ragguard_gate("a.jsonl", "b.jsonl", fail_if=odd)

def test_of_a_missing_store(ragguard_gate):
    ragguard_gate("a.jsonl", "nothing.db")

def test_fails(ragguard_gate):
    ragguard_gate("a.jsonl", "b.jsonl", fail_if=["udcg < -0.05"])

def test_half(ragguard_gate):
    import pytest

    with pytest.warns(UserWarning, match="Left out: 10 questions only before, 0 only after"):
        ragguard_gate("a.jsonl", "half.jsonl", fail_if=["udcg < -0.5"], allow_unscored=True)
"""


def scored(number, udcg):
    run = Run(f"r{number}", f"Who is number {number}?", steps=[RetrievalStep("s")])
    return ScoredRun(run, [Score("udcg", udcg, "step", run.id, "s")])


def test_the_gate_passes_and_fails(tmp_path):
    for name, base in (("a", 0.6), ("b", 0.5)):
        write_scores(
            [scored(number, base + number / 1000) for number in range(20)], tmp_path / f"{name}.jsonl"
        )
    write_scores([scored(number, 0.5) for number in range(10)], tmp_path / "half.jsonl")
    (tmp_path / "test_gate.py").write_text(SUITE)
    printed = run_suite(tmp_path)
    assert "2 failed, 3 passed" in printed, printed
    assert "ragguard_gate: nothing.db" in printed
    assert "Traceback" not in printed
    assert "FAILED: udcg < -0.05; the difference is -0.1 (-0.100 … -0.100)" in printed


def test_gate_is_installed_with_the_package():
    pyproject = (ROOT / "pyproject.toml").read_text()
    assert 'ragguard_gate = "ragguard.pytest_gate"' in pyproject
