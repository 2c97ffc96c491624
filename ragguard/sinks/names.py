"""Every name that ragguard puts on a span, an event, a log record or a metric, with its meaning.

There are three groups: the names of OpenTelemetry's GenAI conventions, those of OpenInference, and ragguard's own.
`docs/telemetry.md` is generated from here.
"""

from __future__ import annotations

from typing import Literal

Carrier = Literal["run", "step", "evaluation", "guard", "advice", "passage", "event", "resource", "metric"]


class Name(str):
    """An attribute's name, with its meaning and the spans on which it stands."""

    meaning: str
    type: str
    carriers: tuple[Carrier, ...]
    content: bool

    # A subclass of str, so that a name can be used as a key.
    def __new__(
        cls, name: str, type: str, meaning: str, *, on: tuple[Carrier, ...], content: bool = False
    ) -> Name:
        self = super().__new__(cls, name)
        self.type, self.meaning, self.carriers, self.content = type, meaning, on, content
        return self


ON_RUN: tuple[Carrier, ...] = ("run",)
ON_STEP: tuple[Carrier, ...] = ("step",)
ON_EVALUATION: tuple[Carrier, ...] = ("evaluation",)
ON_GUARD: tuple[Carrier, ...] = ("guard",)
ON_ADVICE: tuple[Carrier, ...] = ("advice",)
ON_EVENT: tuple[Carrier, ...] = ("event",)
ON_METRIC: tuple[Carrier, ...] = ("metric",)
ON_SPANS: tuple[Carrier, ...] = ON_RUN + ON_STEP + ON_EVALUATION + ON_GUARD + ON_ADVICE


GEN_AI = (
    GEN_AI_OPERATION := Name("gen_ai.operation.name", "string", "`retrieval` on a step's span", on=ON_STEP),
    GEN_AI_DATA_SOURCE := Name("gen_ai.data_source.id", "string", "the tool or retriever by name", on=ON_STEP),
    GEN_AI_TOP_K := Name(
        "gen_ai.retrieval.top_k", "int", "how many passages the retrieval was asked for, where that is known",
        on=ON_STEP,
    ),
    GEN_AI_QUERY := Name("gen_ai.retrieval.query.text", "string", "the query", on=ON_STEP, content=True),
    GEN_AI_DOCUMENTS := Name(
        "gen_ai.retrieval.documents", "JSON", "ids and retriever scores of the passages", on=ON_STEP, content=True,
    ),
    GEN_AI_EVALUATION := Name("gen_ai.evaluation.name", "string", "the score's name", on=ON_EVENT),
    GEN_AI_VALUE := Name("gen_ai.evaluation.score.value", "double", "the score", on=ON_EVENT),
    GEN_AI_LABEL := Name("gen_ai.evaluation.score.label", "string", "the score in a word", on=ON_EVENT),
    GEN_AI_EXPLANATION := Name(
        "gen_ai.evaluation.explanation", "string", "how it came about", on=ON_EVENT, content=True,
    ),
    ERROR_TYPE := Name(
        "error.type", "string", "what went wrong, on failures", on=ON_STEP + ON_EVENT + ON_GUARD + ON_ADVICE,
    ),
)  # fmt: skip

OPENINFERENCE = (
    OI_KIND := Name("openinference.span.kind", "string", "CHAIN, RETRIEVER, EVALUATOR or GUARDRAIL", on=ON_SPANS),
    OI_INPUT := Name(
        "input.value", "string", "the question or the query", on=ON_RUN + ON_STEP + ON_GUARD, content=True,
    ),
    OI_OUTPUT := Name(
        "output.value", "string", "the answer; of a guard what it dropped and why; of advice its reasons",
        on=ON_RUN + ON_GUARD + ON_ADVICE, content=True,
    ),
    OI_SESSION := Name("session.id", "string", "the run's session or thread, where it has one", on=ON_RUN),
    OI_PROJECT := Name("openinference.project.name", "string", "the project, with `otlp=`", on=("resource",)),
)  # fmt: skip

