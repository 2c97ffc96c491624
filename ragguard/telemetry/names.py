"""Every name that ragguard puts on a span, an event or a metric, with its meaning.

There are three groups: the names of OpenTelemetry's GenAI conventions, those of OpenInference, and ragguard's own.
`docs/reference/telemetry.md` is generated from here.
"""

from __future__ import annotations

from typing import Literal

Carrier = Literal[
    "run", "step", "evaluation", "link", "guard", "advice", "passage", "event", "resource", "metric"
]


class Name(str):
    """An attribute's name, with its type, its meaning and what carries it."""

    meaning: str
    type: str
    carriers: tuple[Carrier, ...]
    content: bool

    # A subclass of str, so that a name can be used as a key.
    def __new__(cls, name: str, type: str, meaning: str, *carriers: Carrier, content: bool = False) -> Name:
        self = super().__new__(cls, name)
        self.type, self.meaning, self.carriers, self.content = type, meaning, carriers, content
        return self


SCHEMA_URL = "https://opentelemetry.io/schemas/gen-ai/0.1.0"
"""The schema of the GenAI conventions that spans, events and metrics follow."""
SPANS: tuple[Carrier, ...] = ("run", "step", "evaluation", "guard", "advice")


GEN_AI = (
    GEN_AI_OPERATION := Name("gen_ai.operation.name", "string", "`retrieval` on a step's span", "step"),
    GEN_AI_DATA_SOURCE := Name("gen_ai.data_source.id", "string", "the tool or retriever by name", "step"),
    GEN_AI_TOP_K := Name(
        "gen_ai.retrieval.top_k", "int", "how many passages the retrieval was asked for, if that is known", "step",
    ),
    GEN_AI_QUERY := Name("gen_ai.retrieval.query.text", "string", "the query", "step", content=True),
    GEN_AI_DOCUMENTS := Name(
        "gen_ai.retrieval.documents", "JSON", "ids and retriever scores of the passages", "step", content=True,
    ),
    GEN_AI_EVALUATION := Name("gen_ai.evaluation.name", "string", "the score's name", "event"),
    GEN_AI_VALUE := Name("gen_ai.evaluation.score.value", "double", "the score", "event"),
    GEN_AI_LABEL := Name("gen_ai.evaluation.score.label", "string", "the score in a word", "event"),
    GEN_AI_EXPLANATION := Name("gen_ai.evaluation.explanation", "string", "how it came about", "event", content=True),
    GEN_AI_AGENT := Name("gen_ai.agent.name", "string", "the run's name", "run"),
    GUARDRAIL_NAME := Name("gen_ai.guardrail.component.name", "string", "`ragguard`", "event"),
    GUARDRAIL_TYPE := Name("gen_ai.guardrail.result.type", "string", "`status`", "event"),
    GUARDRAIL_VALUE := Name("gen_ai.guardrail.result.value", "string", "what the guard did, or why not", "event"),
    GUARDRAIL_REASON := Name("gen_ai.guardrail.result.reason", "string", "the policy, error, or budget", "event"),
    GUARDRAIL_SOURCE := Name("gen_ai.guardrail.source", "string", "`retrieval`", "event"),
    ERROR_TYPE := Name("error.type", "string", "what went wrong, on failures", "step", "event", "guard", "advice"),
)  # fmt: skip

OPENINFERENCE = (
    OI_KIND := Name("openinference.span.kind", "string", "CHAIN, RETRIEVER, EVALUATOR or GUARDRAIL", *SPANS),
    OI_INPUT := Name("input.value", "string", "the question or the query", "run", "step", "guard", content=True),
    OI_OUTPUT := Name(
        "output.value", "string", "the answer; what a guard dropped and why; the reasons of advice",
        "run", "guard", "advice", content=True,
    ),
    OI_SESSION := Name("session.id", "string", "the run's session or thread, if it has one", "run"),
    OI_PROJECT := Name("openinference.project.name", "string", "the project, with `otlp=`", "resource"),
)  # fmt: skip

LANGFUSE = (
    EXPERIMENT_ID := Name("langfuse.experiment.id", "string", "a side of a comparison: a digest of its name", *SPANS),
    EXPERIMENT_NAME := Name("langfuse.experiment.name", "string", "the name in `OtelSink(experiment=…)`", *SPANS),
    EXPERIMENT_ITEM := Name(
        "langfuse.experiment.item.id", "string", "the question, by a digest: equal on both sides", *SPANS,
    ),
    EXPERIMENT_ROOT := Name(
        "langfuse.experiment.item.root_observation_id", "string", "the id of the run's span", *SPANS,
    ),
    EXPERIMENT_EXPECTED := Name(
        "langfuse.experiment.item.expected_output", "string", "the given right answers, a list in JSON", "run",
        content=True,
    ),
)  # fmt: skip

