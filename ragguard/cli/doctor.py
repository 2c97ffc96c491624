"""`ragguard doctor`: what an engine is, how exact and how fast, and what to change; with --exam, what it can tell."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from time import monotonic, perf_counter
from typing import Annotated

import typer

from ragguard.cli.terminal import ENGINES, PromptSetName, notes, progress_bar, say
from ragguard.engines.base import Engine, EngineInfo, Prompt
from ragguard.engines.connect import connect, open_engine
from ragguard.engines.layers import Patience, Retry
from ragguard.engines.prompts import PromptSet, load_prompts
from ragguard.errors import EngineError, EngineRejected, shown_apart
from ragguard.records import Passage, RetrievalStep, Run
from ragguard.scorers.exam.examination import examine as examine_model
from ragguard.scorers.exam.examination import repeated
from ragguard.scorers.exam.record import ABOUT, NEEDED, ExamRecord, answers_file, keep_record, record_file
from ragguard.scorers.settings import ScoringSettings
from ragguard.text.secret_filter import without_secrets

_MANY, _ROUNDS, _SAMPLES = 64, 5, 10
_MEASURED_S = 2.0
"""Seconds that the prompts of the short measurement would take one after the other, by the first call's latency."""
_PATIENCE_S = 5.0
"""Seconds after which the short measurement is given up."""
_EXACTNESS = {
    "first_token": "the first token of each label",
    "sequence": "each whole label",
    "sampled": "shares of sampled answers",
}
Tell = Callable[[str, str], None]
"""Takes the name and the value of one line, as soon as it is known."""


@dataclass(slots=True)
class Examination:
    """The identity of an engine, and how exactly and how fast it answers; None where a part failed."""

    model: str
    kind: str
    location: str
    fingerprint: str
    context: int | None
    prompts: str
    capabilities: tuple[str, ...]
    notes: tuple[str, ...]
    mode: str | None = None
    """The way in which labels are answered: first_token, sequence or sampled."""
    exact: bool | None = None
    label_mass: float | None = None
    """The probability that the labels of a relevance question have together; low where a model chats instead."""
    mass_is_bound: bool | None = None
    sample_logprobs: bool | None = None
    one_ms: float | None = None
    """Milliseconds for one prompt."""
    many: int | None = None
    """How many prompts were sent in one call to measure the speed."""
    many_ms: float | None = None
    """Milliseconds for so many prompts in one call; with `--speed` the median of five calls."""
    samples: int | None = None
    """How many samples of one prompt were drawn to measure the speed."""
    samples_ms: float | None = None
    """Milliseconds for so many samples of one prompt."""
    requests: int | None = None
    """The requests that the default scorers send for a run of one hop with five passages."""
    tokens: int | None = None
    """The tokens that are read and at most written for such a run."""
    seconds: float | None = None
    """The time that such a run takes alone, by the measured speed."""
    failures: dict[str, str] = field(default_factory=dict)
    """The parts that failed, each with its error."""

    @property
    def fit(self) -> bool:
        """True where the engine can judge by label."""
        return self.label_mass is not None and self.label_mass >= 0.5

    @property
    def per_second(self) -> float | None:
        """Prompts per second when many of them are sent in one call."""
        return self.many / self.many_ms * 1000 if self.many and self.many_ms else None

    @property
    def ready(self) -> str:
        """Returns `exact`, `estimated` or `not ready`."""
        if not self.fit or self.samples_ms is None:
            return "not ready"
        return "exact" if self.exact else "estimated"