OURS = (
    RUN_ID := Name("ragguard.run.id", "string", "the run, as in the store", on=ON_SPANS),
    RUN_NAME := Name("ragguard.run.name", "string", "the run's name", on=ON_RUN),
    RUN_STATUS := Name("ragguard.run.status", "string", "ok, error, cancelled, interrupted, abandoned", on=ON_RUN),
    RUN_STEPS := Name("ragguard.run.steps", "int", "how many retrievals the run made", on=ON_RUN),
    STEP_ID := Name(
        "ragguard.step.id", "string", "the step, as in the store", on=ON_STEP + ON_EVALUATION + ON_GUARD + ON_ADVICE,
    ),
    STEP_INDEX := Name("ragguard.step.index", "int", "the step's place in the run, from 0", on=ON_STEP + ON_EVALUATION),
    STEP_TURN := Name("ragguard.step.turn", "int", "steps of one turn ran in parallel", on=ON_STEP),
    STEP_STATUS := Name("ragguard.step.status", "string", "ok, error, cancelled, interrupted", on=ON_STEP),
    STEP_QUERY_HASH := Name("ragguard.step.query.hash", "string", "SHA-256 of the query, 16 digits", on=ON_STEP),
    DOCUMENTS_TOTAL := Name("ragguard.documents.total", "int", "passages the step gave to the model", on=ON_STEP),
    DOCUMENTS_PLACES := Name(
        "ragguard.documents.places", "int", "K: for how many passages there was a place in the prompt", on=ON_STEP,
    ),
    DOCUMENTS_CANDIDATES := Name("ragguard.documents.candidates", "int", "passages it retrieved", on=ON_STEP),
    DOCUMENTS_EXPORTED := Name("ragguard.documents.exported", "int", "passages written on this span", on=ON_STEP),
    DOCUMENT_HASHES := Name("ragguard.documents.hashes", "string[]", "SHA-256 of each text, 16 digits", on=ON_STEP),
    PASSAGE_POSITIONS := Name(
        "ragguard.passages.positions", "int[]", "ranks (from 1) that the passage scores belong to", on=ON_EVALUATION,
    ),
    SCORE_STDERR := Name("ragguard.evaluation.stderr", "double", "the score's standard error", on=ON_EVENT),
    SCORE_REFERENCE := Name(
        "ragguard.evaluation.reference_source", "string", "gold, answer (support) or none", on=ON_EVENT + ON_METRIC,
    ),
    SCORE_LEVEL := Name("ragguard.evaluation.level", "string", "passage, step or run", on=ON_EVENT + ON_METRIC),
    SCORE_SIGN := Name(
        "ragguard.evaluation.sign", "string", "positive or negative: a histogram takes sizes only", on=ON_METRIC,
    ),
    SCORE_SCORER := Name("ragguard.evaluation.scorer", "string", "scorer, version and settings", on=ON_EVENT),
    SCORE_ENGINE := Name(
        "ragguard.evaluation.engine", "string", "fingerprint of the model", on=ON_EVALUATION + ON_EVENT,
    ),
    SCORE_PROMPTS := Name(
        "ragguard.evaluation.prompts", "string", "prompt set and version", on=ON_EVALUATION + ON_EVENT,
    ),
    SCORE_PROVISIONAL := Name(
        "ragguard.evaluation.provisional", "bool", "true while the run is open: its end gives the score anew",
        on=ON_EVALUATION + ON_EVENT,
    ),
    SCORE_QUESTION := Name("ragguard.evaluation.sub_question", "int", "which sub-question, from 0", on=ON_EVENT),
    FAILURE_MESSAGE := Name("ragguard.failure.message", "string", "why there is no score", on=ON_EVENT),
    FAILURE_RETRY := Name("ragguard.failure.will_retry", "bool", "whether it is tried again", on=ON_EVENT),
    USAGE_REQUESTS := Name(
        "ragguard.usage.requests", "int", "requests the scores or the advice cost", on=ON_EVALUATION + ON_ADVICE,
    ),
    USAGE_PROMPT_TOKENS := Name(
        "ragguard.usage.prompt_tokens", "int", "prompt tokens they cost", on=ON_EVALUATION + ON_ADVICE,
    ),
    USAGE_OUTPUT_TOKENS := Name(
        "ragguard.usage.output_tokens", "int", "output tokens they cost", on=ON_EVALUATION + ON_ADVICE,
    ),
    SKIPPED := Name(
        "ragguard.telemetry.skipped", "int", "values left out since no span can carry them", on=ON_SPANS + ON_EVENT,
    ),
    ADVICE_ACTION := Name("ragguard.advice.action", "string", "answer, continue, rephrase or distrust", on=ON_ADVICE),
    ADVICE_STATUS := Name("ragguard.advice.status", "string", "judged, timeout or error", on=ON_ADVICE),
    ADVICE_CALIBRATED := Name(
        "ragguard.advice.calibrated", "bool", "whether a calibrated promise stands behind it", on=ON_ADVICE,
    ),
    ADVICE_GAIN := Name(
        "ragguard.advice.expected_gain", "double", "what one more step is expected to add", on=ON_ADVICE,
    ),
    ADVICE_STDERR := Name("ragguard.advice.stderr", "double", "the standard error of that", on=ON_ADVICE),
    ADVICE_OPEN := Name("ragguard.advice.open_sub_questions", "int", "how many sub-questions are open", on=ON_ADVICE),
    ADVICE_ELAPSED := Name("ragguard.advice.elapsed_ms", "double", "how long the agent waited for it", on=ON_ADVICE),
    GUARD_STATUS := Name("ragguard.guard.status", "string", "pruned, kept_all, timeout or error", on=ON_GUARD),
    GUARD_REASON := Name("ragguard.guard.reason", "string", "the policy, the error, or the budget", on=ON_GUARD),
    GUARD_ELAPSED := Name("ragguard.guard.elapsed_ms", "double", "what the guard added", on=ON_GUARD),
    GUARD_KEPT := Name("ragguard.guard.kept", "int", "passages kept", on=ON_GUARD),
    GUARD_DROPPED := Name("ragguard.guard.dropped", "int", "passages dropped", on=ON_GUARD),
    GUARD_DROPPED_POSITIONS := Name("ragguard.guard.dropped.positions", "int[]", "their ranks, from 1", on=ON_GUARD),
    GUARD_DROPPED_UTILITY := Name("ragguard.guard.dropped.utility", "double[]", "their utilities", on=ON_GUARD),
    GUARD_DROPPED_REASONS := Name("ragguard.guard.dropped.reasons", "string[]", "why each went", on=ON_GUARD),
    GUARD_DISAGREEMENTS := Name(
        "ragguard.guard.disagreements", "string[]", "dropped passages whose score differs, and why", on=ON_GUARD,
    ),
)  # fmt: skip

