"""The agent that `ragguard demo` shows: its model streams, as a real one does."""

from __future__ import annotations

from functools import reduce
from operator import add

import pytest
from langchain_core.messages import AIMessageChunk, HumanMessage, ToolMessage

from ragguard_langchain.demo import HoppingChat

CHAT = HoppingChat(plan=lambda question: ["who founded it?"], read=lambda question, lines: "Ada Berg did")
FOUND = ToolMessage("Ada Berg founded it.", tool_call_id="hop-0")


@pytest.mark.parametrize("messages", [[HumanMessage("who?")], [HumanMessage("who?"), FOUND]])
def test_the_model_streams_deltas_that_add_up_to_its_message(messages):
    chunks = [one for one in CHAT.stream(messages) if isinstance(one, AIMessageChunk)]
    whole = CHAT.invoke(messages)
    assert chunks, "it streams"
    total = reduce(add, chunks)
    assert total.content == whole.content
    assert [call["args"] for call in total.tool_calls] == [call["args"] for call in whole.tool_calls]
    assert len([one for one in chunks if one.content]) == len(str(whole.content).split())
