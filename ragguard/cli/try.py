# ruff: noqa: N999 - a module is named as its command
"""`ragguard try FOLDER QUESTION …`: questions about texts of one's own, searched, answered and scored at once."""

from __future__ import annotations

import asyncio
import os
import sys
import time
import webbrowser
from collections import defaultdict
from collections.abc import Callable, Sequence
from importlib import import_module
from inspect import iscoroutine
from pathlib import Path
from statistics import fmean
from typing import Annotated

import typer

from ragguard.analysis.hops import hop_table
from ragguard.analysis.page import write_html
from ragguard.analysis.pairs import compare, questions_of
from ragguard.capture.snapshot import passages_of
from ragguard.cli.terminal import progress_bar, say, screen
from ragguard.client import RagGuard
from ragguard.engines.base import Engine
from ragguard.engines.connect import choose, connect
from ragguard.engines.engine import Verbs
from ragguard.engines.prompts import load_prompts
from ragguard.errors import InvalidInput
from ragguard.facts.run_view import RunView
from ragguard.metrics.answers import query_gain
from ragguard.records import Passage, Score
from ragguard.scorers.probes import query_likelihood
from ragguard.storage.source import open_source
from ragguard.storage.sqlite.score_rows import RunMeans, Series
from ragguard.text.plain import counted
from ragguard.text.search import Search, Texts, content_words, left_open, read_folder

K = 3
"""The passages of one search."""
ANSWER_TOKENS = 32
SCORING_S = 600.0
LEGEND = """
likelihood: how probable a word of the answer is to the model after what it read, on average; likelihood_total: how
probable the whole answer is; delta_likelihood, log_gain: what the hop added to the likelihood, and to its logarithm.
fit: how much likelier (in log-probability) a word of your question is after the passage; 0 is no help."""
"""The meaning of the numbers of a model that does not judge by label."""


def run(
    folder: Annotated[Path, typer.Argument(help="A folder with .md, .txt, .rst, .html, .py or .pdf files.")],
    questions: Annotated[list[str], typer.Argument(help="What to ask of the texts; one or more.")],
    engine: Annotated[
        str,
        typer.Option(
            "--engine", "-e", help="The model that answers and scores: auto, smol, a URL, gguf:FILE."
        ),
    ] = "auto",
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the store and the page go.")] = Path(
        "try-out"
    ),
    against: Annotated[
        list[str] | None,
        typer.Option(
            help="Compare with this wording of the question; once for each question, in their order."
        ),
    ] = None,
    retriever: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION", help="Compare with a function that takes a query and returns passages."
        ),
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open the page if there is a browser.")] = True,
) -> None:
    """Ask questions of your own texts, and see what each of two searches did for the answer.

    The second search looks for what the first one left open. With --against or --retriever each question is answered
    twice, and the last sentence compares the two ways to search. Runs are added to the store in --out. Exit code 0:
    all is answered and scored. 1: something could not be scored. 2: nothing could be done. Ctrl-C leaves what is done.
    """
    if empty := [one for one in questions if not one.strip()]:
        raise InvalidInput("QUESTION", empty[0], "a text that is not empty")
    wordings = against or []
    if wordings and (retriever or len(wordings) != len(questions) or not all(map(str.strip, wordings))):
        raise InvalidInput("--against", wordings[0], "another wording for each question, without --retriever")
    other = load_retriever(retriever) if retriever else None
    began = time.perf_counter()
    texts = read_folder(folder)
    address = choose().address if engine == "auto" else engine
    say(_about(texts, folder, address))
    out.mkdir(parents=True, exist_ok=True)
    model, local, code = connect(engine), _is_local(address), 0
    scorers = ["likelihood"] if local else None
    searches: list[tuple[Sequence[str], Callable[[str], object] | None]] = [(questions, None)]
    if wordings or other:
        searches.append((wordings or questions, other))
    means: list[list[RunMeans]] = [[] for _ in searches]
    with RagGuard(model, scorers=scorers, store=out / "ragguard.db", exit_timeout=0.0) as rg:
        search = Search(texts.passages)
        try:
            with progress_bar("", total=len(questions)) as update:
                for number, question in enumerate(questions):
                    update(description=f"question {number + 1} of {len(questions)}")
                    for way, (wording, finder) in enumerate(searches):
                        if way:
                            named = f"--retriever {retriever}" if finder else "the other wording"
                            say(f"\nthe same question, with {named}:")
                        whole, found = _ask(rg, search, question, wording[number], finder, local)
                        means[way].append(found)
                        code = code if whole else 1
                    update(advance=1)
        except KeyboardInterrupt:
            code = 130
        if local:
            say(LEGEND)
        if means[-1] is not means[0] and means[-1]:
            _compare(*means)
        page = out / "report.html"
        write_html(open_source(out / "ragguard.db").overviews(), page, "ragguard: your own texts")
        say(f"\n{'stopped; what is done is in' if code == 130 else 'written to'} {page}")
    if browser and sys.stdout.isatty():
        webbrowser.open(page.absolute().as_uri())
    say(f"{time.perf_counter() - began:.1f} s")
    if code:
        raise typer.Exit(code)


def _about(texts: Texts, folder: Path, engine: str) -> str:
    """Says what was read, and who answers."""
    skipped = "".join(f"; {remark}" for remark in texts.remarks)
    read = f"{counted(texts.files, 'file')}, {counted(len(texts.passages), 'passage')}"
    about = f"{folder}: {read}{skipped}. Answers and numbers: {engine}"
    if engine == "smol":
        about += ", a small model of English that is often wrong; --engine names yours"
    return about + "."


