"""Converts records into attributes of spans and events. Knows what is written, and not how it is sent."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from ragguard.capture.events import CALLER_ID
from ragguard.facts.causes import retriever_of
from ragguard.facts.run_view import RunView
from ragguard.records import K_ERROR, Advice, Decision, Failure, Passage, RetrievalStep, Run, Score, Usage
from ragguard.telemetry import names as n
from ragguard.telemetry.values import Attributes, Content, Value, identifier
from ragguard.text.plain import plain_metadata

Event = tuple[str, dict[str, Value]]
DOCUMENTS, SCORES = 20, 14
"""The most documents of a step's span, and the most scores of an evaluation's: OpenTelemetry keeps 128 attributes, and
would evict those which identify the span."""


def digest(text: str) -> str:
    """Returns sixteen digits that are equal for equal texts and do not show them."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


class Writer:
    """Builds attributes, with the texts that may leave the process."""

    def __init__(self, content: Content) -> None:
        self.content = content

    def run(self, run: Run) -> Attributes:
        """Returns the attributes of a run's CHAIN span, without its scores."""
        span = Attributes()
        if self.content.inputs:
            span.add(n.OI_INPUT, run.question)
        if self.content.outputs:
            span.add(n.OI_OUTPUT, run.answer)
            if run.references:
                span.add_json(n.RUN_REFERENCES, list(run.references))
        span.add(n.GEN_AI_AGENT, run.name)
        session = run.metadata.get("session_id") or run.metadata.get("thread_id")
        span.add(n.OI_SESSION, None if session is None else identifier(session))
        span.add(n.RUN_CALLER_ID, run.metadata.get(CALLER_ID))
        span.add(n.RUN_NAME, run.name)
        span.add(n.RUN_STATUS, run.status)
        span.add(n.RUN_STEPS, len(run.steps))
        return _identified(span, "CHAIN", run.id)

    def step(self, step: RetrievalStep) -> Attributes:
        """Returns the attributes of a step's RETRIEVER span, the documents first."""
        span = Attributes()
        with_text = self.content.outputs
        shown = step.passages[:DOCUMENTS]
        for index, passage in enumerate(shown):
            name = f"retrieval.documents.{index}.document"
            if with_text:
                if passage.metadata:
                    span.add_json(f"{name}.metadata", plain_metadata(passage.metadata))
                span.add(f"{name}.content", passage.text)
            span.add(f"{name}.score", passage.score)
            span.add(f"{name}.id", passage_id(passage))
        span.add(n.DOCUMENT_HASHES, [digest(passage.text) for passage in shown])
        span.add(n.DOCUMENTS_EXPORTED, len(shown))
        span.add(n.DOCUMENTS_TOTAL, len(step.passages))
        span.add(n.DOCUMENTS_CANDIDATES, len(step.candidates))
        span.add(n.DOCUMENTS_PLACES, None if K_ERROR in step.metadata else step.places)
        if with_text:
            documents = [{"id": passage_id(p), "score": span.scalar(p.score)} for p in shown]
            span.add_json(n.GEN_AI_DOCUMENTS, documents)
        if self.content.inputs:
            span.add(n.GEN_AI_QUERY, step.query)
            span.add(n.OI_INPUT, step.query)
        span.add(n.STEP_QUERY_HASH, digest(step.query))
        span.add(n.STEP_TURN, step.turn)
        span.add(n.STEP_INDEX, step.index)
        span.add(n.STEP_STATUS, step.status)
        span.add(n.ERROR_TYPE, step.error.partition(":")[0] if step.status == "error" else None)
        span.add(n.GEN_AI_TOP_K, step.k)
        span.add(n.GEN_AI_DATA_SOURCE, retriever_of(step))
        span.add(n.GEN_AI_OPERATION, "retrieval")
        return _identified(span, "RETRIEVER", step.run_id, step)

    def lead(self, step: RetrievalStep, earlier_id: str) -> Attributes:
        """Returns the attributes of the link from a step to an earlier one that led to its query."""
        link = Attributes()
        leads = [lead for lead in step.led_by or () if earlier_id in lead.steps]
        positions = {one.position for lead in leads for one in lead.sources if one.step_id == earlier_id}
        if self.content.inputs and self.content.outputs:
            link.add(n.LED_BY_WORDS, [lead.words for lead in leads])
        link.add(n.LED_BY_POSITIONS, sorted(positions))
        return link

    def decision(self, decision: Decision, step: RetrievalStep) -> Attributes:
        """Returns the attributes of a guard's GUARDRAIL span."""
        span = Attributes()
        if decision.dropped:
            span.add(n.GUARD_DROPPED_POSITIONS, [drop.position for drop in decision.dropped])
            span.add(n.GUARD_DROPPED_REASONS, [drop.reason for drop in decision.dropped])
            span.add(n.GUARD_DROPPED_UTILITY, [drop.utility for drop in decision.dropped])
        if decision.would_drop:
            span.add(n.GUARD_WOULD_DROP, [drop.position for drop in decision.would_drop])
        if self.content.inputs:
            span.add(n.OI_INPUT, step.query)
        if self.content.outputs:
            kept = f"{len(decision.kept)} of {len(decision.kept) + len(decision.dropped)} passages kept"
            lines = [f"{decision.status}: {kept} ({decision.reason})"]
            lines += [
                f"dropped rank {d.position}: {d.reason}\n    {d.passage.text}" for d in decision.dropped
            ]
            span.add(n.OI_OUTPUT, "\n".join(lines))
        span.add(n.GUARD_KEPT, len(decision.kept))
        span.add(n.GUARD_DROPPED, len(decision.dropped))
        span.add(n.GUARD_ELAPSED, decision.elapsed_ms)
        span.add(n.GUARD_REASON, decision.reason)
        span.add(n.GUARD_STATUS, decision.status)
        span.add(n.ERROR_TYPE, decision.status if decision.status in ("timeout", "error", "unfit") else None)
        return _identified(span, "GUARDRAIL", step.run_id, step)

    def guardrail(self, decision: Decision) -> Event:
        """Returns the event of a guard's decision, as a draft of the conventions has it."""
        event = Attributes()
        event.add(n.GUARDRAIL_NAME, "ragguard")
        event.add(n.GUARDRAIL_SOURCE, "retrieval")
        event.add(n.GUARDRAIL_TYPE, "status")
        event.add(n.GUARDRAIL_VALUE, decision.status)
        event.add(n.GUARDRAIL_REASON, decision.reason)
        return n.EVENT_GUARDRAIL, event.values

    def experiment(self, run: Run, name: str, root: str) -> Attributes:
        """Returns the attributes by which Langfuse knows a run as an item of an experiment; `root` is the id of its
        span."""
        span = Attributes()
        if self.content.outputs and run.references:
            span.add_json(n.EXPERIMENT_EXPECTED, list(run.references))
        span.add(n.EXPERIMENT_ID, digest(name))
        span.add(n.EXPERIMENT_NAME, identifier(name))
        span.add(n.EXPERIMENT_ITEM, digest(run.question))
        span.add(n.EXPERIMENT_ROOT, root)
        return span

    def advice(self, advice: Advice, step: RetrievalStep) -> Attributes:
        """Returns the attributes of the span of advice that was given after a step."""
        span = Attributes()
        for name, value in advice.numbers.items():
            span.add(f"ragguard.advice.numbers.{identifier(name)}", value)
        if self.content.outputs:
            span.add(
                n.OI_OUTPUT,
                "\n".join([f"{advice.action}: {'; '.join(advice.reasons)}", *advice.open_sub_questions]),
            )
        span.add(n.ADVICE_GAIN, advice.expected_gain)
        span.add(n.ADVICE_STDERR, advice.stderr)
        span.add(n.ADVICE_OPEN, len(advice.open_sub_questions))
        span.add(n.ADVICE_ELAPSED, advice.elapsed_ms)
        span.add(n.ADVICE_CALIBRATED, advice.calibrated)
        span.add(n.ADVICE_STATUS, advice.status)
        span.add(n.ADVICE_ACTION, advice.action)
        self._usage(span, advice.usage)
        span.add(n.ERROR_TYPE, None if advice.status == "judged" else advice.status)
        return _identified(span, "EVALUATOR", step.run_id, step)

    def evaluation(self, scores: Sequence[Score], view: RunView, step: RetrievalStep | None) -> Attributes:
        """Returns the attributes of an EVALUATOR span: step or run scores one by one, passage scores as one list a
        name; of a run as a whole its explanation in words."""
        span = Attributes()
        single = [score for score in scores if score.level != "passage"]
        for index, score in enumerate(single[:SCORES]):
            name = f"{'trace.' if step is None else ''}evaluations.{index}.evaluation"
            about = {
                "stderr": score.stderr,
                "level": score.level,
                "scorer": score.scorer,
                "engine": score.engine,
            }
            span.add_json(
                f"{name}.metadata", {key: value for key, value in about.items() if value not in (None, "")}
            )
            if self.content.texts:
                span.add(f"{name}.explanation", score.explanation)
            span.add(f"{name}.label", score.label)
            span.add(f"{name}.annotator_kind", annotator(score))
            span.add(f"{name}.identifier", identity(score))
            span.add(f"{name}.score", score.value)
            span.add(f"{name}.name", score_name(score))
        span.skipped += len(single[SCORES:])
        self._passages(span, [score for score in scores if score.level == "passage"])
        self._usage(span, sum((score.usage for score in scores), Usage()))
        span.add(n.SCORE_ENGINE, ", ".join(sorted({score.engine for score in scores if score.engine})))
        span.add(n.SCORE_PROMPTS, ", ".join(sorted({score.prompts for score in scores if score.prompts})))
        if step is not None:
            span.add(n.STEP_INDEX, step.index)
            span.add(n.LED_BY_STEPS, leading_steps(step) or None)
        else:
            quotes = self.content.inputs and self.content.outputs
            span.add(n.RUN_EXPLANATION, view.explanation.text if quotes else None)
            span.add(n.RUN_CAUSE, view.explanation.cause)
        return _identified(span, "EVALUATOR", view.run.id, step)

    def _usage(self, span: Attributes, usage: Usage) -> None:
        span.add(n.USAGE_REQUESTS, usage.requests)
        span.add(n.USAGE_PROMPT_TOKENS, usage.prompt_tokens)
        span.add(n.USAGE_OUTPUT_TOKENS, usage.output_tokens)

    def _passages(self, span: Attributes, scores: Sequence[Score]) -> None:
        ranks = sorted({score.position for score in scores if score.position is not None})
        names = sorted({score.name for score in scores})
        for name in names:
            mine = [score for score in scores if score.name == name and score.position is not None]
            values = {score.position: score.value for score in mine}
            attribute = f"ragguard.passages.{identifier(name)}"
            if len(mine) == len(values) == len(ranks):
                span.add(attribute, [values[rank] for rank in ranks])
            else:
                span.add_json(attribute, {_passage_key(score): score.value for score in mine})
        if ranks:
            span.add(n.PASSAGE_POSITIONS, ranks)

    def event(self, score: Score) -> Event:
        """Returns the attributes of one evaluation event."""
        event = Attributes()
        event.add(n.GEN_AI_EVALUATION, score_name(score))
        event.add(n.GEN_AI_VALUE, score.value)
        event.add(n.GEN_AI_LABEL, score.label)
        event.add(n.GEN_AI_EXPLANATION, score.explanation if self.content.texts else None)
        event.add(n.SCORE_STDERR, score.stderr)
        event.add(n.SCORE_LEVEL, score.level)
        event.add(n.SCORE_REFERENCE, score.reference_source)
        event.add(n.SCORE_QUESTION, score.sub_question)
        event.add(n.SCORE_SCORER, identity(score))
        event.add(n.SCORE_ENGINE, score.engine)
        event.add(n.SCORE_PROMPTS, score.prompts)
        event.add(n.SKIPPED, event.skipped or None)
        return n.EVENT_EVALUATION, event.values

    def failure(self, failure: Failure) -> Event:
        """Returns the attributes of a missing score: an evaluation event with an error type, as the conventions say."""
        event = Attributes()
        event.add(n.GEN_AI_EVALUATION, failure.scorer)
        event.add(n.ERROR_TYPE, failure.error)
        event.add(n.FAILURE_MESSAGE, failure.message if self.content.texts else None)
        event.add(n.FAILURE_RETRY, failure.will_retry)
        return n.EVENT_EVALUATION, event.values


