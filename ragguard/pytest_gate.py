"""Gates for a user's own test suite: the fixtures `ragguard_gate` and `ragguard_case`. Only pytest loads this file.

def test_the_new_retriever_is_no_worse(ragguard_gate):
    ragguard_gate("main.db", "branch.db", fail_if=["udcg < -0.02", "coverage_total < 0"])

def test_failed_once(ragguard_case):      # pytest --ragguard-cases cases.jsonl: one test for each case
    with rg.run(ragguard_case.question) as run:
        run.answered(my_agent(ragguard_case.question))
    ragguard_case.check(run)
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ragguard.analysis.comparison import Comparison
    from ragguard.analysis.regression_cases import CorpusTexts, RegressionCase
    from ragguard.capture.handle import RunHandle
    from ragguard.records import Run

    Gate = Callable[..., Comparison]


@pytest.fixture(scope="session")
def ragguard_gate() -> Gate:
    """Compares two stores, folders of parts or score files; fails the test where a condition holds, and where they
    cannot be compared."""
    # Only here: pytest loads this file for every suite of an environment that ragguard is installed in.
    from ragguard.analysis.gate_check import check
    from ragguard.errors import RagguardError
    from ragguard.lab.labels.corrected import corrected_by

    def gate(
        before: str | Path, after: str | Path | None = None, fail_if: str | Sequence[str] = (), *,
        baseline: str | None = None, labels: str | Path | None = None, corrected: bool = False,
        allow_unscored: bool = False, looks: int = 1,
    ) -> Comparison:  # fmt: skip
        __tracebackhide__ = True  # pytest shows the line of the test instead
        try:
            correct = None if labels is None else corrected_by(labels)
            checked = check(
                before, after, fail_if, baseline=baseline, correct=correct, corrected=corrected,
                allow_unscored=allow_unscored, looks=looks,
            )  # fmt: skip
        except (RagguardError, OSError) as error:
            pytest.fail(f"ragguard_gate: {error}", pytrace=False)
        found, broken = checked.found, [gate for gate in checked.gates if not gate.passed]
        remarks = [*checked.thin, *found.notes]
        if broken:
            pytest.fail("\n".join([*map(str, broken), *remarks]), pytrace=False)
        if remarks:
            warnings.warn("; ".join(remarks), stacklevel=2)
        return found

    return gate


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options of regression cases."""
    group = parser.getgroup("ragguard")
    group.addoption("--ragguard-cases", metavar="FILE", help="cases of `ragguard cases`, for ragguard_case")
    group.addoption(
        "--ragguard-corpus", metavar="PATH", help="what can be retrieved now, to find stale cases"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Makes a test of each case for functions that take `ragguard_case`; without a file one that is skipped."""
    if "ragguard_case" not in metafunc.fixturenames:
        return
    path = metafunc.config.getoption("--ragguard-cases")
    if not path:
        skipped = pytest.param(None, marks=pytest.mark.skip(reason="no --ragguard-cases FILE is given"))
        metafunc.parametrize("ragguard_case", [skipped])
        return
    from ragguard.analysis.regression_cases import CorpusTexts, read_cases
    from ragguard.errors import RagguardError

    corpus = metafunc.config.getoption("--ragguard-corpus")
    try:
        texts = CorpusTexts(corpus) if corpus else None
        cases = [HeldCase(case, texts) for case in read_cases(path)]
    except (RagguardError, OSError) as error:
        raise pytest.UsageError(f"--ragguard-cases: {error}") from error
    metafunc.parametrize("ragguard_case", cases, ids=[case.id for case in cases])


class HeldCase:
    """A regression case in a test: its question, and the check of what the application did with it."""

    def __init__(self, case: RegressionCase, corpus: CorpusTexts | None) -> None:
        self.id, self.question, self.references = case.id, case.question, case.references
        self.case, self._corpus = case, corpus

    def check(self, run: Run | RunHandle) -> None:
        """Fails the test if the run breaks the case; skips it if a passage of the case is gone.

        Args:
            run: What `rg.run` gave, after its end, or a Run.
        """
        __tracebackhide__ = True
        from ragguard.analysis.regression_cases import FAILED, STALE, check_case
        from ragguard.capture.handle import RunHandle

        result = check_case(
            self.case, run.record() if isinstance(run, RunHandle) else run, corpus=self._corpus
        )
        if result.status == STALE:
            pytest.skip(f"stale: {'; '.join(result.reasons)}")
        if result.status == FAILED:
            pytest.fail(str(result), pytrace=False)
