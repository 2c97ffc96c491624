"""The options of a handler as LangChain's documents are read by them, and the metadata keys of its calls."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ragguard.capture.declarations import CaptureOptions
from ragguard.capture.pipeline_run import RUN_KEYS
from ragguard.records import Passage
from ragguard_langchain.messages import Taken, unpacked
from ragguard_langchain.views import viewed

K = "ragguard_k"
"""The metadata key by which a retriever, or a call's config, says how many documents the retriever is asked for."""
KEYS = (*RUN_KEYS, K)
NO_OPTIONS = CaptureOptions()


def unpack_of(options: CaptureOptions) -> Callable[[Taken], list[Passage]]:
    """Returns the function that makes passages of a snapshot, with the texts that the model reads."""
    return unpacked if options.text_of is None else partial(viewed, text_of=options.text_of)
