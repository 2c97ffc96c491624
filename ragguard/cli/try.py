# ruff: noqa: N999 - a module is named as its command
"""`ragguard try FOLDER QUESTION …`: answers questions from the user's own texts, and scores the search."""

from __future__ import annotations

import asyncio
import sys
import time
import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from ragguard.analysis.hops import COLOURS, judged
from ragguard.analysis.page import write_html
from ragguard.analysis.wording import as_markup
from ragguard.cli.quotes import AskedQuestion, Fit, QuoteEvidence, Sentence, follow_up, ground
from ragguard.cli.terminal import Column, progress_bar, say, screen, show_table
from ragguard.cli.two_searches import SearchWay, fits_of, load_retriever, means_of, say_better
from ragguard.client import RagGuard
from ragguard.engines.base import Engine
from ragguard.engines.connect import choose, connect
from ragguard.engines.llama.speed import tokens_a_second, waits_for_a_core
from ragguard.engines.prompts import load_prompts
from ragguard.errors import InvalidInput
from ragguard.facts.run_facts import SHOWN_INSTEAD
from ragguard.facts.run_view import HopView, RunView
from ragguard.records import Passage
from ragguard.scorers.exam.record import heeded, known_record
from ragguard.storage.source import open_source
from ragguard.storage.sqlite.score_rows import RunMeans
from ragguard.text.chunks import WORDS
from ragguard.text.folder import Texts, read_folder
from ragguard.text.numbers import as_shown
from ragguard.text.plain import counted
from ragguard.text.search import Search

K = 3
"""The passages of one search."""
ANSWER_TOKENS = 32
SCORING_S = 600.0
LEGEND = (
    "fit: how much likelier a passage makes the search's query (0 or less = not at all, above 2 = well); repeating the "
    "query counts, too. Sentences are chosen by their words, not by the fit."
)
NOT_READ = "not read: the answer above does not rest on the passage, or there is no answer"
_LOADING = 1_200
"""The tokens that could be read in the time of all that is done once: a small model is loaded, the page is written."""
_ASKED = 350
"""The tokens that a small model computes for a question besides its passages, about."""
_TIMES_READ = 2 * K + 1
"""How often a passage of a question is read: each for its fit and for the answer, the best for the words."""
_CHARACTERS = 4
"""The characters of a token, about."""


