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
    from ragguard.analysis.verdict import Change

    Gate = Callable[..., Comparison]


@pytest.fixture(scope="session")
def ragguard_gate() -> Gate:
    """Compares two stores, folders of parts or score files, and fails the test where a condition holds."""
    # Only here: pytest loads this file for every suite of an environment that ragguard is installed in.
    from ragguard.analysis.comparison import compare
    from ragguard.analysis.condition import Condition
    from ragguard.analysis.pairs import read_questions
    from ragguard.errors import InvalidInput

    def gate(before: str | Path, after: str | Path, fail_if: str | Sequence[str] = ()) -> Comparison:
        __tracebackhide__ = True  # pytest shows the line of the test instead
        wanted = [fail_if] if isinstance(fail_if, str) else fail_if
        if not isinstance(wanted, list | tuple):
            raise InvalidInput("fail_if", fail_if, "a condition such as 'udcg < -0.02', or a list of them")
        conditions = [Condition.parse(text) for text in wanted]
        found = compare(read_questions(before), read_questions(after))
        broken = [condition for condition in conditions if condition.holds(found)]
        metrics = dict.fromkeys(condition.of(found).metric for condition in conditions)
        thin = [found.resting_on(metric) for metric in metrics]
        sentences = (found.nothing_read, found.left_out, *thin, *found.remarks)
        remarks = [remark for remark in sentences if remark]
        if broken:
            named = {condition.of(found).metric for condition in broken}
            lines = [_line(change) for change in found.changes if change.metric in named]
            shown = [f"{', '.join(map(str, broken))} holds", *lines, *remarks]
            pytest.fail("\n".join(shown), pytrace=False)
        if remarks:
            warnings.warn("; ".join(remarks), stacklevel=2)
        return found

    return gate


def _line(change: Change) -> str:
    return (
        f"{change.metric}: {change.before:.3f} → {change.after:.3f}, difference {change.difference:+z.3f} "
        f"({change.low:+z.3f} … {change.high:+z.3f}) over {change.questions} questions, p {change.p_corrected:.3f}"
    )