ATTRIBUTES: dict[str, tuple[Name, ...]] = {
    "GenAI semantic conventions": GEN_AI,
    "OpenInference": OPENINFERENCE,
    "ragguard": OURS,
}

# Names that hold an index are built by the functions below.
PATTERNS: dict[str, str] = {
    "retrieval.documents.{i}.document.{id,score,metadata,content}": (
        "OpenInference: passage i of a step; `content` and `metadata` only when content is captured"
    ),
    "evaluations.{i}.evaluation.{name,score,label,explanation,annotator_kind,identifier}": (
        "OpenInference: score i on an EVALUATOR span; `explanation` only when content is captured"
    ),
    "ragguard.advice.numbers.{name}": "the numbers behind advice, such as `sufficiency` and its `threshold`",
    "ragguard.passages.{name}": (
        "the passage scores of that name, in the order of `ragguard.passages.positions` where every "
        "passage has one, else a JSON object position → score"
    ),
}

EVENT_EVALUATION = "gen_ai.evaluation.result"

METRICS: dict[str, tuple[str, str, str]] = {
    "ragguard.evaluation.score": (
        "histogram",
        "1",
        "size of every score, by name, sign, level, reference source",
    ),
    "ragguard.evaluation.duration": ("histogram", "s", "from a run's end to its scores"),
    "ragguard.evaluation.failures": (
        "counter",
        "{failure}",
        "scores that could not be given, by scorer and error",
    ),
    "ragguard.usage.tokens": ("counter", "{token}", "what scoring cost, by type (input, output) and model"),
    "ragguard.usage.requests": ("counter", "{request}", "requests made for scoring, by model"),
    "ragguard.usage.cost": ("counter", "{currency}", "what scoring cost in money, where prices are given"),
    "ragguard.queue.depth": ("gauge", "{run}", "runs that wait for scoring"),
    "ragguard.dropped": ("counter", "{event}", "what was lost, by reason"),
    "ragguard.guard.decisions": (
        "counter",
        "{decision}",
        "guards' decisions, by status and, where passages could not be judged, by cause",
    ),
    "ragguard.guard.duration": ("histogram", "ms", "what the guard added, by status"),
}


def document(index: int, field: str) -> str:
    """Returns the OpenInference name of a field of passage `index`."""
    return f"retrieval.documents.{index}.document.{field}"


def evaluation(index: int, field: str) -> str:
    """Returns the OpenInference name of a field of score `index`."""
    return f"evaluations.{index}.evaluation.{field}"


def advice_number(name: str) -> str:
    """Returns ragguard's attribute name of one of the numbers behind advice."""
    return f"ragguard.advice.numbers.{name}"


def passages(score: str) -> str:
    """Returns ragguard's attribute name of the passage scores called `score`."""
    return f"ragguard.passages.{score}"
