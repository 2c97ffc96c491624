"""`ragguard doctor`: what an engine is, how exact and how fast, and what to change; with --exam, what it can judge."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from time import monotonic, perf_counter
from typing import Annotated, Any

import typer

from ragguard.cli.scoring_options import PromptSetName
from ragguard.cli.terminal import progress_bar, say
from ragguard.engines.base import Engine, Prompt
from ragguard.engines.connect import connect, open_engine
from ragguard.engines.engine import only_of
from ragguard.engines.layers import Patience, Retry
from ragguard.engines.prompts import PromptSet, load_prompts
from ragguard.errors import EngineError, EngineRejected, StoreError, shown_apart
from ragguard.lab.exam.examination import examine as examine_model
from ragguard.lab.exam.examination import repeated
from ragguard.records import Passage, RetrievalStep, Run
from ragguard.scorers.exam.record import ABOUT, NEEDED, ExamRecord, answers_file, keep_record, record_file
from ragguard.scorers.settings import ADDRESSES, ScoringSettings
from ragguard.text.secret_filter import without_secrets

_MANY, _SAMPLES = 64, 10
_MEASURED_S = 2.0
"""Seconds that the prompts of the measurement would take one after the other, by the first call's latency."""
_PATIENCE_S = 5.0
"""Seconds after which the measurement is given up."""
_ONCE = Patience(attempts=1, total=8.0)
"""Repeats only what a server asks to repeat within seconds, so that one that is not there, or says to come back much
later, is said at once."""
_EXACTNESS = {
    "first_token": "the first token of each label",
    "sequence": "each whole label",
    "sampled": "shares of sampled answers",
}


