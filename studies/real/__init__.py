"""The worth of the numbers on public data sets: `python -m studies real --data FOLDER`.

Of passages, contexts, hops, answers, questions and sentences, each beside what needs no model. The files are those of
`sets.READERS`; texts of them stay in the folder. Without a folder: made-up sets from nano's world, for a trial.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from ragguard.analysis.tables import Table
from ragguard.engines.base import Engine
from ragguard.engines.connect import connect
from ragguard.lab.validation.contexts import Progress, silent
from studies import led_by
from studies.readers.multi_hop import half
from studies.real.answerable import answerable_table, sentence_table
from studies.real.answers import answer_table
from studies.real.forms import forms_table
from studies.real.hops import hop_table
from studies.real.labels import label_table
from studies.real.made import write_sets
from studies.real.passages import (
    contested_table,
    context_table,
    label_rows,
    model_rows,
    passage_table,
    usable,
    words_rows,
)
from studies.real.sets import Sets, read_sets

FITTED_ON = 0.5
"""The share of RAMDocs' questions, the first of the file, by which `brings_answer` and contradictions were fitted: the
model is asked about the others."""
LABELS, DRAWS = (30,), 1000
"""The numbers of labels whose intervals are tried, and how often."""


async def study(
    engine: Engine,
    *,
    questions: int = 24,
    seed: int = 0,
    progress: Progress = silent,
    judge: Engine | None = None,
    data: str | Path | None = None,
) -> list[Table]:
    """Makes the tables: a model is asked about so many questions of each set, for its labels and about contexts about
    half as many, and what needs no model is over all."""
    if data is not None:
        return await _tables(connect(engine), read_sets(Path(data)), questions, DRAWS, seed, progress)
    with TemporaryDirectory() as folder:
        write_sets(Path(folder), max(8, 2 * questions), seed)
        return await _tables(connect(engine), read_sets(Path(folder)), questions, questions, seed, progress)


async def _tables(
    reader: Engine, sets: Sets, size: int, draws: int, seed: int, progress: Progress
) -> list[Table]:
    items = sets.items
    mixed = items["ramdocs"]
    asked = usable(mixed[int(FITTED_ON * len(mixed)) :])[:size]
    fewer = asked[: (len(asked) + 1) // 2]
    by_model = [*await model_rows(reader, asked, seed, progress), *await label_rows(reader, fewer, seed)]
    clapnq = [*items["clapnq_answerable"], *items["clapnq_unanswerable"]]
    answerable = {"CLAPnq": clapnq, "MTRAG": items["mtragun"]}
    hops = {"MuSiQue": items["musique"], "HotpotQA": items["hotpotqa"]}
    answers = {"NQ": items["evouna_nq"], "TriviaQA": items["evouna_tq"]}
    return [
        sets.table(),
        passage_table(words_rows(mixed), by_model, seed),
        await forms_table(reader, mixed, size, seed, progress),
        await context_table(reader, fewer, seed, progress),
        contested_table(mixed, hops, seed),
        hop_table({name: some for name, some in hops.items() if some}, seed),
        led_by.table(half(items["musique"], 1)),
        answer_table({name: some for name, some in answers.items() if some}, seed),
        await answerable_table(reader, answerable, size, seed, progress),
        await sentence_table(reader, items["clapnq_answerable"], size, seed, progress),
        label_table(sets.grades, draws, LABELS, seed, progress),
    ]
