"""The view of a run for scorers: its steps in order and within the caps, with the models and prompts.

This file knows nothing about any score.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ragguard.engines.base import EngineInfo
from ragguard.engines.prompts import PromptSet
from ragguard.records import K_ERROR, Passage, RetrievalStep, Run, Stage, read_candidates
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
class StepView:
    """A step, with what it retrieved and which of that the model got."""

    step: RetrievalStep
    turn: int
    all: tuple[Passage, ...]
    """The candidates by rank, then passages that the model got and that are no candidates, such as rewritten ones."""
    got: tuple[int, ...]
    """The passages that the model got, in their order, as indices into `all`."""
    judged: frozenset[int]
    """The passages that have a text and are within the cap, as indices into `all`."""
    candidates: int
    """How many of `all` are candidates."""
    places: int
    """K, the number of places in the prompt; 0 where the step's K cannot be right, and a failure says so, and where
    nothing was retrieved and K is not known."""

    @property
    def changed(self) -> bool:
        """True where the model did not get the candidates as they were retrieved."""
        return self.got != tuple(range(self.candidates))

    @property
    def empty(self) -> bool:
        """True where nothing was retrieved."""
        return not self.all

    @property
    def any_k(self) -> bool:
        """True where nothing was retrieved and K is not known: every K gives the same scores."""
        return self.empty and self.step.k is None and K_ERROR not in self.step.metadata

    @property
    def scored(self) -> bool:
        """True where the model read something of the step, or nothing was there to read."""
        return self.empty or self.readable

    @property
    def unselected(self) -> StepView:
        """The same step as if the model had got all candidates in the order in which they were found."""
        return replace(self, got=tuple(range(self.candidates)))

    @property
    def textless(self) -> tuple[int, ...]:
        """The passages without text, such as images, as indices into `all`."""
        return tuple(at for at, passage in enumerate(self.all) if not passage.text.strip())

    @property
    def over_cap(self) -> int:
        """How many passages with a text are not judged."""
        return len(self.all) - len(self.judged) - len(self.textless)

    def listed(self, stage: Stage) -> Sequence[int]:
        """Returns one of the step's two lists, as indices into `all`: what the model got, or what was retrieved."""
        return self.got if stage == "passages" else range(self.candidates)

    def texts(self, positions: Iterable[int] | None = None) -> list[str]:
        """Returns the judged texts at these positions of `all`; None: all judged texts."""
        among = range(len(self.all)) if positions is None else positions
        return [self.all[at].text for at in among if at in self.judged]

    def judged_places(self, stage: Stage) -> int:
        """Returns K for a list of the step, without the places of passages that are not judged; 0 where no K is right.
        Among candidates there was a place for each."""
        if not self.places:
            return int(self.any_k)
        listed = self.listed(stage)
        return max(self.places, len(listed)) - sum(at not in self.judged for at in listed)

    @property
    def readable(self) -> bool:
        """True where the model got a text to read."""
        return any(self.all[at].text.strip() for at in self.got)


def view_step(step: RetrievalStep, cap: int, turn: int = 0) -> StepView:
    """Returns the view of a step; finds the model's passages among the candidates by id and text, each once."""
    everything = list(step.candidates or step.passages)
    candidates = len(everything)
    got = read_candidates(
        *([(passage.id, passage.text) for passage in some] for some in (everything, step.passages))
    )
    everything += [passage for passage, at in zip(step.passages, got, strict=True) if at >= candidates]
    order = dict.fromkeys([*got, *range(len(everything))])
    with_text = [index for index in order if everything[index].text.strip()][:cap]
    return StepView(
        step,
        turn,
        tuple(everything),
        tuple(got),
        judged=frozenset(with_text),
        candidates=candidates,
        places=0 if K_ERROR in step.metadata else step.places,
    )


def numbered(steps: Sequence[RetrievalStep]) -> list[tuple[int, RetrievalStep]]:
    """Returns steps in order, each with its turn; steps without numbers of their own came one after another."""
    if len({step.index for step in steps}) < len(steps):
        return list(enumerate(steps))
    ordered = sorted(steps, key=lambda step: step.index)
    return [(step.turn, step) for step in ordered]


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
        retrieved = bool(step.candidates or step.passages)
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
