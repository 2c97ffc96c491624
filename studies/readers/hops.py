"""Reads MuSiQue and HotpotQA, as their authors give them, as runs of several hops: each hop finds its gold paragraph
among others, and one more hop finds only others.

A hop's query is its sub-question with the earlier answers filled in (MuSiQue), or the run's question (HotpotQA). Each
step's metadata says `role`, `gold` or `useless`, and so does each passage's.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ragguard.errors import InvalidInput
from ragguard.records import Passage, RetrievalStep, Run
from ragguard.storage.files.fields import Fields
from ragguard.text.language import normalise
from studies.readers.lists import json_objects, objects

FILES = ("musique", "hotpotqa")
"""The data sets, which are the names of their files, without `.jsonl` or `.json`."""
OTHERS = 2
"""How many other paragraphs stand with the gold one of a hop."""


def read(folder: str | Path, name: str, *, seed: int = 0) -> list[Run]:
    """Returns the runs of a data set's file in a folder, in the file's order."""
    paths = [Path(folder, name + ending) for ending in (".jsonl", ".json")]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise InvalidInput("folder", str(folder), f"a folder that holds {paths[0].name} or {paths[1].name}")
    made = {"musique": _musique, "hotpotqa": _hotpotqa}[name]
    return [run for fields in json_objects(path) for run in made(fields, seed)]


def _musique(fields: Fields, seed: int) -> Iterator[Run]:
    texts = [_paragraph(one, "paragraph_text") for one in objects(fields, "paragraphs")]
    answers: list[str] = []
    hops: list[tuple[str, str]] = []
    gold: set[str] = set()
    for one in objects(fields, "question_decomposition"):
        at = one.data.get("paragraph_support_idx")
        if not isinstance(at, int) or not 0 <= at < len(texts):
            raise one.wrong("paragraph_support_idx", at, "the number of a paragraph")
        query = re.sub(r"#(\d+)", lambda found: answers[int(found[1]) - 1], one.text("question"))
        hops.append((query, texts[at]))
        answers.append(one.text("answer"))
        gold.add(texts[at])
    references = [fields.text("answer"), *map(str, fields.data.get("answer_aliases") or [])]
    yield _run(
        fields, f"{len(hops)} hops", hops, [text for text in texts if text not in gold], references, seed
    )


def _hotpotqa(fields: Fields, seed: int) -> Iterator[Run]:
    paragraphs = {str(title): f"{title}\n{''.join(lines).strip()}" for title, lines in fields.data["context"]}
    titles = list(dict.fromkeys(str(title) for title, _ in fields.data["supporting_facts"]))
    gold = [paragraphs[title] for title in titles if title in paragraphs]
    if len(gold) < 2:
        return
    kind, answer, question = fields.text("type"), fields.text("answer"), fields.text("question")
    if kind == "bridge":  # what states the answer is found last
        gold.sort(key=lambda text: normalise(answer) in normalise(text))
    others = [text for text in paragraphs.values() if text not in gold]
    yield _run(fields, kind, [(question, text) for text in gold], others, [answer], seed)


def _paragraph(fields: Fields, name: str) -> str:
    return f"{fields.text('title')}\n{fields.text(name)}"


def _run(
    fields: Fields, kind: str, hops: Sequence[tuple[str, str]], others: Sequence[str], references: Sequence[str],
    seed: int,
) -> Run:  # fmt: skip
    question = fields.text("question")
    rng = random.Random(f"hops {seed} {question}")
    rest = list(dict.fromkeys(others))
    rng.shuffle(rest)
    found: list[tuple[str, str, list[Passage]]] = []
    for query, text in hops:
        near = [Passage(rest.pop(), metadata={"role": "other"}) for _ in range(min(OTHERS, len(rest)))]
        passages = [Passage(text, metadata={"role": "gold"}), *near]
        rng.shuffle(passages)
        found.append(("gold", query, passages))
    useless = [Passage(text, metadata={"role": "other"}) for text in rest[: OTHERS + 1]]
    if useless:
        query = useless[0].text.partition("\n")[0]
        found.insert(rng.randint(0, len(found)), ("useless", query, useless))
    identity = fields.text("id", "_id")
    steps = [
        RetrievalStep(
            id=f"{identity}-{at}", run_id=identity, index=at, turn=at, query=query, passages=passages,
            metadata={"role": role},
        )
        for at, (role, query, passages) in enumerate(found)
    ]  # fmt: skip
    return Run(
        id=identity, question=question, references=[*references], answer=references[0], steps=steps,
        metadata={"kind": kind, "hops": len(hops)},
    )  # fmt: skip
