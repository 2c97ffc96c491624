# ruff: noqa: N999 - a module is named as its command
"""`ragguard try FOLDER QUESTION …`: questions about texts of one's own, searched, answered and scored at once."""

from __future__ import annotations

import asyncio
import sys
import time
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from ragguard.analysis.hops import hop_table
from ragguard.analysis.page import write_html
from ragguard.analysis.wording import MISLEADS
from ragguard.cli.terminal import notes, progress_bar, say, screen
from ragguard.client import RagGuard
from ragguard.engines.base import Engine
from ragguard.engines.connect import choose, connect
from ragguard.engines.engine import Verbs
from ragguard.engines.prompts import load_prompts
from ragguard.errors import InvalidInput, StoreError
from ragguard.metrics.answers import query_gain
from ragguard.records import Passage
from ragguard.scorers.probes import query_likelihood
from ragguard.storage.source import open_source
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
    questions: Annotated[list[str], typer.Argument(help="What to ask of these texts; one or more.")],
    engine: Annotated[
        str,
        typer.Option(
            "--engine", "-e", help="The model that answers and scores: auto, smol, a URL, gguf:FILE."
        ),
    ] = "auto",
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the store and the page go.")] = Path(
        "try-out"
    ),
    browser: Annotated[bool, typer.Option(help="Open the page where there is a browser.")] = True,
) -> None:
    """Ask questions of your own texts, and see what each of two searches did for the answer.

    The second search looks for what the first one left open. Runs are added to the store in --out. Exit code 0: all is
    answered and scored. 1: something could not be scored. 2: nothing could be done. Ctrl-C leaves what is done.
    """
    if empty := [one for one in questions if not one.strip()]:
        raise InvalidInput("QUESTION", empty[0], "a text that is not empty")
    began = time.perf_counter()
    texts = read_folder(folder)
    address = choose().address if engine == "auto" else engine
    say(_about(texts, folder, address))
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"{out} cannot hold the results ({error.strerror}); name a folder with --out"
        ) from error
    model = connect(engine)
    scorers = ["likelihood"] if _is_local(address) else None
    with RagGuard(model, scorers=scorers, store=out / "ragguard.db", exit_timeout=0.0) as rg:
        search, stopped, complete = Search(texts.passages), False, True
        try:
            with progress_bar(notes(), "", total=len(questions), quiet=False) as update:
                for number, question in enumerate(questions, 1):
                    update(description=f"question {number} of {len(questions)}")
                    complete &= _ask(rg, search, question, by_likelihood=_is_local(address))
                    update(advance=1)
        except KeyboardInterrupt:
            stopped = True
        if _is_local(address):
            say(LEGEND)
        _finish(out, stopped, browser)
    say(f"{time.perf_counter() - began:.1f} s")
    if stopped or not complete:
        raise typer.Exit(130 if stopped else 1)


def _about(texts: Texts, folder: Path, engine: str) -> str:
    """Says what was read, and who answers."""
    skipped = "".join(f"; {remark}" for remark in texts.remarks)
    files = "1 file" if texts.files == 1 else f"{texts.files:,} files"
    passages = "1 passage" if len(texts.passages) == 1 else f"{len(texts.passages):,} passages"
    about = f"{folder}: {files}, {passages}{skipped}. Answers and numbers: {engine}"
    if engine == "smol":
        about += ", a small model of English that is often wrong; --engine names yours"
    return about + "."


def _is_local(engine: str) -> bool:
    """True for a model that NumPy computes: slow, and mostly too small to judge by label."""
    return engine == "smol" or engine.startswith("gguf:")


def _ask(rg: RagGuard, search: Search, question: str, *, by_likelihood: bool) -> bool:
    """Searches twice, answers, scores, and prints the run; returns whether it has all its scores.

    A small model in the process is given the passage that fits the question best, and no other: with more, it mostly
    misses what is there.
    """
    first = search(content_words(question), K)
    wanted = left_open(question, first, search)
    second = search(wanted, K, without=first)
    found = [*first, *second]
    fits = asyncio.run(_fits(rg.engine, question, found)) if by_likelihood and found else []
    read = [found[fits.index(max(fits))]] if fits else found
    with rg.run(question, name="try") as run:
        for query, passages in ((question, first), (" ".join(wanted) or question, second)):
            got = [one for one in passages if one in read]
            run.retrieved(query, got, candidates=passages, k=len(passages) or None)
        answer = asyncio.run(_answer(rg.engine, question, read)) if found else ""
        run.answered(answer)
    done = rg.flush(timeout=SCORING_S)
    for item in rg.runs():
        if item.id == run.id:
            screen().print(hop_table(item, rg.scores(item.id), rg.failures(item.id)))
    if not found:
        say("No passage has a word of this question; ask it in the words of the texts.")
    elif not second:
        say("The second search found no other passage.")
    for hop, passages in enumerate((first, second), 1):
        for number, passage in enumerate(passages, 1):
            best = "  fits the question best; the model read this one" if fits and passage in read else ""
            say(f"  {hop}.{number}  {passage.id or '(no id)'}{best}")
    return bool(done) and not rg.failures(run.id)


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


def _finish(out: Path, stopped: bool, browser: bool) -> None:
    """Writes the page of all runs in the store, says where it is, and opens it."""
    page = out / "report.html"
    try:
        write_html(open_source(out / "ragguard.db").overviews(MISLEADS), page, "ragguard: your own texts")
    except InvalidInput:  # stopped before the first answer
        say("stopped before anything was answered")
        return
    say(f"\n{'stopped; what is done is' if stopped else 'written to'} {page}")
    if browser and sys.stdout.isatty():
        webbrowser.open(page.absolute().as_uri())
