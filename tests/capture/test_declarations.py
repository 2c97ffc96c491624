"""What a user declared and capture does not find: the sentences name the way out."""

from __future__ import annotations

import pytest

from ragguard.capture.declarations import checked_tools, unknown_key
from ragguard.errors import InvalidInput


def test_unknown_key_is_named_beside_the_known_ones():
    sentence = unknown_key("ragguard_qestion", ["ragguard_run_id", "ragguard_question"])
    assert sentence.startswith("'ragguard_qestion' is not a key")
    assert sentence.endswith("Known keys: ragguard_question, ragguard_run_id")


@pytest.mark.parametrize("tools", [str.split, {"a": "text"}, {"a": None}, {"a": 3}, "a", [1]])
def test_declaration_of_a_tool_without_a_splitter_is_refused(tools):
    with pytest.raises(InvalidInput, match="tools"):
        checked_tools(tools)
