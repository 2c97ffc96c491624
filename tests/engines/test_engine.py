"""What every engine of the package refuses before it asks its model."""

from __future__ import annotations

import pytest
from support.scripted_engine import ScriptedEngine

from ragguard.engines.connect import connect
from ragguard.engines.nano.nano_engine import NanoEngine
from ragguard.errors import InvalidInput

ASK = "label_probs"


@pytest.mark.parametrize(
    ("verb", "arguments", "named"),
    [
        *((ASK, (["Who?"], labels), "labels") for labels in ([], ["A", "A"], [""], ["A", " "], "AB")),
        (ASK, (["Who?"], ["A"], "whole"), "mode: got 'whole'"),
        (ASK, ("Who?", ["A"]), "a list of prompts"),
        *(
            (ASK, ([prompt], ["A"]), "prompt")
            for prompt in (
                [],
                [("robot", "x")],
                [("user",)],
                [{"role": "robot", "content": "x"}],
                [{"content": "x"}],
                5,
            )
        ),
        ("sample", ("Who?",), "a list of prompts"),
        ("sample", (["Who?"], 0), "n"),
        ("sample", (["Who?"], 1, 0), "max_tokens"),
        ("sample", (["Who?"], 1, 1, -1.0), "temperature"),
        *(
            ("continuations", (["Who?"] * 3, texts), "texts")
            for texts in (["Ada Berg"], [["Ada"], [""], ["Ole"]], [["Ada"], "Berg", ["Ole"]])
        ),
    ],
)
async def test_argument_that_cannot_be_is_refused_by_its_name(verb, arguments, named):
    engine = connect(ScriptedEngine())
    with pytest.raises(InvalidInput, match=named):
        await getattr(engine, verb)(*arguments)
    await engine.aclose()


def test_verb_of_an_engine_that_layers_would_not_call_cannot_be_overridden():
    with pytest.raises(TypeError, match="Louder overrides label_probs: override `send`"):
        type("Louder", (NanoEngine,), {"label_probs": lambda self, prompts, labels: None})