def run(
    engine: Annotated[str, typer.Argument(help=f"{ENGINES}.")] = "auto",
    model: Annotated[
        str | None, typer.Option("--model", help="The model, where a server has several.")
    ] = None,
    prompts: PromptSetName = None,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds to wait for one answer.")] = 120.0,
    speed: Annotated[
        bool, typer.Option("--speed", help=f"Measure longer: {_ROUNDS} calls of {_MANY} prompts.")
    ] = False,
    exam: Annotated[
        bool,
        typer.Option("--exam", help="Examine what it can tell, on 150 short cases, and keep the result."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Ask an engine for its properties, how exact it is, how fast it is, and what a run costs.

    Exit code 0: ready. 1: it cannot be reached, or cannot judge by label; with --exam: it failed in something. 2: no
    such engine.

    \b
    With OPENAI_API_KEY set; Ollama and llama.cpp need no key (Azure and others:
    docs/how-to/engines.md):
    ragguard doctor "https://api.openai.com/v1#gpt-4o-mini"
    ragguard doctor "http://localhost:11434/v1#llama3.2"
    ragguard doctor http://localhost:8080/v1
    """

    def tell(name: str, value: str) -> None:
        if not as_json:
            say(f"{name:<11} {value}")

    if exam:
        show_exam(engine, model=model, timeout_s=timeout, prompts=prompts, as_json=as_json)
        return
    try:
        found = asyncio.run(_examine(engine, model, timeout, prompts, speed, tell))
    except EngineError as error:
        say(f"{without_secrets(engine)}: not ready\n{type(error).__name__}: {error}", error=True)
        raise typer.Exit(1) from error
    if as_json:
        properties = {"per_second": found.per_second, "fit": found.fit, "ready": found.ready}
        say(json.dumps(asdict(found) | properties, indent=2, ensure_ascii=False))
    else:
        say(_verdict(found))
    if found.ready == "not ready":
        raise typer.Exit(1)


async def _examine(
    engine: str, model: str | None, timeout_s: float, prompts: str | None, speed: bool, tell: Tell
) -> Examination:
    given = None if prompts is None else load_prompts(prompts)
    # Nothing is repeated but what a server asks to repeat later.
    patient = Patience(attempts=1)
    async with aclosing(Retry(open_engine(engine, model=model, timeout_s=timeout_s), patient)) as opened:
        return await examine(opened, given, speed=speed, tell=tell)


async def examine(engine: Engine, prompts: PromptSet | None, *, speed: bool, tell: Tell) -> Examination:
    """Returns what an engine says about itself, and how exactly and how fast it answers; a part that fails is noted
    in `failures`, and the others are examined all the same."""
    info = await engine.info()
    prompts = prompts or load_prompts(info.prompts)
    found = Examination(
        model=info.model, kind=info.kind, location=info.location, fingerprint=info.fingerprint,
        context=info.context, prompts=prompts.identity, capabilities=tuple(sorted(info.capabilities)),
        notes=info.notes,
    )  # fmt: skip
    context = f"{info.context} tokens of context" if info.context else "context unknown"
    tell("engine", f"{info.location} ({info.kind})")
    tell("model", f"{info.model}, {context}, prompts {prompts.identity}")
    tell("can", ", ".join(found.capabilities) or "nothing beyond plain answers")
    for note in info.notes:
        tell("note", note)

    @asynccontextmanager
    async def part(name: str) -> AsyncIterator[None]:
        try:
            yield
        except EngineError as error:
            found.failures[name] = f"{type(error).__name__}: {error}"
            tell(name, f"failed: {found.failures[name]}")

    latency = _MEASURED_S
    async with part("labels"):
        latency = await _labels(engine, prompts, found, tell)
    async with part("samples"):
        found.samples = _SAMPLES if speed or latency < _MEASURED_S / 4 else 2
        await _samples(engine, prompts, found, tell)
    if "labels" not in found.failures:
        async with part("speed"):
            await _speed(engine, prompts, found, tell, info, None if speed else latency)
    await _cost(engine, prompts, found, latency)
    return found


def _questions(prompts: PromptSet, number: int, round_: int) -> list[Prompt]:
    # Each question is new, so that no cache of the server makes it look faster; every model can read digits.
    names = [" ".join(f"{round_:02}{i:02}") for i in range(number)]
    return [
        prompts.render("relevance", [f"Ada Berg founded firm {name}."], query=f"Who founded firm {name}?")
        for name in names
    ]


async def _labels(engine: Engine, prompts: PromptSet, found: Examination, tell: Tell) -> float:
    """Asks the first question, and returns how many seconds it took."""
    began = perf_counter()
    first = await engine.label_probs(_questions(prompts, 1, 0), prompts.labels("relevance"))
    latency = perf_counter() - began
    found.mode, found.exact, found.mass_is_bound = first.mode, first.exact, first.bound is not None
    found.label_mass = min(1.0, float(first.mass[0]))
    exactness = "exact" if first.exact else "estimated" if first.mode == "sampled" else "partly upper bounds"
    tell("labels", f"{exactness}: {_EXACTNESS[first.mode]}")
    can = set(found.capabilities)
    if can & {"decisions", "typed_questions"} and "label_mass" not in can:
        tell(
            "label mass",
            "not told by the server: a judge that would rather say something else is not noticed",
        )
        return latency
    bound = "at most " if found.mass_is_bound else ""
    tell("label mass", f"{bound}{found.label_mass:.1%} on the labels of a relevance question")
    return latency


async def _samples(engine: Engine, prompts: PromptSet, found: Examination, tell: Tell) -> None:
    asked = prompts.render("answer_closed", question="Who founded firm 1?")
    began = perf_counter()
    samples = await engine.sample([asked], n=found.samples or 1, max_tokens=8)
    found.samples_ms = (perf_counter() - began) * 1000
    found.sample_logprobs = any(answer.logprobs for answer in samples[0])
    told = "with" if found.sample_logprobs else "without"
    tell("samples", f"{found.samples} in {found.samples_ms:.0f} ms, {told} log-probabilities")


async def _speed(
    engine: Engine,
    prompts: PromptSet,
    found: Examination,
    tell: Tell,
    info: EngineInfo,
    latency: float | None,
) -> None:
    """Measures one prompt a call and many; `latency` is that of the first call, None to measure as long as it takes."""
    labels = prompts.labels("relevance")
    many, rounds, deadline = _MANY, _ROUNDS, None
    if latency is not None:
        many = max(1, int(min(_MANY, _MEASURED_S / max(latency, 1e-3)) / info.label_requests))
        rounds, deadline = 1, monotonic() + _PATIENCE_S

    async def milliseconds(number: int, first_round: int) -> float:
        times = []
        for round_ in range(first_round, first_round + rounds):
            began = perf_counter()
            await engine.label_probs(_questions(prompts, number, round_), labels, deadline=deadline)
            times.append((perf_counter() - began) * 1000)
        return median(times)

    found.one_ms = await milliseconds(1, 1)
    tell("1 prompt", f"{found.one_ms:.1f} ms")
    found.many, found.many_ms = many, await milliseconds(many, 10) if many > 1 else found.one_ms
    if many > 1:
        tell(f"{many} prompts", f"{found.many_ms:.1f} ms, {found.per_second:.1f} a second")


async def _cost(engine: Engine, prompts: PromptSet, found: Examination, latency: float) -> None:
    """Notes what a run of one hop with five passages takes."""
    passages = [Passage(f"Ada Berg founded firm {number}.") for number in range(5)]
    question = "Who founded firm 1?"
    step = RetrievalStep(query=question, passages=passages)
    plan = await (
        ScoringSettings(engine=engine, prompts=prompts)
        .build()
        .plan(Run(question=question, references=["Ada Berg"], answer="Ada Berg", steps=[step]))
    )
    found.requests, found.tokens = plan.requests, plan.prompt_tokens + plan.output_tokens
    each = {"sample": (found.samples_ms or 0.0) / 1000}
    label_s = 1 / found.per_second if found.per_second else latency
    found.seconds = sum(line.prompts * each.get(line.verb, label_s) for line in plan.lines)


def _verdict(found: Examination) -> str:
    """Returns the last line: what the engine is ready for, what a run costs, and what to change."""
    if found.ready == "not ready":
        if found.failures.keys() & {"labels", "samples"}:
            return "not ready: mend what failed above"
        likelihood = "continuations" in found.capabilities
        return (
            "not ready: the model puts too little on the labels it is asked for: relevance, grades and ratings would "
            f"be failures; {'--scorers likelihood works; for the others ' if likelihood else ''}"
            "use a larger instruction-tuned model"
        )
    change = "" if found.exact else "; for exact values serve the model with vLLM"
    return (
        f"ready: {found.ready}; a run of one hop with five passages takes {found.requests:,} requests, "
        f"{found.tokens:,} tokens, about {found.seconds:.1f} s{change}"
    )


def show_exam(
    engine: str, *, model: str | None, timeout_s: float, prompts: str | None, as_json: bool
) -> None:
    """Examines an engine, shows its figures and keeps them. Exits with 1 where it failed in something.

    A stopped examination goes on where it was when it is started again.
    """
    answers = answers_file(f"{engine} {model or ''}")
    try:
        record, path = asyncio.run(_examined(engine, model, timeout_s, prompts, answers, quiet=as_json))
    except EngineError as error:
        say(f"{without_secrets(engine)}: not examined\n{type(error).__name__}: {error}", error=True)
        raise typer.Exit(1) from error
    kept = keep_record(record, path)
    if kept:
        answers.unlink(missing_ok=True)
    if as_json:
        say(json.dumps(asdict(record) | {"failed": record.failed, "kept": kept}, indent=2))
    else:
        _show(record)
        say(
            f"kept in {path}"
            if kept
            else f"not kept: {path.parent} cannot be written (RAGGUARD_EXAMS names another)"
        )
    if record.failed:
        raise typer.Exit(1)


async def _examined(
    address: str, model: str | None, timeout_s: float, prompts: str | None, answers: Path, *, quiet: bool
) -> tuple[ExamRecord, Path]:
    try:
        answers.parent.mkdir(parents=True, exist_ok=True)
        cache: Path | None = answers
    except OSError:  # nothing is kept there, and a stopped examination begins anew
        cache = None
    once = Patience(attempts=1)  # a server that is not there is said at once
    async with aclosing(Retry(open_engine(address, model=model, timeout_s=timeout_s), once)) as first:
        info = await first.info()
    async with aclosing(connect(address, model=model, timeout_s=timeout_s, cache=cache)) as asked:
        given = load_prompts(prompts or info.prompts)
        if given.name == "nano":
            raise EngineRejected(
                "nano knows its own made-up world alone and no English: `make evaluate-nano` examines it there, and "
                "its model card has the figures"
            )
        spread = {}
        if info.location.startswith("http"):  # a model in this process repeats itself
            async with aclosing(Retry(open_engine(address, model=model, timeout_s=timeout_s))) as uncached:
                spread = await repeated(uncached, given)
        with progress_bar(notes(), "examining", total=1, quiet=quiet) as update:
            record = await examine_model(asked, given, lambda done, of: update(total=of, completed=done))
    return replace(record, spread=spread), record_file(info, given)


def _show(record: ExamRecord) -> None:
    """Prints each figure with what is needed, and what failing means."""
    say(f"{record.model}, prompts {record.prompts}, {record.seconds:.0f} s")
    for name, about in ABOUT.items():
        figure = record.figures.get(name)
        value, needed = "   –" if figure is None else f"{figure:.2f}", NEEDED.get(name)
        verdict = record.failed.get(name) and (
            "FAILED" if figure is not None else f"FAILED: {record.reasons[name]}"
        )
        least = ""
        if figure is not None and needed is not None:
            shown, limit = shown_apart(figure, needed)
            value, least = value if figure >= needed else shown, f" (at least {limit})"
        say(f"  {value}  {about}{least}{'  ' + verdict if verdict else ''}")
    if record.spread:
        parts = ", ".join(f"{record.spread[one]:.4f} for {one}" for one in ("abstention", "relevance"))
        say(
            f"  asked again: the same question differs by {parts} (standard deviation of 5 answers), the first answer "
            f"from later ones by {record.spread['cold']:.4f}; scores have at least that error"
        )
    if not record.failed:
        say("passed in everything: all of its scores are given")
        return
    instead = (
        " Relevance is told by the likelihood of the query instead." if record.replaces_relevance else ""
    )
    say(f"Scores that rest on what failed are not given, with the reason.{instead}")
