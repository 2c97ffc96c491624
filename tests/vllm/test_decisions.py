"""`/v1/systemone` of a real vLLM beside the same server's label probabilities, on a tiny Qwen3 with random weights."""

from __future__ import annotations

import numpy as np
import pytest
from support.environments import VLLM
from support.tiny_checkpoint import make_checkpoint
from support.vllm_server import serve

from ragguard.engines.base import Message, Prompt
from ragguard.engines.connect import open_engine
from ragguard.errors import EngineRejected

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(900)]
STATES = ("Ada Berg founded the firm in Oslo .", "Ole Dahl runs the firm in Lyon .", "Paris sells maps .")
OPTIONS = (("yes", "the document founded"), ("no", "the document does not"))
LEVELS = (("0", "None"), ("1", "from it"), ("2", "the answer"))
ASKED = "Who founded the firm ?"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    if not VLLM.ready():
        pytest.skip("NO vLLM HERE: run `make test-vllm`")
    with serve(make_checkpoint(tmp_path_factory.mktemp("qwen"), qwen=True), "tiny") as server:
        yield server


def typed_and_written(options):
    """The same questions twice: with options, which a decision server puts into words, and in vLLM's own words."""
    is_score = options is LEVELS
    marks = "0123456789" if is_score else "ABCDEFGHIJ"
    lines = [
        f"{mark}: {meaning if is_score else f'{name} - {meaning}'}"
        for mark, (name, meaning) in zip(marks, options, strict=False)
    ]
    what = "number of one level" if is_score else "letter of one option"
    asked = "\n".join([f"Question: {ASKED}", *lines, f"Answer with the {what} only."])
    typed = [Prompt((Message("system", ASKED), Message("user", one)), options=options) for one in STATES]
    written = [Prompt((Message("user", f"{one}\n\n{asked}"),)) for one in STATES]
    return typed, written, tuple(marks[: len(options)])


@pytest.mark.parametrize("options", [OPTIONS, LEVELS], ids=["choice", "score"])
async def test_decisions_are_the_label_probabilities_of_the_same_model(server, options):
    typed, written, marks = typed_and_written(options)
    judge, reader = open_engine(f"systemone:{server.url}"), open_engine(server.url)
    decided = np.asarray(await judge.label_probs(typed, tuple(name for name, _ in options)))
    labelled = np.asarray(await reader.label_probs(written, marks))
    await judge.aclose()
    await reader.aclose()
    gaps = np.abs(decided - labelled)
    print(f"decisions and labels: largest gap {gaps.max():.1e} of {labelled.max():.2e}")
    np.testing.assert_allclose(decided, labelled, rtol=2e-2, atol=1e-5)
    assert np.ptp(labelled, axis=0).max() > 1e-5, "the state matters"


async def test_server_of_another_architecture_names_the_way_out(tmp_path):
    if not VLLM.ready():
        pytest.skip("NO vLLM HERE: run `make test-vllm`")
    with serve(make_checkpoint(tmp_path), "llama") as server:
        judge = open_engine(f"systemone:{server.url}")
        with pytest.raises(EngineRejected, match="give the same server without `systemone:`"):
            await judge.info()
        await judge.aclose()
