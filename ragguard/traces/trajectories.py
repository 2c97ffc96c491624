"""Trajectories in ATIF (Agent Trajectory Interchange Format, version 1) as spans: a trace for each question of a user.

A trajectory has no spans and often no times, but an order: what the user asked, each call of the model with the calls
of tools that it made, and what these gave. Each becomes a span under the agent's, so that trajectories are read like
any other trace. Of a model's prompt a span holds what is new since the call before: the call before stands in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from ragguard.capture.names import USER
from ragguard.capture.shapes import content_text, messages_in, question_in
from ragguard.errors import InvalidInput
from ragguard.traces.spans import TraceSpan, ns_of, object_in, objects_in
from ragguard.traces.texts import said

VERSIONS = tuple(f"ATIF-v1.{minor}" for minor in range(8))
STEP = "atif.step"
"""The attribute that says whether a span is an agent, a call of a model or a call of a tool."""
_REPLY = frozenset(("role", "content", "tool_calls"))
"""The names in a whole reply of a model that stands as JSON in a step's message."""
_DEEPEST = 5
"""How deep sub-agents may be nested."""


def is_trajectory(data: Mapping[str, Any]) -> bool:
    """True for a trajectory of any version."""
    return str(data.get("schema_version", "")).startswith("ATIF")


def spans_of_trajectory(data: Mapping[str, Any]) -> Iterator[TraceSpan]:
    """Yields the spans of a trajectory; raises InvalidInput for one of an unknown version or without steps."""
    version = data.get("schema_version")
    if version not in VERSIONS:
        raise InvalidInput("schema_version", version, f"{VERSIONS[0]} to {VERSIONS[-1]}")
    names = [str(data.get(name) or "") for name in ("session_id", "trajectory_id")]
    key = "/".join([*names, str(object_in(data.get("agent")).get("name") or "")])
    if not any(names):
        key = json.dumps(data.get("steps"), sort_keys=True)
    for number, steps in enumerate(_turns(_steps(data))):
        trace = sha256(f"{key}/{number}".encode("utf-8", "replace")).hexdigest()[:32]
        yield from _Turn(data, trace).spans(steps)


