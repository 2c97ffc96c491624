"""Has readers answer contexts, grades the answers by references, and compares readers on the same contexts.

Equal prompts are sent once, and equal answers to a question are graded once. No metric's value reaches this file
before the grades: these come from references alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import TypeVar, cast

from ragguard.analysis.tables import Cell, Table
from ragguard.engines.base import Engine
from ragguard.engines.connect import connect
from ragguard.engines.entailer import EngineEntailer
from ragguard.engines.prompts import PromptSet, load_prompts
from ragguard.errors import EngineProtocolError, LowLabelMass, PromptTooLong, RagguardError
from ragguard.lab.validation.contexts import OUTCOMES, Context, Progress, Scored, score_contexts, silent
from ragguard.lab.validation.correlations import measured, tables
from ragguard.lab.validation.entailers import WordEntailer
from ragguard.metrics.distraction import Relevance
from ragguard.scorers.answers import verdict_of
from ragguard.scorers.asker import Asker, Models
from ragguard.scorers.estimates import Meanings
from ragguard.scorers.exam.record import known_record
from ragguard.scorers.question import SampleQuestion
from ragguard.scorers.view import short

T = TypeVar("T")
BATCH = 256
# Errors that concern one context only. Every other error concerns the engine and is raised.
_OF_ONE_CONTEXT = (PromptTooLong, EngineProtocolError, LowLabelMass)


async def with_answers(
    contexts: Sequence[Context], engine: Engine, *, progress: Progress = silent
) -> list[Context]:
    """Returns the contexts in their order, with the reader's greedy answer where there was none.

    A context whose prompt the model refuses stays without an answer. Every other error of the engine is raised.
    """
    engine = connect(engine)
    prompts = load_prompts((await engine.info()).prompts)
    most = prompts.template("abstention").max_tokens
    asked: dict[int, SampleQuestion] = {}
    for at, one in enumerate(contexts):
        if one.answer is None:
            prompt = prompts.render("abstention", [p.text for p in one.passages], query=one.question)
            asked[at] = SampleQuestion(prompt, 1, most, 0.0, seed=0)
    asker = _asker(engine, prompts)
    said: dict[SampleQuestion, str] = {}
    for batch in _batches(asked.values(), "answering", progress):
        (answers,) = await asker.attend([partial(asker, batch)])
        for question, answer in zip(batch, answers, strict=True):
            if isinstance(answer, RagguardError):
                _raise_unless_of_one(answer)
            else:
                said[question] = answer.samples[0].text.strip()
    return [
        replace(one, answer=said.get(asked[at])) if at in asked else one for at, one in enumerate(contexts)
    ]


async def grader(engine: Engine) -> Engine | None:
    """Returns the engine that compares answers with references, or None where comparing words is better.

    Words are enough for nano, which answers in names, and for references that hold every alias, as those of
    `world.cases` do. As a comparer nano takes too many wrong names for right ones (6 of 100 for one hop, 28 for two).
    A model that answers in sentences compares them itself, unless it failed its examination in entailment.
    """
    info = await engine.info()
    record = known_record(info, load_prompts(info.prompts))
    failed = record is not None and "entailment" in record.failed
    return None if info.prompts == "nano" or failed else engine


async def with_outcomes(
    contexts: Sequence[Context], judge: Engine | None, *, progress: Progress = silent
) -> list[Context]:
    """Returns the contexts in their order, their answers graded as `OUTCOMES` where there are references.

    Outcomes that are known stay. References too long for a short answer give no outcome. Without a judge (see
    `grader`) an answer is correct that holds the words of a reference, or the other way round.
    """
    if judge is None:
        words = WordEntailer()
        asker = Asker(Models(cast(Engine, words), cast(Engine, words), words))  # which asks for nothing else
    else:
        judge = connect(judge)
        asker = _asker(judge, load_prompts((await judge.info()).prompts))

    async def graded(question: str, answer: str, references: tuple[str, ...]) -> float | None:
        try:
            verdict, _ = await verdict_of(answer, references, Meanings(question, asker))
        except RagguardError as error:
            _raise_unless_of_one(error)
            return None
        return float(OUTCOMES[verdict])

    wanted = {
        at: (context.question, context.answer, references)
        for at, context in enumerate(contexts)
        if context.outcome is None
        and context.answer is not None
        and (references := short(context.references))
    }
    grades: dict[tuple[str, str, tuple[str, ...]], float | None] = {}
    for batch in _batches(wanted.values(), "grading answers", progress):
        grades.update(zip(batch, await asker.attend([partial(graded, *row) for row in batch]), strict=True))
    return [
        replace(context, outcome=grades[wanted[at]]) if at in wanted else context
        for at, context in enumerate(contexts)
    ]


def _asker(engine: Engine, prompts: PromptSet) -> Asker:
    return Asker(Models(engine, engine, EngineEntailer(engine, prompts)))


def _batches(items: Iterable[T], what: str, progress: Progress) -> Iterator[Sequence[T]]:
    """Yields the items, equal ones once, in batches; says before each, and at the end, how many are done."""
    distinct = list(dict.fromkeys(items))
    for start in range(0, len(distinct), BATCH):
        progress(what, start, len(distinct))
        yield distinct[start : start + BATCH]
    progress(what, len(distinct), len(distinct))


def _raise_unless_of_one(error: RagguardError) -> None:
    if not isinstance(error, _OF_ONE_CONTEXT):
        raise error


async def answered_and_scored(
    contexts: Sequence[Context],
    reader: Engine,
    judge: Engine | None = None,
    scorers: Sequence[str] = (),
    *,
    relevance: Relevance = "probability",
    progress: Progress = silent,
) -> list[Scored]:
    """Returns the contexts, which have texts, with their scores; those that have references and no outcome are answered
    by the reader where they have no answer, and graded."""
    judge = judge or reader
    open_ = {at: one for at, one in enumerate(contexts) if one.outcome is None and one.references}
    answered = await with_answers(list(open_.values()), reader, progress=progress)
    graded = await with_outcomes(answered, await grader(judge), progress=progress)
    known = [*contexts]
    for at, one in zip(open_, graded, strict=True):
        known[at] = one
    return await score_contexts(
        known, reader, judge=judge, scorers=scorers or ("utility",), relevance=relevance, progress=progress
    )


_BELIEFS = "seper_closed_book", "seper", "delta_seper"


async def compare_readers(
    contexts: Sequence[Context],
    readers: Mapping[str, Engine],
    *,
    judge: Engine | None = None,
    scorers: Sequence[str] = (),
    relevance: Relevance = "probability",
    progress: Progress = silent,
) -> list[Table]:
    """Returns what each reader answers, and which metrics go with its outcomes; raises the error of one that fails.

    Answers that the data have are another model's: each reader answers for itself. Contexts need texts and references.
    """
    asked = [replace(one, answer=None, outcome=None) for one in contexts if one.readable and one.references]
    rows: list[tuple[Cell, ...]] = []
    predicted: dict[str, dict[str, tuple[Cell, ...]]] = {}
    about = "SePer: its belief in the references before and after reading, with `--scorers belief`."
    notes = [f"Each reader's own greedy answers. {about}"]
    for reader in readers.values():
        await reader.info()  # one that is not there ends the command before another one was asked for hours
    for name, reader in readers.items():
        scored = await answered_and_scored(
            asked, reader, judge, scorers, relevance=relevance, progress=progress
        )
        rows += _answers(name, scored)
        missing = {f"{one.scorer}: {one.message}" for context in scored for one in context.failures}
        notes += [f"{name}: {why}." for why in sorted(missing)[:3]]
        try:
            predicted[name] = {str(row[0]): row[1:4] for row in tables(measured(scored))[0].rows}
        except RagguardError as error:
            notes.append(f"{name}: {error}.")
    shares = (f"{outcome}, %" for outcome in OUTCOMES)
    columns = ("reader", *shares, "SePer without", "with", "ΔSePer", "contexts")
    source = "UDCG, table 6, and SePer, figure 4"
    metrics = dict.fromkeys(metric for of_reader in predicted.values() for metric in of_reader)
    none: tuple[Cell, ...] = (None, None, None)
    of_metrics = tuple(
        (metric, *(cell for of in predicted.values() for cell in of.get(metric, none))) for metric in metrics
    )
    titles = ("metric", *(word for name in predicted for word in (name, "from", "to")))
    which = "Which metric goes with each reader's outcomes: Spearman"
    return [
        Table("readers", "What each reader answers", columns, tuple(rows), source=source, notes=tuple(notes)),
        Table("readers-correlations", which, titles, of_metrics),
    ]


def _answers(name: str, scored: Sequence[Scored]) -> list[tuple[Cell, ...]]:
    """Returns a reader's row over all contexts and, where relevance is known, with and without something relevant."""
    groups = {name: list(scored)}
    for one in scored:
        if one.context.relevance is not None:
            held = "with" if any(one.context.relevance) else "without"
            groups.setdefault(f"{name}: {held} a relevant passage", []).append(one)
    rows: list[tuple[Cell, ...]] = []
    for group, some in groups.items():
        outcomes = [one.context.outcome for one in some if one.context.outcome is not None]
        shares = [100 * outcomes.count(value) / max(1, len(outcomes)) for value in OUTCOMES.values()]
        known = [one.values for one in some if all(belief in one.values for belief in _BELIEFS)]
        beliefs = [fmean(values[belief] for values in known) if known else None for belief in _BELIEFS]
        rows.append((group, *(shares if outcomes else [None] * 3), *beliefs, len(some)))
    return rows