def leading_steps(step: RetrievalStep) -> list[str]:
    """Returns the ids of the earlier steps that led to a step's query, each once."""
    return list(dict.fromkeys(id for lead in step.led_by or () for id in lead.steps))


def _identified(span: Attributes, kind: str, run_id: str, step: RetrievalStep | None = None) -> Attributes:
    """Adds what identifies a span, last: OpenTelemetry evicts the oldest attributes where there are too many."""
    span.add(n.SKIPPED, span.skipped or None)
    span.add(n.STEP_ID, None if step is None else step.id)
    span.add(n.RUN_ID, run_id)
    span.add(n.OI_KIND, kind)
    return span


def passage_id(passage: Passage) -> str:
    """Returns the passage's own id, or a digest of its text."""
    return identifier(passage.id) if passage.id != "" else digest(passage.text)


def score_name(score: Score) -> str:
    """Returns the score's name, which is another one where the reference is the run's own answer and not gold."""
    return f"{score.name}.support" if score.reference_source == "answer" else score.name


def annotator(score: Score) -> str:
    """Returns `LLM` where a model judged, and `CODE` for a score that is computed without one."""
    return "LLM" if score.engine else "CODE"


def identity(score: Score) -> str:
    """Returns the scorer with its version: scores of equal identity replace each other in a back end."""
    return f"{score.scorer}/{score.version}" if score.version else score.scorer


def _passage_key(score: Score) -> str:
    return f"{score.position}" if score.sub_question is None else f"{score.position}/{score.sub_question}"
