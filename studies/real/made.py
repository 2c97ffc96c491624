"""Made-up sets in the forms of the real ones, from nano's world: what the study reads if no folder is named, so that it
can be tried, and tested, with nano."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ragguard import world
from ragguard.world import Case
from studies.readers.evouna import SYSTEMS
from studies.real.labels import PLACES, RUNS
from studies.real.sets import MODEL, PEOPLE

Entry = Mapping[str, Any]


def write_sets(folder: Path, entries: int, seed: int) -> None:
    """Writes every file that the study reads, with so many entries."""
    one_hop, two_hops = world.cases(entries, seed=seed), world.cases(entries, seed=seed, hops=2)
    files: dict[str, Iterator[Entry]] = {
        "ramdocs": map(_mixed, one_hop),
        "musique": map(_parts, two_hops),
        "hotpotqa": map(_bridge, two_hops),
        "evouna_nq": map(_judged, one_hop),
        "evouna_tq": map(_judged, two_hops),
        "clapnq_answerable": (_sentences(case, True) for case in one_hop),
        "clapnq_unanswerable": (_sentences(case, False) for case in one_hop),
        "mtragun": (_turns(case, at % 2 == 0) for at, case in enumerate(one_hop)),
    }
    for name, lines in files.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    chance = random.Random(seed)
    people = [(f"{at % 8} 0 d{at}", chance.randint(0, 4)) for at in range(RUNS * PLACES)]
    leans = [(pair.replace(" 0 ", " Q0 "), min(4, grade + chance.randint(0, 2))) for pair, grade in people]
    for file, grades in ((PEOPLE, people), (MODEL, leans)):
        (folder / file).write_text("".join(f"{pair} {grade}\n" for pair, grade in grades), "utf-8")


def _mixed(case: Case) -> Entry:
    kinds = {"gold": "correct", "contradiction": "misinfo", "same_relation": "noise"}
    documents = [
        {"text": passage.text, "type": kinds[kind]}
        for passage in case.pool()
        if (kind := str(passage.metadata["kind"])) in kinds
    ]
    return {"question": case.question, "documents": documents, "gold_answers": case.references}


def _parts(case: Case) -> Entry:
    texts = list(dict.fromkeys(passage.text for passage in case.pool()))
    golds = [passage.text for passage in case.gold]
    return {
        "question": case.question, "answer": case.answer, "answer_aliases": case.references[1:],
        "paragraphs": [
            {"idx": at, "title": f"Text {at}", "paragraph_text": text, "is_supporting": text in golds}
            for at, text in enumerate(texts)
        ],
        "question_decomposition": [
            {"question": query.replace(case.bridge, "#1") if at else query, "answer": answer,
             "paragraph_support_idx": texts.index(gold)}
            for at, (query, gold, answer) in enumerate(
                zip(case.sub_questions, golds, (case.bridge, case.answer), strict=True)
            )
        ],
    }  # fmt: skip


def _bridge(case: Case) -> Entry:
    texts = dict.fromkeys(passage.text for passage in case.pool())
    titles = {text: f"Text {at}" for at, text in enumerate(texts)}
    return {
        "question": case.question, "answer": case.answer, "type": "bridge",
        "context": [[title, [text]] for text, title in titles.items()],
        "supporting_facts": [[titles[passage.text], 0] for passage in case.gold],
    }  # fmt: skip


def _judged(case: Case) -> Entry:
    wrong = str(case.of_kind("contradiction")[0].metadata["object"])
    said = {system: (case.answer, True) if at % 2 else (wrong, False) for at, system in enumerate(SYSTEMS)}
    answers = {f"answer_{system}": answer for system, (answer, _) in said.items()}
    verdicts = {f"judge_{system}": right for system, (_, right) in said.items()}
    return {"question": case.question, "golden_answer": case.answer, **answers, **verdicts}


def _sentences(case: Case, answerable: bool) -> Entry:
    gold, others = case.gold[0].text, [passage.text for passage in case.distractors[:3]]
    texts = [others[0], gold, *others[1:]] if answerable else others
    return {
        "input": case.question,
        "passages": [{"title": "Text", "text": " ".join(texts), "sentences": texts}],
        "output": [
            {"answer": case.answer, "selected_sentences": [gold]}
            if answerable
            else {"answer": "", "selected_sentences": []}
        ],
    }


def _turns(case: Case, answerable: bool) -> Entry:
    texts = [passage.text for passage in (case.gold if answerable else case.distractors[:2])]
    return {
        "input": [{"speaker": "user", "text": "Hello."}, {"speaker": "user", "text": case.question}],
        "contexts": [{"text": text} for text in texts],
        "answerability": ["ANSWERABLE" if answerable else "PARTIAL"],
    }