def run(
    folder: Annotated[
        Path, typer.Argument(help="A folder with .md, .txt, .rst, .html, .py, .csv, .tsv or .pdf files.")
    ],
    questions: Annotated[list[str], typer.Argument(help="What to ask of the texts; one or more.")],
    engine: Annotated[
        str,
        typer.Option(
            "--engine", "-e", help="The model that answers and scores: auto, smol, a URL, gguf:FILE."
        ),
    ] = "auto",
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder for the store and the page.")] = Path(
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
    """Ask questions of your own texts: the sentence that answers, what disagrees with it, and what is not there.

    The model's own words are shown only if a retrieved sentence has all of their names and numbers. With --against or
    --retriever each question is answered twice, and the last sentence says which search was better. Runs are added to
    the store in --out. After Ctrl-C, finished work stays. Exit code 0: all is answered and scored. 1: something could
    not be scored. 2: nothing could be done.
    """
    if empty := [question for question in questions if not question.strip()]:
        raise InvalidInput("QUESTION", empty[0], "a text that is not empty")
    wordings = against or []
    if wordings and (retriever or len(wordings) != len(questions) or not all(map(str.strip, wordings))):
        raise InvalidInput("--against", wordings[0], "another wording for each question, without --retriever")
    of_user = load_retriever(retriever) if retriever else None
    began = time.perf_counter()
    texts = read_folder(folder)
    address = choose(smol=True).address if engine == "auto" else engine
    search = Search(texts.passages)
    ways = [SearchWay("", questions, search)]
    if of_user:
        ways.append(SearchWay(f"--retriever {retriever}", questions, of_user))
    elif wordings:
        ways.append(SearchWay("the other wording", wordings, search))
    reader = Reader(connect(address), address)
    say(_about(texts, folder, reader, len(questions) * len(ways)))
    out.mkdir(parents=True, exist_ok=True)
    code = 0
    means: list[list[RunMeans]] = [[] for _ in ways]
    scorers, why_unjudged = asyncio.run(reader.scorers())
    with RagGuard(reader.engine, scorers=scorers, store=out / "ragguard.db", exit_timeout=0.0) as rg:
        trial = Trial(rg, search, reader)
        try:
            with progress_bar("", total=2 * len(questions) * len(ways)) as update:
                for number, question in enumerate(questions):
                    for way, whose in zip(ways, means, strict=True):
                        update(description=f"question {number + 1} of {len(questions)}: reads and answers")
                        asked = trial.ask(question, way, number)
                        update(advance=1, description=f"question {number + 1} of {len(questions)}: scores")
                        is_whole = trial.show(asked, way.name)
                        if len(ways) > 1:
                            whose.append(trial.means(asked))
                        code = code if is_whole else 1
                        update(advance=1)
        except KeyboardInterrupt:
            code = 130
        fit = LEGEND if reader.is_small else ""
        say("\n" + "\n".join(filter(None, (why_unjudged or fit, NOT_READ))))
        if len(ways) > 1 and means[1]:
            say_better(*means)
        page = out / "report.html"
        write_html(open_source(out / "ragguard.db").overviews(), page, f"ragguard: {folder.resolve().name}")
        say(f"\n{'stopped; what is done is in' if code == 130 else 'written to'} {page}")
    if browser and sys.stdout.isatty():
        webbrowser.open(page.absolute().as_uri())
    say(f"{time.perf_counter() - began:.1f} s")
    if code:
        raise typer.Exit(code)


@dataclass(frozen=True, slots=True)
class Reader:
    """The model that answers."""

    engine: Engine
    address: str

    @property
    def is_small(self) -> bool:
        """True for a model that NumPy computes: slow, and mostly too small to judge by label."""
        return self.address == "smol" or self.address.startswith("gguf:")

    @property
    def name(self) -> str:
        """The name in the output."""
        return "smol" if self.address == "smol" else "the model"

    async def scorers(self) -> tuple[list[str] | None, str]:
        """Returns the scorers to use, None for the usual ones, and why passages get no verdict: by label judges only
        a model that passed its examination."""
        if self.is_small or self.address == "nano" or not heeded():
            return (["likelihood"] if self.is_small else None), ""
        info = await self.engine.info()
        record = known_record(info, load_prompts(info.prompts))
        failed = {} if record is None else record.failed
        if record is not None and not record.brief and not failed.keys() & {"abstention", "relevance"}:
            return None, ""
        why = record.remark if record is not None and failed else f"{info.model} has not been examined"
        way_out = "" if failed else f"; `ragguard doctor {self.address} --exam` examines it"
        likely = ["likelihood"] if "continuations" in info.capabilities else []
        return likely, f"No verdicts on passages: {why}{way_out}."

    async def answer(self, question: str, passages: Sequence[Passage]) -> str:
        """Returns the first line of the model's answer from some passages."""
        texts = "\n\n".join(passage.text for passage in passages)
        prompt = f"{texts}\n\nAnswer from this text, in a few words.\nQuestion: {question}"
        answers = await self.engine.sample([prompt], n=1, max_tokens=ANSWER_TOKENS, temperature=0)
        text = answers[0][0].text
        if not answers[0][0].finished:  # the last word may be cut
            text = " ".join(text.rsplit(maxsplit=1)[:-1]) if "\n" not in text.strip() else text
        return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _about(texts: Texts, folder: Path, reader: Reader, asked: int) -> str:
    """Says what was read, who answers, and how long that takes."""
    skipped = "".join(f"; {remark}" for remark in texts.remarks)
    read = f"{counted(texts.files, 'file')}, {counted(len(texts.passages), 'passage')}"
    about = f"{folder}: {read}{skipped}. Answers and numbers: {reader.address}"
    if reader.is_small:
        passage = sum(len(passage.text) for passage in texts.passages) / len(texts.passages) / _CHARACTERS
        tokens = _LOADING + asked * (_ASKED + _TIMES_READ * passage)
        seconds = tokens / tokens_a_second() * waits_for_a_core()
        about += f", a small model that is often wrong (--engine names yours); about {seconds:.0f} s"
        about += f". A question reads at most {2 * K} passages of at most {WORDS} words"
    return f"{about}."


class TrialReply(NamedTuple):
    """The answer to a question."""

    lines: Sequence[str]
    """The lines that are said of it."""
    answer: str = ""
    """The model's own words; "" if they are not shown: a quote is no answer."""
    read: Sequence[Passage] = ()
    """The passages that the answer or the quotes are from; none for sentences that may not answer."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question that was answered."""

    question: AskedQuestion
    run_id: str
    passages: Sequence[Passage]
    """The passages of all searches, in the order of the searches."""
    reply: TrialReply


@dataclass(frozen=True, slots=True)
class Trial:
    """Asks questions of some texts, and shows what came of it."""

    rg: RagGuard
    search: Search
    reader: Reader

    def ask(self, text: str, way: SearchWay, number: int) -> Asked:
        """Searches, a second time if the first search leaves something open that another text goes on with, lets the
        model read, and hands the run to be scored."""
        question, wording = AskedQuestion(text, self.search), way.wordings[number]
        first = way.find(wording, K, ())
        evidence = question.evidence(first)
        searches: list[tuple[str, Sequence[Passage]]] = [(wording, first)]
        first_sentence = None
        if then := follow_up(question, evidence, first, self.search):
            second = then.known or way.find(then.query, K, first)
            if not then.known:
                searches.append((then.query, second))
            later = AskedQuestion(then.query, self.search).evidence(second)
            if later.best and later.fit is Fit.GOOD and question.wants(later.best.text) is not False:
                first_sentence, evidence = evidence.best, later
            else:
                evidence = replace(evidence, fit=Fit.POOR, missing=later.missing)
        passages = [passage for _, results in searches for passage in results]
        reply = self._answer(question, evidence, first_sentence, passages)
        shown = {} if reply.answer else {SHOWN_INSTEAD: " ".join(reply.lines)}
        with self.rg.run(text, name="try", metadata=shown) as run:
            for query, results in searches:
                read = [passage for passage in results if passage in reply.read]
                run.retrieved(query, read, candidates=results, k=len(results) or None)
            if reply.answer:
                run.answered(reply.answer)
        return Asked(question, run.id, passages, reply)

    def _answer(
        self,
        question: AskedQuestion,
        evidence: QuoteEvidence,
        first: Sentence | None,
        passages: Sequence[Passage],
    ) -> TrialReply:
        """Returns the answer to a question.

        A small model in the process is given the passage that fits best, and no other: with more, it mostly misses what
        is there.
        """
        best = evidence.best
        if best is None:
            return TrialReply(
                ["Not found: no passage has a word of this question. Ask it in the words of the texts."]
            )
        lacks = [f"no passage that was retrieved has {_either(evidence.missing)}"] if evidence.missing else []
        before, stated = [_quoted(first)] if first else [], [best, *evidence.rivals]
        quotes = [*before, *map(_quoted, stated)]
        if evidence.fit is Fit.NONE:
            why = "".join(f": {lack}" for lack in lacks)
            return TrialReply([f"Not there, as far as words show{why}. The nearest sentence:", _quoted(best)])
        doubts = []
        if evidence.elsewhere:
            doubts.append(f"its passage does not have {_either(evidence.elsewhere)}")
        says_nothing = evidence.question.open_words(best)
        if says_nothing and (others := [word for word in says_nothing if word not in evidence.missing]):
            doubts.append(f"it does not have {_either(others)}")
        if turning := question.reversed_by(best.text):
            doubts.append(f"it says “{turning}” of another name")
        if question.kind and not question.wants(best.text):
            doubts.append(f"it seems to have no {question.kind.name}, which is asked for")
        is_poor = evidence.fit is Fit.POOR or bool(says_nothing or doubts)
        sentences = "sentences" if evidence.rivals else "sentence"
        reasons = "; ".join([*lacks, *doubts])
        nearest = f"The nearest {sentences}, which may or may not answer{reasons and f': {reasons}'}."
        if is_poor and self.reader.is_small:
            return TrialReply([nearest, *quotes])
        remark = [f"{lack[0].upper()}{lack[1:]}." for lack in lacks]
        if evidence.rivals and not is_poor:
            said = f"{len(stated)} passages fit about equally and differ; you decide which one is right:"
            return TrialReply([said, *quotes, *remark], read=[sentence.passage for sentence in stated])
        read = [*([first.passage] if first else []), best.passage] if self.reader.is_small else passages
        answer = asyncio.run(self.reader.answer(question.text, read))
        grounding = ground(answer, question, evidence, read)
        if (holder := grounding.sentence) and (not self.reader.is_small or holder.text == best.text):
            said = f"{answer}   ({self.reader.name}'s words, from this sentence)"
            return TrialReply([said, *before, _quoted(holder), *remark], answer, read)
        unseen = f"{self.reader.name}'s own words are not shown: {grounding.why or 'they are in another sentence'}."
        if is_poor:
            return TrialReply([nearest, *quotes, unseen])
        return TrialReply(["The sentence that fits best, a quote:", *quotes, unseen, *remark], read=read)

    def show(self, asked: Asked, way: str) -> bool:
        """Waits for the scores of a run and prints it; returns whether it has all."""
        is_done = self.rg.flush(timeout=SCORING_S)
        failures = self.rg.failures(asked.run_id) if asked.reply.read else []
        run = next(run for run in self.rg.runs() if run.id == asked.run_id)
        view = RunView(run, self.rg.scores(run.id), failures)
        console = screen()
        named = f" ({way})" if way else ""
        console.print(f"\n[bold]{as_markup(asked.question.text)}[/]{named}")
        for line in asked.reply.lines:
            say(f"  {line}")
        before, gained = view.find("likelihood_closed_book"), view.find("delta_likelihood_total")
        if before and gained:
            ends = f"{as_shown(before.value):.2f} before reading, {as_shown(before.value + gained.value):.2f} after"
            say(f"  How likely {self.reader.name} finds a word of its answer, from 0 to 1: {ends}.")
        for hop in view.hops:
            console.print(f"search {hop.number}: {as_markup(hop.step.query)}")
            self._show_passages(asked.question, hop)
        for why in {failure.message for failure in failures}:
            say(f"  not scored: {why}")
        return bool(is_done) and not failures

    def _show_passages(self, question: AskedQuestion, hop: HopView) -> None:
        """Prints the passages of a search: of each the part that fits the question best, and what is known of it."""
        fits = judged(hop.scores)
        worth = [
            fits.get(item.rank, "") if item.utility is None else f"utility {as_shown(item.utility):+z.2f}"
            for item in hop.passages
        ]
        verdicts = [f"[{COLOURS[item.tone]}]{as_markup(item.verdict.words)}[/]" for item in hop.passages]
        if hop.number > 1:  # a follow-up quotes what answers its own query
            question = AskedQuestion(hop.step.query, self.search)
        parts = [as_markup(question.best_part(item.passage)) for item in hop.passages]
        columns = [
            Column("", [f"{hop.number}.{item.rank}" for item in hop.passages]),
            Column(
                "its sentence that fits best",
                parts,
                least=30,
            ),
            Column("from", [as_markup(item.passage.id) for item in hop.passages]),
            Column("judged", worth, spare=2),
            Column("", verdicts, spare=1),
        ]
        if hop.passages:
            show_table(screen(), "", [column for column in columns if any(column.cells)])

    def means(self, asked: Asked) -> RunMeans:
        """Returns what can be compared of a question."""
        text, fits = asked.question.text, list[float]()
        if self.reader.is_small:
            fits = asyncio.run(fits_of(self.reader.engine, text, asked.passages))
        return means_of(text, self.rg.scores(asked.run_id), fits)


def _either(words: Sequence[str]) -> str:
    return " or ".join(f"“{word}”" for word in words)


def _quoted(sentence: Sentence) -> str:
    where = sentence.passage.metadata.get("heading", "")
    return f"“{sentence.text}”  {sentence.passage.id}{f', {where}' if where else ''}"
