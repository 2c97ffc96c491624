"""Brings the fields of a captured event to the types that a store takes.

Frameworks and users put any objects into fields: NumPy integers, None, objects of their own. What can be converted
without a loss is converted; a field that cannot is emptied, and the record's metadata name it (`schema.fitted`).
"""

from __future__ import annotations

from dataclasses import replace

from ragguard.capture.events import Event, OneStepRun, RunEnded, RunStarted, StepAmended, StepEnded
from ragguard.capture.snapshot import passage_of, passages_of
from ragguard.records import Decision, Dropped, Passage, RetrievalStep
from ragguard.schema import fitted


def storable_event(event: Event) -> Event:
    """Returns the event itself where every field has its type, else a copy in which every field has."""
    match event:
        case OneStepRun():
            return OneStepRun(fitted(event.run), _step(event.step))
        case StepEnded():
            step = event.step
            if (fitting := _step(step)) is not step:
                return StepEnded(fitting, turn_open=event.turn_open)
        case RunStarted():
            run = event.run
            if (whole := fitted(run)) is not run:
                return RunStarted(whole, event.names)
        case RunEnded():
            return fitted(event)
        case StepAmended():
            return _amended(event)
    return event


def _step(step: RetrievalStep) -> RetrievalStep:
    if isinstance(step.decision, Decision) and not _has_passages(step.decision):
        step = replace(step, decision=_with_passages(step.decision))
    return fitted(step)


def _amended(event: StepAmended) -> StepAmended:
    decision = event.decision if isinstance(event.decision, Decision) else None
    if decision is not None:
        decision = fitted(decision if _has_passages(decision) else _with_passages(decision))
    if type(event.run_id) is str and type(event.step_id) is str and decision is event.decision:
        return event
    return StepAmended(
        f"{event.run_id}", f"{event.step_id}", event.passages, decision, metadata=event.metadata,
        error=event.error, advice=event.advice,
    )  # fmt: skip


def _has_passages(decision: Decision) -> bool:
    """Returns True for a decision that a guard made; one that a user made may hold anything in place of passages."""
    return (
        type(decision.kept) is list
        and type(decision.dropped) is type(decision.would_drop) is list
        and all(_is_passage(passage) for passage in decision.kept)
        and all(
            type(one) is Dropped and _is_passage(one.passage)
            for one in (*decision.dropped, *decision.would_drop)
        )
    )


def _is_passage(passage: object) -> bool:
    return type(passage) is Passage and type(passage.text) is type(passage.id) is str


def _with_passages(decision: Decision) -> Decision:
    return replace(
        decision, kept=passages_of(decision.kept), dropped=_dropped(decision.dropped),
        would_drop=_dropped(decision.would_drop),
    )  # fmt: skip


def _dropped(given: object) -> list[Dropped]:
    drops = given if isinstance(given, list | tuple) else ()
    return [replace(one, passage=passage_of(one.passage)) for one in drops if isinstance(one, Dropped)]
