"""Advice as middleware: ends an agent's loop once what was found suffices, and shows the model what is open."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from itertools import takewhile
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

from ragguard.advice.loop import (
    MAX_HOPS,
    MAX_REPHRASES,
    HopAdvice,
    LoopAdviser,
    check_search_tools,
    note_calls_left_out,
    search_tools_of,
)
from ragguard.capture.open_runs import BUDGET_MS

_CALLS = ("tool_use", "tool_call", "function_call")
"""The types of content blocks in which providers repeat the tool calls of a message."""


class AdviceMiddleware(AgentMiddleware[Any, Any]):
    """Asks for advice after each hop of an agent, and lets the model answer once what it has found suffices.

        create_agent(model, tools, middleware=[AdviceMiddleware(max_hops=6)])

    Before each turn the model is told, at the end of its system message, which sub-questions are still open. When the
    advice is `answer`, and after `max_hops` at the latest, its turn is without tools, so that it answers. The call must
    be captured by a RagGuard (`RagGuardCallback(rg)`, `instrument(rg)` or `with rg.run(question)`), whose engine
    judges. Where no advice can be had, the loop goes on within `max_hops`, and a warning says why.

    Args:
        max_hops: After how many hops the model answers, whatever the advice; 1 or more. The tool calls of one message
            are one hop.
        max_rephrases: After how many hops in a row that brought nothing for their query the model answers; 1 or more.
        min_hops: The smallest number of hops: before, no advice is asked. From 1 to `max_hops`.
        search_tools: The names of the tools that search, if the agent has other tools, too: it keeps those when it has
            to stop searching. None: all of its tools. A name of no tool that is offered is logged once.
        budget_ms: How many milliseconds advice may take after a hop. If that is not enough, the loop goes on.
    """

    def __init__(
        self,
        max_hops: int = MAX_HOPS,
        *,
        max_rephrases: int = MAX_REPHRASES,
        min_hops: int = 1,
        search_tools: Collection[str] | None = None,
        budget_ms: float = BUDGET_MS,
    ) -> None:
        super().__init__()
        self._adviser = LoopAdviser(max_hops, budget_ms, max_rephrases, min_hops)
        self._searching = search_tools_of(search_tools)

    def wrap_model_call(
        self, request: ModelRequest, handler: Callable[[ModelRequest], ModelResponse[Any]]
    ) -> ModelResponse[Any] | AIMessage:
        """Asks for advice where the agent has searched, then the model: with what it is to know, and without the tools
        that search where it is to answer."""
        asked, withheld = self._advised(request, self._adviser.after(self._hops(request)))
        return _answering(handler(asked), withheld)

    async def awrap_model_call(
        self, request: ModelRequest, handler: Callable[[ModelRequest], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any] | AIMessage:
        """Does what `wrap_model_call` does, without blocking the event loop."""
        asked, withheld = self._advised(request, await self._adviser.aafter(self._hops(request)))
        return _answering(await handler(asked), withheld)

    def _hops(self, request: ModelRequest) -> int:
        """Returns in how many messages the model has searched since the latest question, before an interrupt too;
        refuses names of tools that it never has."""
        since = takewhile(lambda one: not isinstance(one, HumanMessage), reversed(request.state["messages"]))
        hops = sum(
            any(self._searches(call["name"]) for call in one.tool_calls)
            for one in since
            if isinstance(one, AIMessage)
        )
        check_search_tools(self._searching, frozenset(map(_name_of, request.tools)), hops)
        return hops

    def _searches(self, tool: str) -> bool:
        return self._searching is None or tool in self._searching

    def _advised(self, request: ModelRequest, hop: HopAdvice) -> tuple[ModelRequest, frozenset[str]]:
        """Returns the request as advice has it, and the names of the tools that it no longer offers."""
        offered = frozenset(map(_name_of, request.tools))
        if hop.note:
            request = request.override(system_message=_with_note(request.system_message, hop.note))
        if not hop.enough:
            return request, frozenset()
        stays = [one for one in request.tools if not self._searches(_name_of(one))]
        return request.override(tools=stays, tool_choice=None), offered - frozenset(map(_name_of, stays))


def _name_of(tool: Any) -> str:
    """Returns the name of a tool: one of LangChain's, or a provider's own, which is a mapping."""
    if isinstance(tool, dict):
        function = tool.get("function")
        named = function if isinstance(function, dict) else tool
        return str(named.get("name") or tool.get("type") or "")
    return str(getattr(tool, "name", ""))


def _with_note(message: SystemMessage | None, note: str) -> SystemMessage:
    """Returns a system message with a note at its end."""
    if message is None:
        return SystemMessage(note)
    if isinstance(message.content, str):
        content: str | list[str | dict[str, Any]] = f"{message.content}\n\n{note}"
    else:
        content = [*message.content, {"type": "text", "text": f"\n\n{note}"}]
    return message.model_copy(update={"content": content})


def _answering(
    response: ModelResponse[Any] | AIMessage, withheld: frozenset[str]
) -> ModelResponse[Any] | AIMessage:
    """Returns a model's response without calls of tools that it was not offered: it would search on."""
    if isinstance(response, AIMessage):
        return _without_calls(response, withheld)
    messages = [
        _without_calls(one, withheld) if isinstance(one, AIMessage) else one for one in response.result
    ]
    return ModelResponse(result=messages, structured_response=response.structured_response)


def _without_calls(message: AIMessage, withheld: frozenset[str]) -> AIMessage:
    gone = {call["id"] for call in message.tool_calls if call["name"] in withheld}
    if not gone:
        return message
    note_calls_left_out()
    content = message.content
    if not isinstance(content, str):
        content = [one for one in content if not (isinstance(one, dict) and _id_of_call(one) in gone)]
    more = {name: value for name, value in message.additional_kwargs.items() if name != "tool_calls"}
    stay = [call for call in message.tool_calls if call["id"] not in gone]
    return message.model_copy(update={"tool_calls": stay, "content": content, "additional_kwargs": more})


def _id_of_call(block: dict[str, Any]) -> object:
    """Returns the id of the tool call that a block of a message's content is; None for any other block."""
    return (block.get("call_id") or block.get("id")) if block.get("type") in _CALLS else None