OURS = (
    RUN_ID := Name("ragguard.run.id", "string", "the run, as in the store", *SPANS),
    RUN_CALLER_ID := Name("ragguard.run.caller_id", "string", "the id that the application gave the run", "run"),
    RUN_NAME := Name("ragguard.run.name", "string", "the run's name", "run"),
    RUN_STATUS := Name("ragguard.run.status", "string", "ok, error, cancelled, interrupted, abandoned", "run"),
    RUN_STEPS := Name("ragguard.run.steps", "int", "how many retrievals the run made", "run"),
    RUN_REFERENCES := Name(
        "ragguard.run.references", "string", "the given right answers, a list in JSON", "run", content=True,
    ),
    RUN_WHOLE := Name(
        "ragguard.run.whole", "string",
        "the whole run as a run line, if a RagGuard only captures (`engine=None`); a reader makes the run from it",
        "run", content=True,
    ),
    RUN_CAUSE := Name(
        "ragguard.run.cause", "string", "what decided the answer, such as `misled`", "evaluation", "metric",
    ),
    RUN_EXPLANATION := Name(
        "ragguard.run.explanation", "string", "the run in a sentence or two, as in the report", "evaluation",
        content=True,
    ),
    STEP_ID := Name("ragguard.step.id", "string", "the step, as in the store", "step", "evaluation", "guard", "advice"),
    STEP_INDEX := Name("ragguard.step.index", "int", "the step's place in the run, from 0", "step", "evaluation"),
    STEP_TURN := Name("ragguard.step.turn", "int", "steps of one turn ran in parallel", "step"),
    LED_BY_STEPS := Name(
        "ragguard.led_by.steps", "string[]", "the earlier steps from whose passages the query took words", "evaluation",
    ),
    LED_BY_POSITIONS := Name(
        "ragguard.led_by.positions", "int[]",
        "on the link from a step's span to that of an earlier step: the ranks of the passages with the query's words",
        "link",
    ),
    LED_BY_WORDS := Name("ragguard.led_by.words", "string[]", "the words that the query took", "link", content=True),
    STEP_STATUS := Name("ragguard.step.status", "string", "ok, error, cancelled, interrupted", "step"),
    STEP_QUERY_HASH := Name("ragguard.step.query.hash", "string", "SHA-256 of the query, 16 digits", "step"),
    DOCUMENTS_TOTAL := Name("ragguard.documents.total", "int", "passages the step gave to the model", "step"),
    DOCUMENTS_PLACES := Name(
        "ragguard.documents.places", "int", "K: for how many passages there was a place in the prompt", "step",
    ),
    DOCUMENTS_CANDIDATES := Name("ragguard.documents.candidates", "int", "passages it retrieved", "step"),
    DOCUMENTS_EXPORTED := Name("ragguard.documents.exported", "int", "passages written on this span", "step"),
    DOCUMENT_HASHES := Name("ragguard.documents.hashes", "string[]", "SHA-256 of each text, 16 digits", "step"),
    PASSAGE_POSITIONS := Name(
        "ragguard.passages.positions", "int[]", "ranks (from 1) that the passage scores belong to", "evaluation",
    ),
    SCORE_STDERR := Name("ragguard.evaluation.stderr", "double", "the score's standard error", "event"),
    SCORE_REFERENCE := Name(
        "ragguard.evaluation.reference_source", "string", "gold, answer (support) or none", "event", "metric",
    ),
    SCORE_LEVEL := Name("ragguard.evaluation.level", "string", "passage, step or run", "event", "metric"),
    SCORE_SIGN := Name(
        "ragguard.evaluation.sign", "string", "positive or negative: a histogram takes sizes only", "metric",
    ),
    SINK := Name("ragguard.sink", "int", "the number of the sink in its process, if several report", "metric"),
    SCORE_SCORER := Name("ragguard.evaluation.scorer", "string", "scorer, version and settings", "event"),
    SCORE_ENGINE := Name("ragguard.evaluation.engine", "string", "fingerprint of the model", "evaluation", "event"),
    SCORE_PROMPTS := Name("ragguard.evaluation.prompts", "string", "prompt set and version", "evaluation", "event"),
    SCORE_QUESTION := Name("ragguard.evaluation.sub_question", "int", "which sub-question, from 0", "event"),
    FAILURE_MESSAGE := Name("ragguard.failure.message", "string", "why there is no score", "event"),
    FAILURE_RETRY := Name("ragguard.failure.will_retry", "bool", "whether it is tried again", "event"),
    USAGE_REQUESTS := Name(
        "ragguard.usage.requests", "int", "requests the scores or the advice cost", "evaluation", "advice",
    ),
    USAGE_PROMPT_TOKENS := Name(
        "ragguard.usage.prompt_tokens", "int", "prompt tokens they cost", "evaluation", "advice",
    ),
    USAGE_OUTPUT_TOKENS := Name(
        "ragguard.usage.output_tokens", "int", "output tokens they cost", "evaluation", "advice",
    ),
    SKIPPED := Name(
        "ragguard.telemetry.skipped", "int", "how many values no span can carry, left out", *SPANS, "event",
    ),
    ADVICE_ACTION := Name("ragguard.advice.action", "string", "answer, continue, rephrase or distrust", "advice"),
    ADVICE_STATUS := Name("ragguard.advice.status", "string", "judged, timeout or error", "advice"),
    ADVICE_CALIBRATED := Name(
        "ragguard.advice.calibrated", "bool", "whether a calibrated promise stands behind it", "advice",
    ),
    ADVICE_GAIN := Name("ragguard.advice.expected_gain", "double", "what one more step is expected to add", "advice"),
    ADVICE_STDERR := Name("ragguard.advice.stderr", "double", "the standard error of that", "advice"),
    ADVICE_OPEN := Name("ragguard.advice.open_sub_questions", "int", "how many sub-questions are open", "advice"),
    ADVICE_ELAPSED := Name("ragguard.advice.elapsed_ms", "double", "how long the agent waited for it", "advice"),
    GUARD_STATUS := Name("ragguard.guard.status", "string", "what the guard did, or why not", "guard"),
    GUARD_REASON := Name("ragguard.guard.reason", "string", "the policy, the error, or the budget", "guard"),
    GUARD_ELAPSED := Name("ragguard.guard.elapsed_ms", "double", "how many milliseconds the guard took", "guard"),
    GUARD_KEPT := Name("ragguard.guard.kept", "int", "passages kept", "guard"),
    GUARD_DROPPED := Name("ragguard.guard.dropped", "int", "passages dropped", "guard"),
    GUARD_DROPPED_POSITIONS := Name("ragguard.guard.dropped.positions", "int[]", "their ranks, from 1", "guard"),
    GUARD_WOULD_DROP := Name("ragguard.guard.would_drop.positions", "int[]", "the same in shadow", "guard"),
    GUARD_DROPPED_UTILITY := Name("ragguard.guard.dropped.utility", "double[]", "their utilities", "guard"),
    GUARD_DROPPED_REASONS := Name("ragguard.guard.dropped.reasons", "string[]", "why each went", "guard"),
)  # fmt: skip