def _steps(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    steps = data.get("steps")
    if not isinstance(steps, list) or not steps or not all(isinstance(step, Mapping) for step in steps):
        raise InvalidInput("steps", steps, "a list of steps, each an object; is the trajectory cut off?")
    return steps


def _turns(steps: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Returns the steps of each question: what the user says after the agent has spoken begins the next one."""
    turns: list[list[Mapping[str, Any]]] = [[]]
    for step in steps:
        asks = step.get("source") == "user" and not step.get("is_copied_context") and bool(_question(step))
        if asks and any(before.get("source") == "agent" for before in turns[-1]):
            turns.append([])
        turns[-1].append(step)
    return turns


@dataclass(slots=True)
class _Turn:
    """The spans of one question, in the order of its steps."""

    data: Mapping[str, Any]
    trace: str
    clock: int = 0
    """The time of the latest span, in nanoseconds: the steps' own where they have one, else their order."""
    count: int = 0
    depth: int = 0
    ended: list[TraceSpan] = field(default_factory=list)

    def spans(self, steps: Sequence[Mapping[str, Any]], parent: str = "") -> list[TraceSpan]:
        """Returns the spans of some steps under that of the agent."""
        agent = object_in(self.data.get("agent"))
        dated = next((step for step in steps if step.get("timestamp")), {})
        root = self._begun(parent, "agent", str(agent.get("name") or "agent"), dated)
        root.attributes = {**root.attributes, "session.id": self.data.get("session_id")}
        asked = [_question(step) for step in steps if step.get("source") == "user"]
        prompt: list[dict[str, Any]] = []
        answer = ""
        waiting: list[tuple[TraceSpan, str]] = []
        for step in steps:
            if step.get("source") != "agent":
                role = "user" if step.get("source") == "user" else "system"
                if text := _question(step) if role == "user" else _text(step):
                    prompt.append({"role": role, "content": text})
            else:
                waiting, calls = self._asked(root, step, prompt)
                answer = _reply(step) or answer
                prompt = [{"role": "assistant", "content": _reply(step), "tool_calls": calls}]
            prompt += self._answered(step, waiting)
        root.attributes = {
            **root.attributes,
            "input.value": "\n".join(filter(None, asked)),
            "output.value": answer,
        }
        root.ended_ns = self.clock = self.clock + 1
        return self.ended

    def _asked(
        self, root: TraceSpan, step: Mapping[str, Any], prompt: list[dict[str, Any]]
    ) -> tuple[list[tuple[TraceSpan, str]], list[dict[str, Any]]]:
        """Adds the span of a model's call and those of the tools that it called, which it returns with the calls'
        ids, and the calls as messages have them."""
        metrics = object_in(step.get("metrics"))
        model = self._begun(root.span_id, "model", "model", step)
        calls: list[dict[str, Any]] = [
            {"id": str(call.get("tool_call_id") or at), "function": {
                "name": str(call.get("function_name") or "tool"),
                "arguments": json.dumps(call.get("arguments") or {}, default=str),
            }}
            for at, call in enumerate(objects_in(step.get("tool_calls")))
        ]  # fmt: skip
        reply = {"role": "assistant", "content": _reply(step), "tool_calls": calls}
        model.attributes = {
            **model.attributes, "gen_ai.input.messages": prompt, "gen_ai.output.messages": [reply],
            "llm.model_name": step.get("model_name") or object_in(self.data.get("agent")).get("model_name"),
            "llm.token_count.prompt": metrics.get("prompt_tokens"), "llm.cost.total": metrics.get("cost_usd"),
            "llm.token_count.completion": metrics.get("completion_tokens"),
        }  # fmt: skip
        model.ended_ns = self.clock = self.clock + 1
        began = self.clock + 1
        tools = []
        for call in calls:
            function = call["function"]
            tool = self._begun(root.span_id, "tool", function["name"], {})
            tool.started_ns = began  # those of one step run beside each other
            tool.attributes = {
                **tool.attributes, "tool.name": function["name"], "tool.arguments": function["arguments"],
            }  # fmt: skip
            tools.append((tool, call["id"]))
        for tool, _ in tools:
            tool.ended_ns = self.clock = self.clock + 1
        return tools, calls

    def _answered(
        self, step: Mapping[str, Any], waiting: list[tuple[TraceSpan, str]]
    ) -> Iterator[dict[str, Any]]:
        """Gives the results in a step to the tools that wait for them, and yields them as messages."""
        for result in objects_in(object_in(step.get("observation")).get("results")):
            id, content = result.get("source_call_id"), content_text(result.get("content"))
            at = next((at for at, (_, call) in enumerate(waiting) if id in (call, None)), None)
            if at is None or not (content or result.get("subagent_trajectory_ref")):
                continue
            tool, call = waiting.pop(at)
            tool.attributes = {**tool.attributes, "gen_ai.tool.call.result": content}
            self._add_sub_agents(result, tool)
            yield {"role": "tool", "tool_call_id": call, "content": content}

    def _add_sub_agents(self, result: Mapping[str, Any], tool: TraceSpan) -> None:
        """Adds the spans of the trajectories in this one to which a result refers."""
        wanted = {str(ref.get("trajectory_id")) for ref in objects_in(result.get("subagent_trajectory_ref"))}
        for inner in objects_in(self.data.get("subagent_trajectories")):
            if str(inner.get("trajectory_id")) in wanted and self.depth < _DEEPEST:
                turn = _Turn(
                    data=inner, trace=self.trace, clock=self.clock, count=self.count, depth=self.depth + 1,
                    ended=self.ended,
                )  # fmt: skip
                turn.spans(_steps(inner), tool.span_id)
                self.clock, self.count = turn.clock, turn.count
                tool.ended_ns = self.clock = self.clock + 1

    def _begun(self, parent: str, kind: str, name: str, step: Mapping[str, Any]) -> TraceSpan:
        self.count += 1
        self.clock = max(self.clock + 1, ns_of(step.get("timestamp")))
        id = sha256(f"{self.trace}/{self.count}".encode()).hexdigest()[:16]
        span = TraceSpan(
            trace_id=self.trace, span_id=id, parent_id=parent, name=name, started_ns=self.clock,
            attributes={STEP: kind},
        )  # fmt: skip
        self.ended.append(span)
        return span


def _text(step: Mapping[str, Any]) -> str:
    return content_text(step.get("message"))


def _question(step: Mapping[str, Any]) -> str:
    """Returns what the user asks in a step, whose message may hold a model's whole prompt as JSON; "" for a prompt that
    ends with what the model or a tool said, since its question was asked before."""
    text = _text(step)
    messages = messages_in(said(text))
    if messages and messages[-1].role not in USER:
        return ""
    return question_in(text, said) or text


def _reply(step: Mapping[str, Any]) -> str:
    """Returns what the model says in a step, whose message may hold its whole reply as JSON."""
    text = _text(step)
    reply = said(text)
    is_whole = isinstance(reply, Mapping) and "content" in reply and reply.keys() <= _REPLY
    return content_text(reply["content"]) if is_whole else text
