"""A gate for a user's own test suite: the pytest fixture `ragguard_gate`. Only pytest loads this file.

def test_the_new_retriever_is_no_worse(ragguard_gate):
    ragguard_gate("main.db", "branch.db", fail_if=["udcg < -0.02", "coverage_total < 0"])
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ragguard.analysis.comparison import Comparison

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
