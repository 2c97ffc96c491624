"""Converts records into attributes of spans and events. Knows what is written, and not how it is sent."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from ragguard.records import K_ERROR, Advice, Decision, Failure, Passage, RetrievalStep, Run, Score, Usage
from ragguard.scorers.explanation import Explanation
from ragguard.telemetry import names as n
from ragguard.telemetry.content import Content
from ragguard.telemetry.values import Attributes, Value, as_list, identifier, plain

Event = tuple[str, dict[str, Value]]
RESERVED = 40
"""The number of attributes of a step's span that are kept free of documents, so that the attributes which identify
the step are never evicted."""


def digest(text: str) -> str:
    """Returns sixteen digits that are equal for equal texts and do not show them."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


class Writer:
    """Builds attributes under one set of limits."""

    def __init__(
        self, content: Content, max_documents: int, max_text: int, max_attributes: int = 128
    ) -> None:
        self.content, self.max_documents, self.max_text = content, max_documents, max_text
        self.max_attributes = max_attributes

    def run(self, run: Run) -> Attributes:
        """Returns the attributes of a run's CHAIN span, without its scores."""
        put = Attributes(self.max_text)
        if self.content.spans:
            put.put(n.OI_INPUT, run.question if self.content.inputs else None)
            put.put(n.OI_OUTPUT, run.answer if self.content.outputs else None)
        session = run.metadata.get("session_id") or run.metadata.get("thread_id")
        put.put(n.OI_SESSION, None if session is None else identifier(session))
        put.put(n.RUN_NAME, run.name)
        put.put(n.RUN_STATUS, run.status)
        put.put(n.RUN_STEPS, len(run.steps))
        return _identified(put, "CHAIN", run.id)

    def step(self, step: RetrievalStep) -> Attributes:
        """Returns the attributes of a step's RETRIEVER span, the documents first."""
        put = Attributes(self.max_text)
        with_text = self.content.spans and self.content.outputs
        fitting = max(0, self.max_attributes - RESERVED) // (4 if with_text else 2)
        shown = step.passages[: min(self.max_documents, fitting)]
        for index, passage in enumerate(shown):
            if with_text:
                if passage.metadata:
                    put.put_json(n.document(index, "metadata"), plain(passage.metadata))
                put.put(n.document(index, "content"), passage.text)
            put.put(n.document(index, "score"), passage.score)
            put.put(n.document(index, "id"), passage_id(passage))
        put.put(n.DOCUMENT_HASHES, [digest(passage.text) for passage in shown])
        put.put(n.DOCUMENTS_EXPORTED, len(shown))
        put.put(n.DOCUMENTS_TOTAL, len(step.passages))
        put.put(n.DOCUMENTS_CANDIDATES, len(step.candidates))
        put.put(n.DOCUMENTS_PLACES, None if K_ERROR in step.metadata else step.places)
        if self.content.spans:
            documents = [{"id": passage_id(p), "score": put.scalar(p.score)} for p in shown]
            put.put_json(n.GEN_AI_DOCUMENTS, documents if self.content.outputs else None)
            put.put(n.GEN_AI_QUERY, step.query if self.content.inputs else None)
            put.put(n.OI_INPUT, step.query if self.content.inputs else None)
        put.put(n.STEP_QUERY_HASH, digest(step.query))
        put.put(n.STEP_TURN, step.turn)
        put.put(n.STEP_INDEX, step.index)
        put.put(n.STEP_STATUS, step.status)
        put.put(n.ERROR_TYPE, step.error.partition(":")[0] if step.status == "error" else None)
        put.put(n.GEN_AI_TOP_K, step.k)
        put.put(n.GEN_AI_DATA_SOURCE, source(step))
        put.put(n.GEN_AI_OPERATION, "retrieval")
        return _identified(put, "RETRIEVER", step.run_id, step)

    def decision(self, decision: Decision, step: RetrievalStep) -> Attributes:
        """Returns the attributes of a guard's GUARDRAIL span."""
        put = Attributes(self.max_text)
        if decision.dropped:
            put.put(n.GUARD_DROPPED_POSITIONS, [drop.position for drop in decision.dropped])
            put.put(n.GUARD_DROPPED_REASONS, [drop.reason for drop in decision.dropped])
            put.put(n.GUARD_DROPPED_UTILITY, as_list([drop.utility for drop in decision.dropped]))
        if decision.would_drop:
            put.put(n.GUARD_WOULD_DROP, [drop.position for drop in decision.would_drop])
        if self.content.spans and self.content.inputs:
            put.put(n.OI_INPUT, step.query)
        if self.content.spans and self.content.outputs:
            put.put(n.OI_OUTPUT, _guard_summary(decision))
        put.put(n.GUARD_KEPT, len(decision.kept))
        put.put(n.GUARD_DROPPED, len(decision.dropped))
        put.put(n.GUARD_ELAPSED, decision.elapsed_ms)
        put.put(n.GUARD_REASON, decision.reason)
        put.put(n.GUARD_STATUS, decision.status)
        put.put(n.ERROR_TYPE, decision.status if decision.status in ("timeout", "error", "unfit") else None)
        return _identified(put, "GUARDRAIL", step.run_id, step)

    def advice(self, advice: Advice, step: RetrievalStep) -> Attributes:
        """Returns the attributes of the span of advice that was given after a step."""
        put = Attributes(self.max_text)
        for name, value in advice.numbers.items():
            put.put(n.advice_number(identifier(name)), value)
        if self.content.spans and self.content.outputs:
            put.put(
                n.OI_OUTPUT,
                "\n".join([f"{advice.action}: {'; '.join(advice.reasons)}", *advice.open_sub_questions]),
            )
        put.put(n.ADVICE_GAIN, advice.expected_gain)
        put.put(n.ADVICE_STDERR, advice.stderr)
        put.put(n.ADVICE_OPEN, len(advice.open_sub_questions))
        put.put(n.ADVICE_ELAPSED, advice.elapsed_ms)
        put.put(n.ADVICE_CALIBRATED, advice.calibrated)
        put.put(n.ADVICE_STATUS, advice.status)
        put.put(n.ADVICE_ACTION, advice.action)
        self._usage(put, advice.usage)
        put.put(n.ERROR_TYPE, None if advice.status == "judged" else advice.status)
        return _identified(put, "EVALUATOR", step.run_id, step)

    def evaluation(
        self,
        scores: Sequence[Score],
        run_id: str,
        step: RetrievalStep | None,
        explanation: Explanation | None = None,
    ) -> Attributes:
        """Returns the attributes of an EVALUATOR span: step or run scores one by one, passage scores as one list a
        name; of a run as a whole its explanation in words."""
        put = Attributes(self.max_text)
        single = [score for score in scores if score.level != "passage"]
        fitting = max(0, self.max_attributes - RESERVED) // 5
        for index, score in enumerate(single[:fitting]):
            if self.content.spans:
                put.put(n.evaluation(index, "explanation"), score.explanation)
            put.put(n.evaluation(index, "label"), score.label)
            put.put(n.evaluation(index, "annotator_kind"), annotator(score))
            put.put(n.evaluation(index, "identifier"), identity(score))
            put.put(n.evaluation(index, "score"), score.value)
            put.put(n.evaluation(index, "name"), score_name(score))
        put.skipped += len(single[fitting:])
        self._passages(put, [score for score in scores if score.level == "passage"])
        self._usage(put, sum((score.usage for score in scores), Usage()))
        put.put(n.SCORE_ENGINE, ", ".join(sorted({score.engine for score in scores if score.engine})))
        put.put(n.SCORE_PROMPTS, ", ".join(sorted({score.prompts for score in scores if score.prompts})))
        put.put(n.SCORE_PROVISIONAL, any(score.provisional for score in scores) or None)
        put.put(n.STEP_INDEX, None if step is None else step.index)
        if explanation is not None:
            quotes = self.content.spans and self.content.inputs and self.content.outputs
            put.put(n.RUN_EXPLANATION, explanation.text if quotes else None)
            put.put(n.RUN_CAUSE, explanation.cause)
        return _identified(put, "EVALUATOR", run_id, step)

    def _usage(self, put: Attributes, usage: Usage) -> None:
        put.put(n.USAGE_REQUESTS, usage.requests)
        put.put(n.USAGE_PROMPT_TOKENS, usage.prompt_tokens)
        put.put(n.USAGE_OUTPUT_TOKENS, usage.output_tokens)

    def _passages(self, put: Attributes, scores: Sequence[Score]) -> None:
        ranks = sorted({score.position for score in scores if score.position is not None})
        names = sorted({score.name for score in scores})
        for name in names:
            mine = [score for score in scores if score.name == name and score.position is not None]
            values = {score.position: score.value for score in mine}
            if len(mine) == len(values) == len(ranks):
                put.put(n.passages(identifier(name)), [values[rank] for rank in ranks])
            else:
                put.put_json(
                    n.passages(identifier(name)), {_passage_key(score): score.value for score in mine}
                )
        if ranks:
            put.put(n.PASSAGE_POSITIONS, ranks)

    def event(self, score: Score) -> Event:
        """Returns the attributes of one evaluation event."""
        put = Attributes(self.max_text)
        put.put(n.GEN_AI_EVALUATION, score_name(score))
        put.put(n.GEN_AI_VALUE, score.value)
        put.put(n.GEN_AI_LABEL, score.label)
        put.put(n.GEN_AI_EXPLANATION, score.explanation if self.content.events else None)
        put.put(n.SCORE_STDERR, score.stderr)
        put.put(n.SCORE_LEVEL, score.level)
        put.put(n.SCORE_REFERENCE, score.reference_source)
        put.put(n.SCORE_QUESTION, score.sub_question)
        put.put(n.SCORE_PROVISIONAL, score.provisional or None)
        put.put(n.SCORE_SCORER, identity(score))
        put.put(n.SCORE_ENGINE, score.engine)
        put.put(n.SCORE_PROMPTS, score.prompts)
        put.put(n.SKIPPED, put.skipped or None)
        return n.EVENT_EVALUATION, put.values

    def failure(self, failure: Failure) -> Event:
        """Returns the attributes of a missing score: an evaluation event with an error type, as the conventions say."""
        put = Attributes(self.max_text)
        put.put(n.GEN_AI_EVALUATION, failure.scorer)
        put.put(n.ERROR_TYPE, failure.error)
        put.put(n.FAILURE_MESSAGE, failure.message if self.content.events else None)
        put.put(n.FAILURE_RETRY, failure.will_retry)
        return n.EVENT_EVALUATION, put.values


