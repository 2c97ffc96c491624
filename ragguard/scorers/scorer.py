"""The protocol of scorers, ragguard's own and users': a name, a version, and a coroutine over one run; and the writer
that collects what a scorer of ragguard's own gives. What a user's scorer gives is completed.

A score gets the fields that all scores of the scorer share. An undefined value makes no score. Scores of one step that
fail for one reason are one failure.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, Protocol, runtime_checkable

from ragguard.errors import CapExceeded, CircuitOpen, EngineTimeout, InvalidInput, NoText, RagguardError
from ragguard.facts.steps import StepView
from ragguard.records import (
    CONTENT_KIND,
    CUT_PASSAGES,
    GRADE_ERROR,
    K_ERROR,
    SPLIT_ERROR,
    Failure,
    Level,
    ReferenceSource,
    Result,
    Run,
    Score,
    Stage,
)
from ragguard.runtime.faults import message_of
from ragguard.schema import checked_result
from ragguard.scorers.probes import Reading
from ragguard.scorers.question import Ask, Who
from ragguard.scorers.view import Setting, View, hash_references
from ragguard.text.language import Language
from ragguard.text.secret_filter import without_secrets

MODELS = ("engine", "judge", "entailer")
Live = Literal["at once", "so far"]
"""The way in which a scorer looks at a run that has not ended. `at once`: before the others, as it asks about the
last step alone, in one wave. `so far`: afterwards, about all steps so far."""


@runtime_checkable
class Scorer(Protocol):
    """Gives scores and failures about a run.

    A scorer may be a frozen dataclass; its fields then count as its settings. It may name in `models` which of engine,
    judge and entailer its numbers depend on (default: all; none: it asks nothing, and its scores name no model). A
    scorer that can score a run before its end has an attribute `live` (see `Live`); without it the scorer waits for the
    end.
    """

    @property
    def name(self) -> str:
        """The name that every score and failure has."""
        ...

    @property
    def version(self) -> str:
        """A text that changes when the same run would get other numbers."""
        ...

    async def score(self, view: View, ask: Ask) -> Sequence[Result]:
        """Returns scores and failures. Engines are reached only through `ask`."""
        ...


NEW_SETTING: Mapping[str, Any] = MappingProxyType({"ragguard": "new setting"})
"""The metadata of a scorer's field that came after its first release: at its default value the field is left out of the
scorer's version, so that scores of before keep their identity."""


def full_version(scorer: Scorer, setting: Setting) -> str:
    """Returns the scorer's version with a digest of its settings, models, prompts, caps and language."""
    settings: dict[str, Any] = {
        "caps": dataclasses.asdict(setting.caps),
        "language": _language_digest(setting.language),
    }
    models = getattr(scorer, "models", MODELS)
    if models:  # otherwise nothing is asked
        settings["prompts"] = [setting.prompts.identity, setting.judge_prompts.identity]
    fields = getattr(scorer, "__dataclass_fields__", {})
    settings["own"] = {
        name: getattr(scorer, name)
        for name, declared in fields.items()
        if hasattr(scorer, name)
        and declared.init
        and not (declared.metadata == NEW_SETTING and getattr(scorer, name) == declared.default)
    }
    if models and setting.exam.identity:
        settings["exam"] = setting.exam.identity
    for model in models:
        settings[model] = getattr(setting, model).fingerprint
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=repr).encode()).hexdigest()
    return f"{scorer.version}-{digest[:8]}"


def _asked(scorer: Scorer, setting: Setting, who: Who = "engine") -> tuple[str, str]:
    """Returns the model and the prompts that scores of a scorer name; both are empty if it asks nothing, since its
    scores are then the same with every model."""
    if not getattr(scorer, "models", MODELS):
        return "", ""
    if who == "engine":
        return setting.engine.fingerprint, setting.prompts.identity
    return setting.judge.fingerprint, setting.judge_prompts.identity


@lru_cache(maxsize=16)
def _language_digest(language: Language) -> str:
    """Returns a digest of a language's phrases, which are many, and equal for all runs."""
    return hashlib.sha256(json.dumps(dataclasses.asdict(language), sort_keys=True).encode()).hexdigest()[:16]


def worth_repeating(error: BaseException) -> bool:
    """Returns whether the same question may be answered later, so that a failed score is tried again."""
    return bool(getattr(error, "retryable", False)) or isinstance(error, CircuitOpen | EngineTimeout)


def failure_of(scorer: str, run: Run, error: BaseException) -> Failure:
    """Returns the failure of a scorer about a whole run."""
    return Failure(
        scorer,
        type(error).__name__,
        without_secrets(message_of(error)),
        will_retry=worth_repeating(error),
        run_id=run.id,
    )


def capture_failures(run: Run) -> list[Failure]:
    """Returns a failure for each step whose K cannot be right, so that no score which needs K is given, for each
    passage whose grade is none, for each step whose splitter failed, so that scores are about its whole text, and for
    each step that gave more passages than are captured."""
    found: list[Failure] = []
    for step in run.steps:
        facts, passages = step.metadata, step.retrieved
        wrong = [facts[K_ERROR]] if K_ERROR in facts else []
        wrong += [passage.metadata[GRADE_ERROR] for passage in passages if GRADE_ERROR in passage.metadata]
        errors = [("InvalidInput", message) for message in wrong]
        if SPLIT_ERROR in facts:
            what = (
                f"the output of {step.tool or 'the tool'!r} could not be split and is judged as one passage"
            )
            errors.append(("SplitterFailed", f"{what}: {facts[SPLIT_ERROR]}"))
        if passages and (kept := passages[-1].metadata.get(CUT_PASSAGES)):
            errors.append(
                (
                    "CapExceeded",
                    f"only {kept} are captured, and all numbers leave out the others; record fewer",
                )
            )
        found += [Failure("capture", name, text, run_id=run.id, step_id=step.id) for name, text in errors]
    return found