def _is_local(engine: str) -> bool:
    """True for a model that NumPy computes: slow, and mostly too small to judge by label."""
    return engine == "smol" or engine.startswith("gguf:")


def _ask(
    rg: RagGuard,
    search: Search,
    question: str,
    wording: str,
    retriever: Callable[[str], object] | None,
    by_likelihood: bool,
) -> tuple[bool, RunMeans]:
    """Searches twice, for a wording of the question, answers, scores, and prints the run; returns whether it has all
    its scores, and their means.

    A small model in the process is given the passage that fits the question best, and no other: with more, it mostly
    misses what is there.
    """
    first = retrieve(retriever, wording) if retriever else search(content_words(wording), K)
    wanted = left_open(wording, first, search)
    left = " ".join(wanted)
    second = retrieve(retriever, left, first) if retriever else search(wanted, K, without=first)
    found = [*first, *second]
    fits = asyncio.run(_fits(rg.engine, question, found)) if by_likelihood and found else []
    read = [found[fits.index(max(fits))]] if fits else found
    with rg.run(question, name="try") as run:
        for query, passages in ((wording, first), (left or wording, second)):
            got = [one for one in passages if one in read]
            run.retrieved(query, got, candidates=passages, k=len(passages) or None)
        answer = asyncio.run(_answer(rg.engine, question, read)) if found else ""
        run.answered(answer)
    done = rg.flush(timeout=SCORING_S)
    for item in rg.runs():
        if item.id == run.id:
            screen().print(hop_table(RunView(item, rg.scores(item.id), rg.failures(item.id))))
    if not found:
        say("No passage has a word of this question; ask it in the words of the texts.")
    elif not second:
        say("The second search found no other passage.")
    for hop, passages in enumerate((first, second), 1):
        for number, passage in enumerate(passages, 1):
            best = (
                "  the model read this one: it fits the whole question best"
                if fits and passage in read
                else ""
            )
            say(f"  {hop}.{number}  {passage.id or '(no id)'}{best}")
    return bool(done) and not rg.failures(run.id), means_of(question, rg.scores(run.id), fits)


def _compare(before: list[RunMeans], after: list[RunMeans]) -> None:
    """Prints which of two ways to search was better; the second one is "after"."""
    for way, runs in (("first", before), ("second", after)):
        if not any(run.means for run in runs):
            say(f"\nnot compared: of what the {way} way to search found, nothing could be scored")
            return
    found = compare(questions_of(before), questions_of(after))
    say(f"\nsecond way to search against the first: {found.verdict.sentence}")
    for change in found.decisive:
        say(f"  {change.metric}: {change.before:z.3f} before, {change.after:z.3f} after")


async def _answer(engine: Engine, question: str, passages: list[Passage]) -> str:
    """Returns the first line of the model's answer from the passages."""
    read = "\n\n".join(one.text for one in passages)
    prompt = f"{read}\n\nAnswer from this text, in a few words.\nQuestion: {question}"
    answers = await engine.sample([prompt], n=1, max_tokens=ANSWER_TOKENS, temperature=0)
    return next((line.strip() for line in answers[0][0].text.splitlines() if line.strip()), "")


async def _fits(engine: Engine, question: str, passages: list[Passage]) -> list[float]:
    """Returns by how much each passage raises the mean log-probability of the question's tokens: `query_gain`."""
    if not isinstance(engine, Verbs):
        return []
    prompts = load_prompts("default")
    asked = [query_likelihood(prompts, question)]
    asked += [query_likelihood(prompts, question, passage.text) for passage in passages]
    rows = await engine.continuations([one.prompt for one in asked], [[question]] * len(asked))
    alone, *after = (row[0].logprobs for row in rows)
    return [query_gain(one, alone) for one in after]


FIT = Series("query_gain", "passage", False, "passages")
"""The fit of passages to the whole question, although a search may have asked for a part of it only."""


def load_retriever(name: str) -> Callable[[str], object]:
    """Returns the function of `module:function`, the module looked for in the current folder, too."""
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        module, function = name.split(":")
        found = getattr(import_module(module), function)
        if not callable(found):
            raise TypeError(f"{function} is not callable")
    except Exception as error:
        allowed = "module:function, a function that takes a question and returns passages"
        raise InvalidInput("--retriever", name, f"{allowed} ({type(error).__name__}: {error})") from error
    return found  # type: ignore[no-any-return]  # what a user's module holds


def retrieve(
    retriever: Callable[[str], object], query: str, without: Sequence[Passage] = ()
) -> list[Passage]:
    """Returns the first passages of a retriever of the user's, asynchronous or not, that were not found before."""
    try:
        given = retriever(query)
        found = passages_of(asyncio.run(given) if iscoroutine(given) else given)
    except Exception as error:
        allowed = f"a function that answers a question ({type(error).__name__}: {error})"
        raise InvalidInput("--retriever", getattr(retriever, "__name__", "?"), allowed) from error
    known = {one.text for one in without}
    return [one for one in found if one.text not in known][:K]


def means_of(question: str, scores: Sequence[Score], fits: Sequence[float]) -> RunMeans:
    """Returns what can be compared of a run: scores of the question, none of the run's own answer or of its queries.

    `fits` are the passages' fits to the whole question, where these were measured.
    """
    values: dict[tuple[Series, str], list[float]] = defaultdict(list)
    for score in scores:
        if not score.provisional and score.reference_source != "answer" and score.name != FIT.name:
            series = Series(score.name, score.level, False, score.stage)
            values[series, f"{score.engine} {score.prompts}"].append(score.value)
    if fits:
        values[FIT, ""] = list(fits)
    found = RunMeans(question)
    for (series, origin), numbers in values.items():
        found.add(series, origin, fmean(numbers))
    return found
