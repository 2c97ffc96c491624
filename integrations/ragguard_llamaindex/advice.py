"""Advice in LlamaIndex: an agent that answers once what it has found suffices."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from llama_index.core.agent.workflow import AgentOutput, FunctionAgent
from llama_index.core.agent.workflow.agent_context import AgentContext
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    MessageRole,
    TextBlock,
    ToolCallBlock,
)
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.memory import BaseMemory
from llama_index.core.tools import AsyncBaseTool
from pydantic import ConfigDict, PrivateAttr

from ragguard.advice.loop import (
    MAX_HOPS,
    MAX_REPHRASES,
    LoopAdviser,
    check_search_tools,
    note_calls_left_out,
    search_tools_of,
)
from ragguard.capture.open_runs import BUDGET_MS

HANDOFF = "handoff"
"""The name of LlamaIndex's tool with which an agent hands over to another one; it never searches."""


class AdvisedFunctionAgent(FunctionAgent):
    """A `FunctionAgent` that asks for advice after each hop, and answers once what it has found suffices.

        AdvisedFunctionAgent(tools=[search], llm=llm, max_hops=6)

    Before each turn its model is told, at the end of the system message, which sub-questions are still open. When the
    advice is `answer`, and after `max_hops` at the latest, its turn is without tools, so that it answers. The call must
    be captured by a RagGuard (`instrument(rg)`, or `with rg.run(question)`), whose engine judges. Where no advice can
    be had, the loop goes on within `max_hops`, and a warning says why.

    Args:
        max_hops: After how many hops the model answers, whatever the advice; 1 or more. The tool calls of one message
            are one hop.
        max_rephrases: After how many hops in a row that brought nothing for their query the model answers; 1 or more.
        min_hops: The smallest number of hops: before, no advice is asked. From 1 to `max_hops`.
        search_tools: The names of the tools that search, if the agent has other tools, too: it keeps those when it has
            to stop searching. None: all of its tools but that of a handoff. A name of no tool that is offered is logged
            once; if none of them is offered, the first turn is refused.
        budget_ms: How many milliseconds advice may take after a hop. If that is not enough, the loop goes on.
        settings: The arguments of a `FunctionAgent`.
    """

    model_config = ConfigDict(extra="forbid")

    _adviser: LoopAdviser = PrivateAttr()
    _searching: frozenset[str] | None = PrivateAttr(default=None)

    def __init__(
        self,
        *,
        max_hops: int = MAX_HOPS,
        max_rephrases: int = MAX_REPHRASES,
        min_hops: int = 1,
        search_tools: Collection[str] | None = None,
        budget_ms: float = BUDGET_MS,
        **settings: Any,
    ) -> None:
        adviser = LoopAdviser(max_hops, budget_ms, max_rephrases, min_hops)
        searching = search_tools_of(search_tools)
        super().__init__(**settings)
        self._adviser, self._searching = adviser, searching

    async def take_step(
        self,
        ctx: AgentContext,
        llm_input: list[ChatMessage],
        tools: Sequence[AsyncBaseTool],
        memory: BaseMemory,
    ) -> AgentOutput:
        """Asks for advice where the agent has searched, then the model: with what it is to know, and without the tools
        that search where it is to answer."""
        made: list[ChatMessage] = await ctx.store.get(self.scratchpad_key, default=[])
        hops = sum(self._has_searched(message) for message in made)
        if not hops:
            check_search_tools(self._searching, [tool.metadata.name or "" for tool in tools], hops)
        hop = await self._adviser.aafter(hops)
        if hop.note:
            llm_input = _with_note(llm_input, hop.note)
        if not hop.enough:
            return await super().take_step(ctx, llm_input, tools, memory)
        stays = [tool for tool in tools if not self._searches(tool.metadata.name or "")]
        return await self._answering(ctx, await super().take_step(ctx, llm_input, stays, memory))

    def _searches(self, tool: str) -> bool:
        return tool != HANDOFF if self._searching is None else tool in self._searching

    def _has_searched(self, message: ChatMessage) -> bool:
        if message.role != MessageRole.ASSISTANT or not isinstance(self.llm, FunctionCallingLLM):
            return False
        calls = self.llm.get_tool_calls_from_response(
            ChatResponse(message=message), error_on_no_tool_call=False
        )
        return any(self._searches(call.tool_name) for call in calls)

    async def _answering(self, ctx: AgentContext, output: AgentOutput) -> AgentOutput:
        """Returns what the model said without calls of tools that it was not offered: it would search on."""
        gone = {call.tool_id for call in output.tool_calls if self._searches(call.tool_name)}
        if not gone:
            return output
        message = output.response
        note_calls_left_out()
        blocks = [
            one for one in message.blocks if not (isinstance(one, ToolCallBlock) and one.tool_call_id in gone)
        ]
        more = {name: value for name, value in message.additional_kwargs.items() if name != "tool_calls"}
        answer = ChatMessage(role=message.role, blocks=blocks, additional_kwargs=more)
        made: list[ChatMessage] = await ctx.store.get(self.scratchpad_key, default=[])
        await ctx.store.set(self.scratchpad_key, [*made[:-1], answer])
        stay = [call for call in output.tool_calls if call.tool_id not in gone]
        return output.model_copy(update={"response": answer, "tool_calls": stay})


def _with_note(messages: Sequence[ChatMessage], note: str) -> list[ChatMessage]:
    """Returns the messages with a note at the end of the system message, which stands first."""
    first, *others = messages
    if first.role != MessageRole.SYSTEM:
        return [ChatMessage(role=MessageRole.SYSTEM, content=note), *messages]
    blocks = [*first.blocks, TextBlock(text=note)]
    return [ChatMessage(role=first.role, blocks=blocks, additional_kwargs=first.additional_kwargs), *others]
