"""Reads LlamaIndex's instrument tags that describe a run: its id, name, question, answer and references."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragguard.capture.declarations import warn_of_unknown
from ragguard.capture.recorder import Recorder
from ragguard.capture.snapshot import text_of
from ragguard.errors import InvalidInput
from ragguard_llamaindex.calls import Call, Invocation, given_in
from ragguard_llamaindex.options import (
    ANSWER,
    KEYS,
    NAME,
    QUESTION,
    REFERENCES,
    RESUME,
    RUN_ID,
    answer_from,
    question_from,
)  # fmt: skip
from ragguard_llamaindex.runs import RunWriter, tags_of


def read_tags(run: Invocation, tags: Mapping[str, Any], recorder: Recorder) -> None:
    """Reads the tags of a run that begins into its invocation."""
    run.name = str(tags.get(NAME) or run.name)
    named, resumes = tags.get(RUN_ID), bool(tags.get(RESUME))
    if named and not run.joins(named, resumes=resumes):
        run.claim(named, resumes=resumes)
    run.metadata = tags_of(tags)
    warn_of_unknown(tags, "tag", KEYS)
    run.refer(tags.get(REFERENCES), "instrument_tags")
    try:
        run.answer = answer_from(ANSWER, tags.get(ANSWER))
    except InvalidInput as error:
        recorder.faults.note("instrument_tags", error)


def read_question(call: Call, arguments: Mapping[str, Any], tags: Mapping[str, Any], runs: RunWriter) -> None:
    """Reads the question from where the application says that it is; where it does not, the question stays."""
    run, options = call.run, runs.options
    run.answer = run.answer or options.answer
    question = question_from(QUESTION, tags.get(QUESTION)) or options.question
    if question is None:
        return
    try:
        asked = text_of(question(given_in(call.kind, arguments)))[0]
    except Exception as error:  # noqa: BLE001 - the function is the user's
        runs.recorder.faults.note("question", error)
        return
    if asked:
        run.question = call.asked = call.written_query = asked
