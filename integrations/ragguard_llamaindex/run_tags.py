"""Reads LlamaIndex's instrument tags that describe a run: its id, name and references."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragguard.capture.declarations import located, warn_of_unknown
from ragguard.capture.recorder import Recorder
from ragguard.capture.snapshot import text_of
from ragguard_llamaindex.calls import Call, Invocation, given_in
from ragguard_llamaindex.options import KEYS, NAME, REFERENCES, RESUME, RUN_ID
from ragguard_llamaindex.runs import RunWriter, tags_of


def read_tags(run: Invocation, tags: Mapping[str, Any], recorder: Recorder) -> None:
    """Reads the tags of a run that begins into its invocation."""
    run.name = str(tags.get(NAME) or run.name)
    named, resumes = tags.get(RUN_ID), bool(tags.get(RESUME))
    if named and not run.joins(named, resumes=resumes):
        run.claim(named, resumes=resumes)
    run.refer(tags.get(REFERENCES), "instrument_tags")
    run.metadata = tags_of(tags)
    warn_of_unknown(tags, "tag", KEYS)


def read_question(call: Call, arguments: Mapping[str, Any], runs: RunWriter) -> None:
    """Reads the question from where the application says that it is; where it does not, the question stays."""
    locate = runs.options.question
    if locate is not None and (
        found := located("question", locate, given_in(call.kind, arguments), runs.faults)
    ):
        call.run.question = call.asked = call.written_query = text_of(found)[0]