def _identified(put: Attributes, kind: str, run_id: str, step: RetrievalStep | None = None) -> Attributes:
    """Adds what identifies a span, last: OpenTelemetry evicts the oldest attributes where there are too many."""
    put.put(n.SKIPPED, put.skipped or None)
    put.put(n.STEP_ID, None if step is None else step.id)
    put.put(n.RUN_ID, run_id)
    put.put(n.OI_KIND, kind)
    return put


def passage_id(passage: Passage) -> str:
    """Returns the passage's own id, or a digest of its text."""
    return identifier(passage.id) if passage.id != "" else digest(passage.text)


def source(step: RetrievalStep) -> str:
    """Returns the name of a step's tool, else of its retriever; "" where neither is known."""
    retriever = step.metadata.get("retriever", "")
    return step.tool or (retriever if isinstance(retriever, str) else "")


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


def _guard_summary(decision: Decision) -> str:
    """Returns a summary of a guard's decision in one line, for readers of its span."""
    retrieved = len(decision.kept) + len(decision.dropped)
    lines = [f"{decision.status}: {len(decision.kept)} of {retrieved} passages kept ({decision.reason})"]
    lines += [
        f"dropped rank {one.position}: {one.reason}\n    {one.passage.text}" for one in decision.dropped
    ]
    return "\n".join(lines)