def of_list(step: StepView, stage: Stage) -> dict[str, Any]:
    """Returns the fields of a score about one of a step's two lists; its label is empty where the lists are equal."""
    label = "" if not step.changed else "before" if stage == "candidates" else "after"
    return {"step": step, "stage": stage, "label": label}


class ScoreWriter:
    """Collects the results of one scorer about one run."""

    def __init__(self, view: View, scorer: Scorer) -> None:
        self.view = view
        self._scorer, self._version = scorer, full_version(scorer, view.setting)
        self._scores: list[Score] = []
        self._failed: dict[tuple[str, str], tuple[RagguardError, list[str]]] = {}

    def add(
        self,
        name: str,
        value: float | Reading,
        *,
        step: StepView | None = None,
        at: int | None = None,
        who: Who = "engine",
        reference_source: ReferenceSource = "none",
        references: Sequence[str] = (),
        metadata: Mapping[str, Any] = MappingProxyType({}),
        **fields: Any,
    ) -> None:
        """Adds a score of a passage (`step`, and `at`, its index), of a step, or of the run. A nan or infinite value
        adds nothing; a Reading gives its error, remarks and usage as well. `who` is the model whose fingerprint and
        prompts the score names; `fields` are further fields of `Score`."""
        if isinstance(value, Reading):
            read, value = value, value.value
            fields = {"stderr": read.stderr, "expectation": read.expectation, "usage": read.usage} | fields
            metadata = {**read.remarks, **metadata}
        if not math.isfinite(value):
            return
        engine, prompts = _asked(self._scorer, self.view.setting, who)
        level: Level = "run"
        if step is not None:
            level, fields["step_id"] = "step", step.step.id
        if step is not None and at is not None:
            level, fields["passage_id"], fields["position"] = "passage", step.all[at].id, at + 1
        stderr = fields.pop("stderr", None)
        self._scores.append(
            Score(
                name,
                float(value) + 0.0,  # never -0.0
                level,
                self.view.run.id,
                stderr=None if stderr is None or not math.isfinite(stderr) else float(stderr),
                reference_source=reference_source,
                engine=engine,
                prompts=prompts,
                scorer=self._scorer.name,
                version=self._version,
                references_hash=hash_references(reference_source, references),
                metadata=metadata or {},
                **fields,
            )
        )

    def fail(self, error: RagguardError, what: str, step: StepView | None = None) -> None:
        """Notes that `what`, such as a score's name, could not be given; a failure lists all that one error cost."""
        key = (step.step.id if step else "", type(error).__name__)
        listed = self._failed.setdefault(key, (error, []))[1]
        if what not in listed:
            listed.append(what)

    @contextmanager
    def failing(self, what: str, step: StepView | None = None) -> Iterator[None]:
        """Makes an error of the block a failure of `what`; see `fail`."""
        try:
            yield
        except RagguardError as error:
            self.fail(error, what, step)

    def left_out(self, *, passages: bool = True) -> None:
        """Adds a failure for each step, and for the passages of each step, that are not judged: those over a cap,
        and those without text. Without `passages`, no cap on passages holds for this scorer."""
        caps = self.view.setting.caps
        for step in self.view.steps_over_cap:
            over = CapExceeded(
                f"only the first {caps.steps} steps of a run are scored; raise Caps(steps=...)"
            )
            self._failed[step.id, "CapExceeded"] = over, ["this step"]
        for seen in self.view.steps:
            for at in seen.textless:
                kind = seen.all[at].metadata.get(CONTENT_KIND)
                textless = NoText("a passage without text is not judged; give it one, such as a caption")
                self.fail(textless, f"passage {at + 1}" + (f" ({kind})" if kind else ""), seen)
            if passages and seen.over_cap:
                message = f"at most {caps.passages} passages of a step are judged; raise Caps(passages=...)"
                captured = seen.all[-1].metadata.get(CUT_PASSAGES, f"{len(seen.all)} passages")
                self.fail(CapExceeded(message), f"{seen.over_cap} of {captured}", seen)

    def results(self) -> list[Result]:
        """Returns all scores, then the failures."""
        failures = [
            Failure(
                self._scorer.name,
                name,
                f"{_listed(what)}: {error}",
                will_retry=worth_repeating(error),
                run_id=self.view.run.id,
                step_id=step_id,
            )
            for (step_id, name), (error, what) in self._failed.items()
        ]
        return [*self._scores, *failures]


def _listed(what: Sequence[str]) -> str:
    return ", ".join(what) if len(what) <= 8 else f"{', '.join(what[:7])} and {len(what) - 7} more"


def completed(outcome: Any, scorer: Scorer, view: View) -> list[Result]:
    """Returns the results of a user's scorer with what it leaves out: run, scorer, version, engine and prompts. What is
    no Score or Failure becomes a failure."""
    setting, results = view.setting, list[Result]()
    engine, prompts = _asked(scorer, setting)
    for result in outcome if isinstance(outcome, list | tuple) else [outcome]:
        try:
            result = checked_result(result)
        except InvalidInput as error:
            results.append(failure_of(scorer.name, view.run, error))
            continue
        result = replace(result, run_id=result.run_id or view.run.id)
        if isinstance(result, Score) and not math.isfinite(result.value):
            wrong = f"{result.name} came out as {result.value}"
            result = Failure(scorer.name, "NotFinite", wrong, run_id=result.run_id, step_id=result.step_id)
        elif isinstance(result, Score):
            result = replace(
                result,
                scorer=scorer.name,
                version=full_version(scorer, setting),
                engine=result.engine or engine,
                prompts=result.prompts or prompts,
            )
        results.append(result)
    return results
