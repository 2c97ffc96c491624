"""Asks a search some questions and writes what it finds as runs: the first step of docs/how-to/ci.md.

python examples/ci_runs.py runs.jsonl
"""

import sys

from ragguard import Passage, RetrievalStep, Run, write_runs

TEXTS = [
    "The harbour library opens at nine and closes at six, on Sundays at noon.",
    "The harbour library was built in 1911 by the architect Mina Torvald.",
    "The ferry to Holm Island leaves every forty minutes from the old pier.",
    "A ticket for the ferry to Holm Island costs four crowns; children travel free.",
    "The old pier was repaired after the storm of 1987.",
    "Mina Torvald also drew the plans of the town hall.",
]
QUESTIONS = {
    "Who built the harbour library?": "Mina Torvald",
    "What does the ferry to Holm Island cost?": "four crowns",
    "How often does the ferry to Holm Island leave?": "every forty minutes",
    "When does the harbour library close?": "six",
    "When was the old pier repaired?": "1987",
    "Who drew the plans of the town hall?": "Mina Torvald",
}


def search(question: str, k: int = 2) -> list[str]:
    """Returns the texts with the most words of the question: your retriever instead."""
    words = set(question.lower().strip("?").split())
    return sorted(TEXTS, key=lambda text: -len(words & set(text.lower().strip(".").split())))[:k]


runs = []
for question, answer in QUESTIONS.items():
    step = RetrievalStep(query=question, passages=[Passage(text) for text in search(question)])
    runs.append(Run(question=question, references=[answer], steps=[step]))
write_runs(runs, sys.argv[1] if len(sys.argv) > 1 else "runs.jsonl")