ATTRIBUTES: dict[str, tuple[Name, ...]] = {
    "GenAI semantic conventions": GEN_AI,
    "OpenInference": OPENINFERENCE,
    "Langfuse's experiments": LANGFUSE,
    "ragguard": OURS,
}

# Names that hold an index or a name are built where they are written (attributes.py).
PATTERNS: dict[str, str] = {
    "retrieval.documents.{i}.document.{id,score,metadata,content}": (
        "OpenInference: passage i of a step; `content` and `metadata` only when content is captured"
    ),
    "evaluations.{i}.evaluation.{name,score,label,explanation,annotator_kind,identifier,metadata}": (
        "OpenInference: score i of a step, on an EVALUATOR span, whose one link is to the step's span; `explanation` "
        "only when content is captured; `metadata` is JSON with `stderr`, `level`, `scorer` and `engine`"
    ),
    "trace.evaluations.{i}.evaluation.{name,…}": "the same for score i of the whole run",
    "ragguard.advice.numbers.{name}": "the numbers behind advice, such as `sufficiency` and its `threshold`",
    "ragguard.passages.{name}": (
        "the passage scores of that name, in the order of `ragguard.passages.positions` if every passage has one; else "
        "a JSON object from position to score"
    ),
}

EVENT_EVALUATION = "gen_ai.evaluation.result"
EVENT_GUARDRAIL = "gen_ai.guardrail.result"
"""A draft of the conventions: written only with `gen_ai_latest_experimental` in OTEL_SEMCONV_STABILITY_OPT_IN."""
EVENTS: dict[str, str] = {
    EVENT_EVALUATION: "one score, or one failure with `error.type`",
    EVENT_GUARDRAIL: (
        "a guard's decision, on its span; a draft of the conventions, written only with "
        "`OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental`"
    ),
}

METRICS: dict[str, tuple[str, str, str]] = {
    "ragguard.runs": ("counter", "{run}", "scored runs, by `ragguard.run.cause`: what decided the answer"),
    "ragguard.evaluation.score": ("histogram", "1", "size of every score, by name, sign, level, reference source"),
    "ragguard.evaluation.duration": ("histogram", "s", "from a run's end to its scores"),
    "ragguard.evaluation.failures": ("counter", "{failure}", "scores that could not be given, by scorer and error"),
    "ragguard.usage.tokens": ("counter", "{token}", "what scoring cost, by type (input, output) and model"),
    "ragguard.usage.requests": ("counter", "{request}", "requests made for scoring, by model"),
    "ragguard.queue.depth": ("gauge", "{run}", "runs that wait for scoring, by sink"),
    "ragguard.dropped": ("counter", "{event}", "what was lost, by reason and sink"),
    "ragguard.guard.duration": ("histogram", "ms", "what the guard added, by status"),
}  # fmt: skip
