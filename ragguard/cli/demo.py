"""`ragguard demo`: a small worked case, in the terminal."""

from __future__ import annotations


def run() -> None:
    """Show what the numbers say about four passages that a retriever gave."""
    from rich.console import Console
    from rich.table import Table

    from ragguard import metrics

    p_abstain, relevant = [0.1, 0.9, 0.2, 0.7], [True, True, False, False]
    utility = metrics.utility(relevant, p_abstain)
    table = Table(title="Four passages, as the model that reads them sees them")
    for column in ("rank", "relevant", "p(abstain)", "utility", "verdict"):
        table.add_column(column, justify="left" if column == "verdict" else "right")
    for rank, (p, r, u) in enumerate(zip(p_abstain, relevant, utility, strict=True), 1):
        verdict = "helps" if u > 0.2 else "misleads" if u < -0.2 else "does little"
        table.add_row(str(rank), "yes" if r else "no", f"{p:.1f}", f"{u:+.2f}", verdict)
    console = Console()
    console.print(table)
    console.print(f"UDCG of the list                 {metrics.udcg(utility):.4f}")
    console.print(f"UDCG without the third passage   {metrics.udcg(utility[[0, 1, 3]]):.4f}")
