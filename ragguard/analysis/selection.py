"""Says whether a retriever, or what chose among its candidates, lost more of the best set of passages."""

from __future__ import annotations

from collections.abc import Sequence


def diagnose_selection(proc: float, pct_proc: float) -> str:
    """Says whether a retriever, or what chose among its candidates, lost more of the best set of passages.

    PROC is what the candidates make possible, %PROC the share of it that was chosen; both from 0 to 1.
    """
    by_retriever, by_choice = 1 - proc, proc * (1 - pct_proc)
    numbers = (
        f"its candidates allow {proc:.2f} of the best set (PROC), of which {pct_proc:.0%} was chosen (%PROC)"
    )
    if max(by_retriever, by_choice) < 0.05:
        return f"Retriever and selection lose next to nothing: {numbers.removeprefix('its ')}."
    if by_retriever >= by_choice:
        return f"The retriever loses most: {numbers}."
    return f"What chooses after the retriever, a reranker or the guard, loses most: {numbers.removeprefix('its ')}."


def about_selections(numbers: Sequence[tuple[float, float]]) -> str:
    """Says of many steps, by PROC and %PROC of each, whether retrievers or what chose after them lost more."""
    proc = sum(one for one, _ in numbers) / len(numbers)
    reached = sum(one * chosen for one, chosen in numbers) / len(numbers)
    steps = "1 step" if len(numbers) == 1 else f"{len(numbers):,} steps"
    return f"Over {steps}: {diagnose_selection(proc, reached / proc if proc else 1.0)}"
