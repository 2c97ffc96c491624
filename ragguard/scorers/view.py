"""The view of a run for scorers: its steps in order and within the caps, with the models and prompts.

This file knows nothing about any score.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ragguard.engines.base import EngineInfo
from ragguard.engines.prompts import PromptSet
from ragguard.facts.steps import StepView, numbered, view_step
from ragguard.metrics.distraction import Relevance
from ragguard.records import RetrievalStep, Run
from ragguard.runtime.arguments import whole_number
from ragguard.scorers.exam.record import Verdicts
from ragguard.scorers.question import count_tokens
from ragguard.text.language import ENGLISH, Language

LONG_FORM_TOKENS = 30
"""The approximate number of tokens that a short answer or reference has at most."""


@dataclass(frozen=True, slots=True)
class Caps:
    """Limits on how much of a run is judged. Parts over a limit are not judged, and a failure says so."""

    passages: int = 20
    """Passages that are judged of one step: those that the model got first, then candidates by rank."""
    sub_questions: int = 8
    """Sub-questions of one run for which passages are rated; the first ones."""
    steps: int = 12
    """Steps of one run that are judged; the first ones."""
    prompt_tokens: int = 60_000
    """Tokens of all prompts of one scoring of a run, estimated without the model's tokenizer."""

    def __post_init__(self) -> None:
        for name in ("passages", "sub_questions", "steps", "prompt_tokens"):
            whole_number(f"Caps.{name}", getattr(self, name), 1)


@dataclass(frozen=True, slots=True)
class Setting:
    """The models, prompts, caps and language that all runs share."""

    engine: EngineInfo
    judge: EngineInfo
    entailer: EngineInfo
    prompts: PromptSet
    judge_prompts: PromptSet
    caps: Caps = Caps()
    language: Language = ENGLISH
    around_pair: int = 0
    """How many tokens the judge's prompt has around two answers to compare; 0 where an NLI model compares."""
    relevance: Relevance = "probability"
    """The form of relevance in utilities that no scorer gives, such as those of advice."""
    exam: Verdicts = Verdicts()  # noqa: RUF009 - frozen
    """The probes in which the models failed their examinations."""


@dataclass(frozen=True)
class View:
    """A run with all that a scorer needs to know about it."""

    run: Run
    setting: Setting
    steps_with_empty: tuple[StepView, ...]
    """The steps that retrieved a passage or ended well and retrieved nothing, in order and within the cap."""
    steps_over_cap: tuple[RetrievalStep, ...] = ()

    @property
    def steps(self) -> tuple[StepView, ...]:
        """The steps that retrieved a passage."""
        return tuple(step for step in self.steps_with_empty if not step.empty)

    def query_of(self, step: StepView) -> str:
        """Returns the query of a step; the run's question where the step has none."""
        return step.step.query or self.run.question

    @property
    def read_nothing(self) -> bool:
        """True for a run whose steps all ended well and brought the model nothing."""
        return bool(self.steps_with_empty) and not any(step.got for step in self.steps_with_empty)

    @property
    def empty_places(self) -> int | None:
        """How many places of all steps hold no passage; None where the K of a step cannot be right."""
        steps = self.steps_with_empty
        if all(step.places or step.any_k for step in steps):
            return sum(max(0, step.places - len(step.got)) for step in steps)
        return None

    @property
    def references(self) -> tuple[str, ...]:
        """The run's references, without blanks and repetitions."""
        given = (reference.strip() for reference in self.run.references or ())
        return tuple(dict.fromkeys(reference for reference in given if reference))

    @property
    def short_references(self) -> tuple[str, ...]:
        """The references short enough for a short answer to mean the same as one of them."""
        return short(self.references)

    @property
    def seed(self) -> int:
        """A seed made from the run's question, so that the same run gets the same scores."""
        return int.from_bytes(hashlib.sha256(self.run.question.encode("utf-8", "replace")).digest()[:4]) >> 1


def short(references: Sequence[str]) -> tuple[str, ...]:
    """Returns the references that a short answer can have the meaning of."""
    return tuple(r for r in references if count_tokens(r) <= LONG_FORM_TOKENS)


def view_run(run: Run, setting: Setting) -> View:
    """Returns the view of a run: its steps in order and within the caps."""
    caps = setting.caps
    kept: list[StepView] = []
    over: list[RetrievalStep] = []
    for turn, step in numbered(run.steps):
        retrieved = bool(step.retrieved)
        if not retrieved and step.status != "ok":
            continue
        # Each kind has the cap for itself: empty steps, which cost no prompt, take no place from the others.
        if sum(known.empty != retrieved for known in kept) < caps.steps:
            kept.append(view_step(step, caps.passages, turn))
        else:
            over.append(step)
    return View(run, setting, tuple(kept), tuple(over))


def read_texts(steps: Iterable[StepView]) -> list[str]:
    """Returns the texts that the model got and that are judged, each once."""
    return list(dict.fromkeys(text for step in steps for text in step.texts(step.got)))


def retrieved_texts(steps: Iterable[StepView]) -> list[str]:
    """Returns all texts of the steps that are judged, each once."""
    return list(dict.fromkeys(text for step in steps for text in step.texts()))


def hash_references(source: str, references: Sequence[str]) -> str:
    """Returns a short digest of the references of a score and of their source; "" without references."""
    if not references:
        return ""
    return hashlib.sha256(json.dumps([source, *references]).encode()).hexdigest()[:16]