def run(
    engine: Annotated[str, typer.Argument(help=f"{ADDRESSES}.")] = "auto",
    prompts: PromptSetName = None,
    speed: Annotated[
        bool, typer.Option("--speed", help=f"Measure {_MANY} prompts, however long they take.")
    ] = False,
    exam: Annotated[
        bool,
        typer.Option(
            "--exam",
            help="Examine what the model can judge, with about 400 short prompts, and store the result.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check an engine: what it can do, how exact and how fast it is, and what a run costs.

    Exit code 0: ready. 1: it cannot be reached, or cannot judge by label; with --exam: it failed in something. 2: no
    such engine.

    \b
    With OPENAI_API_KEY set; Ollama and llama.cpp need no key (Azure and others:
    docs/how-to/engines.md):
    ragguard doctor "https://api.openai.com/v1#gpt-4o-mini"
    ragguard doctor "http://localhost:11434/v1#llama3.2"
    ragguard doctor http://localhost:8080/v1
    """
    try:
        ready = _show_exam(engine, prompts, as_json) if exam else _measure(engine, prompts, as_json, speed)
    except EngineError as error:
        missed = "examined" if exam else "ready"
        say(f"{without_secrets(engine)}: not {missed}\n{type(error).__name__}: {error}", error=True)
        ready = False
    if not ready:
        raise typer.Exit(1)


def _measure(engine: str, prompts: str | None, as_json: bool, speed: bool) -> bool:
    """Asks an engine for its properties and measures it; returns whether it is ready."""
    findings = Findings(quiet=as_json)
    asyncio.run(_examine(engine, prompts, findings, speed=speed))
    say(json.dumps(findings.data, indent=2, ensure_ascii=False) if as_json else _verdict(findings.data))
    return bool(findings.data["ready"] != "not ready")


class Findings:
    """The properties of an engine and its speed: said line by line, and kept as plain data."""

    def __init__(self, *, quiet: bool) -> None:
        self.data: dict[str, Any] = {"failures": {}}
        self._quiet = quiet

    def tell(self, name: str, text: str, **data: object) -> None:
        """Says a line as soon as it is known, and keeps the numbers in it."""
        self.data |= data
        if not self._quiet:
            say(f"{name:<11} {text}")

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Examines a part; a failure is printed, and the others are examined all the same."""
        try:
            yield
        except EngineError as error:
            self.data["failures"][name] = failure = f"{type(error).__name__}: {error}"
            self.tell(name, f"failed: {failure}")


async def _examine(address: str, prompts: str | None, findings: Findings, *, speed: bool) -> None:
    async with aclosing(Retry(open_engine(address), _ONCE)) as engine:
        info = await engine.info()
        chosen = load_prompts(prompts or info.prompts)
        capabilities = sorted(info.capabilities)
        context = f"{info.context} tokens of context" if info.context else "context unknown"
        identity = {"location": info.location, "kind": info.kind, "fingerprint": info.fingerprint}
        findings.tell("engine", f"{info.location} ({info.kind})", **identity)
        model_line = f"{info.model}, {context}, prompts {chosen.identity}"
        findings.tell("model", model_line, model=info.model, context=info.context, prompts=chosen.identity)
        can = ", ".join(capabilities) or "nothing beyond plain answers"
        findings.tell("can", can, capabilities=capabilities, notes=info.notes)
        for note in info.notes:
            findings.tell("note", note)
        latency = _MEASURED_S
        if only_of(engine) == "ranks":
            await _ranks(engine, chosen, findings)
            return
        with findings.part("labels"):
            latency = await _labels(engine, chosen, findings)
        with findings.part("samples"):
            await _samples(engine, chosen, _SAMPLES if latency < _MEASURED_S / 4 else 2, findings)
        if "labels" not in findings.data["failures"]:
            with findings.part("speed"):
                many = min(_MANY, _MEASURED_S / max(latency, 1e-3)) / info.label_requests
                await _speed(engine, chosen, findings, None if speed else max(1, int(many)))
        await _cost(engine, chosen, findings.data, latency)


def _questions(prompts: PromptSet, numbers: Iterable[int]) -> list[Prompt]:
    """Returns questions that no cache of a server knows yet, in words and digits that every model can read."""
    firms = [" ".join(f"{number:04}") for number in numbers]
    return [
        prompts.render("relevance", [f"Ada Berg founded firm {firm}."], query=f"Who founded firm {firm}?")
        for firm in firms
    ]


async def _labels(engine: Engine, prompts: PromptSet, findings: Findings) -> float:
    """Asks the first question, and returns how many seconds it took."""
    began = perf_counter()
    first = await engine.label_probs(_questions(prompts, [0]), prompts.labels("relevance"))
    latency = perf_counter() - began
    mass, bound = min(1.0, float(first.mass[0])), first.bound is not None
    exactness = "exact" if first.exact else "estimated" if first.mode == "sampled" else "partly upper bounds"
    findings.tell("labels", f"{exactness}: {_EXACTNESS[first.mode]}", mode=first.mode, exact=first.exact)
    told = f"{'at most ' if bound else ''}{mass:.1%} on the labels of a relevance question"
    can = set(findings.data["capabilities"])
    if can & {"decisions", "typed_questions"} and "label_mass" not in can:
        told = "the server does not give it: nobody notices if the judge would rather give another answer"
    findings.tell("label mass", told, label_mass=mass, mass_is_bound=bound)
    findings.tell("1 prompt", f"{latency * 1000:.1f} ms, the first one", one_ms=latency * 1000)
    return latency


async def _ranks(engine: Engine, prompts: PromptSet, findings: Findings) -> None:
    """Asks a reranker about ten passages."""
    asked, began = _questions(prompts, [0] * 10), perf_counter()
    with findings.part("scores"):
        await engine.label_probs(asked, prompts.labels("relevance"))
        ms = (perf_counter() - began) * 1000
        findings.tell("scores", f"of 10 passages in {ms:.1f} ms, one request for a query", ten_ms=ms)
    findings.data["ready"] = "not ready" if findings.data["failures"] else "ranks"


async def _samples(engine: Engine, prompts: PromptSet, count: int, findings: Findings) -> None:
    asked = prompts.render("answer_closed", question="Who founded firm 1?")
    began = perf_counter()
    samples = await engine.sample([asked], n=count, max_tokens=8)
    ms = (perf_counter() - began) * 1000
    logprobs = any(answer.logprobs for answer in samples[0])
    told = f"{count} in {ms:.0f} ms, {'with' if logprobs else 'without'} log-probabilities"
    findings.tell("samples", told, samples=count, samples_ms=ms, sample_logprobs=logprobs)


async def _speed(engine: Engine, prompts: PromptSet, findings: Findings, some: int | None) -> None:
    """Measures one call of some prompts; None: of many, without a deadline."""
    many, deadline = some or _MANY, monotonic() + _PATIENCE_S if some else None
    asked, began = _questions(prompts, range(1, many + 1)), perf_counter()
    await engine.label_probs(asked, prompts.labels("relevance"), deadline=deadline)
    many_ms = (perf_counter() - began) * 1000
    rate = many / many_ms * 1000
    told = f"{many_ms:.1f} ms, {rate:.1f} a second"
    findings.tell(f"{many} prompts", told, many=many, many_ms=many_ms, per_second=rate)


async def cost_of_a_hop(address: str) -> str:
    """Returns what scoring a run of one hop with five passages takes, by two short questions; raises EngineError."""
    findings = Findings(quiet=True)
    async with aclosing(Retry(open_engine(address), _ONCE)) as engine:
        info = await engine.info()
        prompts = load_prompts(info.prompts)
        findings.data["capabilities"] = sorted(info.capabilities)
        latency = await _labels(engine, prompts, findings)
        await _samples(engine, prompts, 2, findings)
        await _cost(engine, prompts, findings.data, latency)
    return _cost_words(findings.data)


def _cost_words(data: Mapping[str, Any]) -> str:
    return (
        f"a run of one hop with five passages takes {data['requests']:,} requests, {data['tokens']:,} tokens, about "
        f"{data['seconds']:.1f} s"
    )


async def _cost(engine: Engine, prompts: PromptSet, data: dict[str, Any], latency: float) -> None:
    """Adds what a run of one hop with five passages takes, and whether the engine is ready for it."""
    passages = [Passage(f"Ada Berg founded firm {number}.") for number in range(5)]
    question = "Who founded firm 1?"
    step = RetrievalStep(query=question, passages=passages)
    run = Run(question=question, references=["Ada Berg"], answer="Ada Berg", steps=[step])
    plan = await ScoringSettings(engine=engine, prompts=prompts).build().plan(run)
    label_s = 1 / data["per_second"] if "per_second" in data else latency
    seconds = {"sample": data.get("samples_ms", 0.0) / 1000}
    data["fit"] = data.get("label_mass", 0.0) >= 0.5
    data |= {
        "requests": plan.total.requests,
        "tokens": plan.total.prompt_tokens + plan.total.output_tokens,
        "seconds": sum(cost.prompts * seconds.get(verb, label_s) for (_, verb), cost in plan.calls.items()),
        "ready": "not ready"
        if not data["fit"] or "samples_ms" not in data
        else ("exact" if data["exact"] else "estimated"),
    }


def _verdict(data: dict[str, Any]) -> str:
    """Returns the last line: what the engine is ready for, what a run costs, and what to change."""
    if data["ready"] == "ranks":
        return (
            "ready as a judge of relevance: run --exam, which turns its scores into probabilities; then give it as "
            "`judge=` beside an engine that reads"
        )
    if data["ready"] == "not ready":
        if data["failures"].keys() & {"labels", "samples", "scores"}:
            return "not ready: fix what failed above"
        likelihood = "--scorers likelihood works; for the others "
        return (
            "not ready: the model puts too little probability on the labels, so relevance, grades and ratings would "
            f"fail; {likelihood if 'continuations' in data['capabilities'] else ''}"
            "use a larger instruction-tuned model"
        )
    change = "" if data["exact"] else "; for exact values serve the model with vLLM"
    return f"ready: {data['ready']}; {_cost_words(data)}{change}"


def _show_exam(engine: str, prompts: str | None, as_json: bool) -> bool:
    """Examines an engine, shows its figures and keeps them; returns whether it passed in everything.

    A stopped examination goes on where it was when it is started again.
    """
    answers = answers_file(f"{engine} ")
    record, path = asyncio.run(_examined(engine, prompts, answers))
    kept = keep_record(record, path)
    if as_json:
        say(json.dumps(asdict(record) | {"failed": record.failed, "kept": kept}, indent=2))
    else:
        _show(record)
    if not kept:
        raise StoreError(f"not stored: {path.parent} cannot be written; set RAGGUARD_EXAMS to another folder")
    answers.unlink(missing_ok=True)
    say(f"kept in {path}", error=True)
    return not record.failed


async def _examined(address: str, prompts: str | None, answers: Path) -> tuple[ExamRecord, Path]:
    answers.parent.mkdir(parents=True, exist_ok=True)
    async with aclosing(Retry(open_engine(address), _ONCE)) as first:
        info = await first.info()
    async with aclosing(connect(address, cache=answers)) as asked:
        given = load_prompts(prompts or info.prompts)
        if given.name == "nano":
            raise EngineRejected(
                "nano knows only its own made-up world and no English: `make evaluate-nano` examines it there, and "
                "its model card has the figures"
            )
        spread = {}
        if info.location.startswith("http"):  # a model in this process repeats itself
            async with aclosing(Retry(open_engine(address))) as uncached:
                spread = await repeated(uncached, given)
        with progress_bar("examining", total=1) as update:
            record = await examine_model(asked, given, lambda done, of: update(total=of, completed=done))
    return replace(record, spread=spread), record_file(info, given)


def _show(record: ExamRecord) -> None:
    """Prints each figure with what is needed, and what failing means."""
    say(f"{record.model}, prompts {record.prompts}, {record.seconds:.0f} s")
    for name, about in ABOUT.items():
        figure = record.figures.get(name)
        ends = record.intervals.get(name)
        value, needed = "   –" if figure is None else f"{figure:.2f}", NEEDED.get(name)
        verdict = record.failed.get(name) and (
            "FAILED" if figure is not None else f"FAILED: {record.reasons[name]}"
        )
        least = ""
        if figure is not None and needed is not None:
            shown, limit = shown_apart(figure, needed)
            value, least = value if figure >= needed else shown, f" (at least {limit})"
        if ends is not None:
            about += f", 95 % {ends[0]:.2f} to {ends[1]:.2f}"
        if name in record.in_doubt:
            verdict = "in doubt"
        say(f"  {value}  {about}{least}{'  ' + verdict if verdict else ''}")
    if record.spread:
        parts = ", ".join(
            f"{record.spread[one]:.4f} for {one}"
            for one in ("abstention", "relevance")
            if one in record.spread
        )
        say(
            f"  asked again: the same question differs by {parts} (standard deviation of 5 answers), the first answer "
            f"from later ones by {record.spread['cold']:.4f}; scores have at least that error"
        )
    if not record.failed:
        say("passed in everything: all of its scores are given")
        return
    instead = (
        " Relevance is judged by the likelihood of the query instead." if record.replaces_relevance else ""
    )
    say(f"Scores that need what failed are not given; a failure says why.{instead}")
