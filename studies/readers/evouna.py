"""Reads answers of five systems that people judged, in EVOUNA's form (`evouna_nq.jsonl`, `evouna_tq.jsonl`).

{"question": "…", "golden_answer": "one/another", "answer_fid": "…", "judge_fid": true, …, "improper": false}
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ragguard.storage.files.jsonl import json_lines

SYSTEMS = ("fid", "gpt35", "chatgpt", "gpt4", "newbing")


@dataclass(frozen=True, slots=True)
class JudgedAnswer:
    """An answer, and whether a person called it right."""

    question: str
    references: tuple[str, ...]
    answer: str
    right: bool
    system: str


def read(path: Path) -> Iterator[JudgedAnswer]:
    """Yields the answers with a person's judgement; questions that people called improper are left out."""
    for fields in json_lines(path):
        if fields.data.get("improper"):
            continue
        references = tuple(one.strip() for one in fields.text("golden_answer").split("/") if one.strip())
        for system in SYSTEMS:
            right = fields.data.get(f"judge_{system}")
            if isinstance(right, bool) and fields.data.get(f"answer_{system}") is not None:
                answer = fields.text(f"answer_{system}")
                yield JudgedAnswer(fields.text("question"), references, answer, right, system)
