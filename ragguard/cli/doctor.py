"""`ragguard doctor`: examines what an engine is, how exact and how fast it is, and what to change."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import aclosing
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ragguard.cli.options import ENGINES
from ragguard.cli.terminal import say
from ragguard.errors import EngineError
from ragguard.text.secret_filter import without_secrets

if TYPE_CHECKING:
    from ragguard.engines.base import Engine, Prompt

_MANY, _ROUNDS, _SAMPLES = 64, 5, 10


@dataclass(frozen=True, slots=True)
class Examination:
    """The identity of an engine, and how exactly and how fast it answers."""

    model: str
    kind: str
    location: str
    fingerprint: str
    context: int | None
    prompts: str
    mode: str
    """The way in which labels are answered: first_token, sequence or sampled."""
    exact: bool
    label_mass: float
    """The probability that the labels of a relevance question have together; low where a model chats instead."""
    mass_is_bound: bool
    sample_logprobs: bool
    capabilities: tuple[str, ...]
    one_ms: float
    """Milliseconds for one prompt, the median of five calls."""
    many_ms: float
    """Milliseconds for 64 prompts in one call, the median of five calls."""
    samples_ms: float
    """Milliseconds for ten samples of one prompt."""
    notes: tuple[str, ...]

    @property
    def fit(self) -> bool:
        """True where the engine can judge by label."""
        return self.label_mass >= 0.5

    @property
    def per_second(self) -> float:
        """Prompts per second when 64 of them are sent in one call."""
        return _MANY / self.many_ms * 1000


def run(
    engine: Annotated[str, typer.Argument(help=f"{ENGINES}.")] = "nano",
    model: Annotated[
        str | None, typer.Option("--model", help="The model, where a server has several.")
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds to wait for one answer.")] = 120.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Ask an engine for its properties, and measure how fast it is.

    Exit code 0: well. 1: it cannot be reached, or cannot judge by label. 2: no such engine.
    """

    try:
        found = asyncio.run(_examine(engine, model, timeout))
    except EngineError as error:
        say(f"{without_secrets(engine)}: not well\n{type(error).__name__}: {error}", error=True)
        raise typer.Exit(1) from error
    if as_json:
        said = {**asdict(found), "per_second": found.per_second, "fit": found.fit}
        say(json.dumps(said, indent=2, ensure_ascii=False))
    else:
        say(_as_text(found))
    if not found.fit:
        raise typer.Exit(1)


async def _examine(engine: str, model: str | None, patience: float) -> Examination:
    from ragguard.engines.connect import open_engine
    from ragguard.engines.layers import Patience, Retry

    # Nothing is repeated but what a server asks to repeat later.
    patient = Patience(attempts=1)
    async with aclosing(Retry(open_engine(engine, model=model, timeout_s=patience), patient)) as opened:
        return await examine(opened)


async def examine(engine: Engine) -> Examination:
    """Returns what an engine without layers says about itself, and how fast it answers."""
    from ragguard.engines.prompts import load_prompts

    info = await engine.info()
    prompts = load_prompts(info.prompts)
    labels = prompts.labels("relevance")

    def questions(number: int, round_: int) -> list[Prompt]:
        # Each question is new, so that no cache of the server makes it look faster; every model can read digits.
        names = [" ".join(f"{round_:02}{i:02}") for i in range(number)]
        return [
            prompts.render("relevance", [f"Ada Berg founded firm {name}."], query=f"Who founded firm {name}?")
            for name in names
        ]

    first = await engine.label_probs(questions(1, 0), labels)
    one = [await _milliseconds(engine.label_probs(questions(1, 1 + r), labels)) for r in range(_ROUNDS)]
    many = [await _milliseconds(engine.label_probs(questions(_MANY, 10 + r), labels)) for r in range(_ROUNDS)]
    asked = prompts.render("answer_closed", question="Who founded firm 1?")
    began = time.perf_counter()
    samples = await engine.sample([asked], n=_SAMPLES, max_tokens=8)
    samples_ms = (time.perf_counter() - began) * 1000
    return Examination(
        model=info.model, kind=info.kind, location=info.location, fingerprint=info.fingerprint,
        context=info.context, prompts=prompts.identity, mode=first.mode, exact=first.exact,
        label_mass=min(1.0, float(first.mass[0])), mass_is_bound=first.bound is not None,
        sample_logprobs=any(answer.logprobs for answer in samples[0]),
        capabilities=tuple(sorted(info.capabilities)), one_ms=median(one), many_ms=median(many),
        samples_ms=samples_ms, notes=info.notes,
    )  # fmt: skip


async def _milliseconds(call: Any) -> float:
    began = time.perf_counter()
    await call
    return (time.perf_counter() - began) * 1000


def _as_text(found: Examination) -> str:
    how = {
        "first_token": "the first token of each label",
        "sequence": "each whole label",
        "sampled": "shares of sampled answers",
    }[found.mode]
    exactness = "exact" if found.exact else "estimated" if found.mode == "sampled" else "partly upper bounds"
    context = f"{found.context} tokens of context" if found.context else "context unknown"
    mass = f"{'at most ' if found.mass_is_bound else ''}{found.label_mass:.1%}"
    lines = [
        ("engine", f"{found.location} ({found.kind})"),
        ("model", f"{found.model}, {context}, prompts {found.prompts}"),
        ("labels", f"{exactness}: {how}"),
        ("label mass", f"{mass} on the labels of a relevance question"),
        ("samples", f"{_SAMPLES} in {found.samples_ms:.0f} ms, "
                    f"{'with' if found.sample_logprobs else 'without'} log-probabilities"),
        ("1 prompt", f"{found.one_ms:.1f} ms"),
        (f"{_MANY} prompts", f"{found.many_ms:.1f} ms, {found.per_second:.0f} a second"),
        ("can", ", ".join(found.capabilities) or "nothing beyond plain answers"),
    ]  # fmt: skip
    shown = [f"{name:<11} {value}" for name, value in lines]
    shown += [f"{'note':<11} {note}" for note in found.notes]
    if not found.fit:
        shown.append(
            f"{'not well':<11} the model puts too little on the labels it is asked for: relevance, grades and ratings "
            "would be failures; use an instruction-tuned model"
        )
    return "\n".join(shown)
