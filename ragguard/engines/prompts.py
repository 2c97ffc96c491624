"""Prompt sets: the instructions of each task, as data with a name and a version.

A set is a TOML file with one table for each task; a `system` at its top is used by every task without its own. Prompt
sets belong to the engines, since an engine says which set its model needs, and nano is trained on one of them.
A template is rendered in one pass, so that no text in a passage is read as a placeholder. Text from outside is
neutralised first: no passage can close its own frame or contain a chat template's tokens.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, get_args

from ragguard.engines.base import Message, Prompt, Role, Span, as_labels
from ragguard.engines.chat_frames import neutralise
from ragguard.errors import InvalidInput, UnknownName

Task = Literal[
    "abstention",
    "answer",
    "answer_closed",
    "relevance",
    "relevance_with_references",
    "answerability",
    "grade",
    "entailment",
    "sub_questions",
    "response_grade",
    "condense",
    "query",
    "query_closed",
    "report_questions",
    "self_contained",
]
TASKS: tuple[str, ...] = get_args(Task)

_SETS = {
    "default": files("ragguard.engines") / "prompt_sets" / "default.toml",
    "plain": files("ragguard.engines") / "prompt_sets" / "plain.toml",
    "decisions": files("ragguard.engines") / "prompt_sets" / "decisions.toml",
    "rerank": files("ragguard.engines") / "prompt_sets" / "rerank.toml",
    "nano": files("ragguard.engines") / "nano" / "prompts.toml",
}
_SLOT = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Template:
    """A task of a prompt set: its instructions and its labels."""

    user: str
    system: str = ""
    passage: str = "{text}"
    """The form of one passage in `{passages}`, with the placeholders `{number}` and `{text}`."""
    separator: str = "\n"
    labels: tuple[str, ...] = ()
    criteria: tuple[str, ...] = ()
    """The meaning of each label, for models that are asked typed questions."""
    grades: tuple[int, ...] = ()
    """The grade that each label stands for, where labels are digits of a scale of the model's own."""
    max_tokens: int = 48
    longest: int = 0
    """The most words of an answer that the task `entailment` compares. A longer answer of a run is shortened before it
    is compared with references. 0: answers are compared as they are."""


@dataclass(frozen=True, slots=True)
class PromptSet:
    """A set of prompts: one template for each task, such as answering or judging relevance."""

    name: str
    """The set's name, which scores record."""
    version: str
    """The set's version, which scores record; it changes with the texts."""
    templates: Mapping[str, Template]
    """The template of each task, as `load_prompts` reads them from a TOML file."""

    @property
    def identity(self) -> str:
        """The name and version as a score records them, such as `default/1`."""
        return f"{self.name}/{self.version}"

    def template(self, task: Task) -> Template:
        """Returns the template of a task; the error for an unknown task names those that this set has."""
        try:
            return self.templates[task]
        except KeyError:
            raise UnknownName(
                f"the prompt set {self.identity} has no prompt for this task",
                task,
                ", ".join(sorted(self.templates)),
            ) from None

    def labels(self, task: Task) -> tuple[str, ...]:
        """Returns the labels of a task, one of which is the answer."""
        return self.template(task).labels

    def render(
        self, task: Task, passages: Sequence[str] = (), *, cuttable: Sequence[str] = (), **slots: str
    ) -> Prompt:
        """Returns the prompt of a task. If it does not fit, its passages and the slots in `cuttable` may be cut, the
        last one first."""
        template = self.template(task)
        messages: list[Message] = []
        spans: list[Span] = []
        turns: tuple[tuple[Role, str], ...] = (("system", template.system), ("user", template.user))
        for role, text in turns:
            if text:
                content, cuts = _fill(text, template, passages, slots, cuttable)
                spans += [Span(len(messages), start, end) for start, end in cuts]
                messages.append(Message(role, content))
        options = tuple(zip(template.labels, template.criteria, strict=False))
        return Prompt(tuple(messages), tuple(reversed(spans)), options=options)

    def completed(self, other: PromptSet) -> PromptSet:
        """Returns this set with the templates of another one for the tasks that this one lacks."""
        return PromptSet(self.name, self.version, {**other.templates, **self.templates})


def _fill(
    text: str, template: Template, passages: Sequence[str], slots: Mapping[str, str], cuttable: Sequence[str]
) -> tuple[str, list[tuple[int, int]]]:
    filled = ""
    cuts: list[tuple[int, int]] = []
    # Texts and the names of slots by turns, a text first and last.
    *parts, end = _SLOT.split(text)
    for before, name in zip(parts[::2], parts[1::2], strict=True):
        filled += before
        if name != "passages":
            if name not in slots:
                raise InvalidInput("slots", sorted(slots), f"a value for {{{name}}}")
            start = len(filled)
            filled += neutralise(slots[name])
            if name in cuttable:
                cuts.append((start, len(filled)))
            continue
        for number, passage in enumerate(passages, 1):
            head, _, tail = template.passage.replace("{number}", str(number)).partition("{text}")
            filled += head if number == 1 else template.separator + head
            start = len(filled)
            filled += neutralise(passage)
            cuts.append((start, len(filled)))
            filled += tail
    return filled + end, cuts


def parse_prompts(text: str, origin: str = "prompts") -> PromptSet:
    """Returns the prompt set in a TOML text."""
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidInput(origin, text[:40], f"TOML; {error}") from error
    name, version = data.pop("name", None), data.pop("version", None)
    shared = {"system": data.pop("system")} if isinstance(data.get("system"), str) else {}
    if not isinstance(name, str) or not isinstance(version, str):
        raise InvalidInput(origin, (name, version), "`name` and `version` as strings at the top")
    templates = {}
    for task, table in data.items():
        if task not in TASKS:
            raise UnknownName(f"{origin}: task", task, ", ".join(TASKS))
        templates[task] = _template(f"{origin}: [{task}]", table, shared)
    return PromptSet(name, version, templates)


_USUAL = Template("")
_KINDS = {str: "text", int: "a whole number"}


def _template(where: str, table: object, shared: Mapping[str, str]) -> Template:
    """Returns the template in a task's table if each field has the right type."""
    names = [field.name for field in fields(Template)]
    if not isinstance(table, dict) or "user" not in table or table.keys() - set(names):
        raise InvalidInput(where, table, f"a table with `user`, and of {', '.join(names)} what is needed")
    values: dict[str, Any] = {**shared}
    for key, value in table.items():
        usual = getattr(_USUAL, key)
        listed = isinstance(usual, tuple)
        kind = int if key == "grades" else str if listed else type(usual)
        items = value if listed else [value]
        # true is a number to Python.
        if not isinstance(items, list) or not all(type(item) is kind for item in items):
            raise InvalidInput(f"{where} {key}", value, f"{'a list, each ' if listed else ''}{_KINDS[kind]}")
        values[key] = tuple(items) if listed else value
    labels = as_labels(values["labels"]) if "labels" in values else ()
    for key in ("grades", "criteria"):
        if len(values.get(key) or labels) != len(labels):
            raise InvalidInput(f"{where} {key}", values[key], "a list with one item for each label")
    return Template(**values)


def _check_slots(prompts: PromptSet, origin: str) -> None:
    """Raises UnknownName for a template with a slot that its task does not fill."""
    for task, template in prompts.templates.items():
        usual = _shipped("default").templates[task]
        known = {"passages", *_SLOT.findall(usual.system + usual.user)}
        if unknown := set(_SLOT.findall(template.system + template.user)) - known:
            named = ", ".join(f"{{{slot}}}" for slot in sorted(known))
            raise UnknownName(f"{origin}: [{task}] slot", min(unknown), named)


@cache
def _shipped(name: str) -> PromptSet:
    return parse_prompts(_SETS[name].read_text(encoding="utf-8"), name)


def load_prompts(source: str | Path | PromptSet) -> PromptSet:
    """Returns a set of prompts: by its name, from a TOML file, or a given one unchanged.

    Args:
        source: `default`, `plain` (for models without a chat template), `decisions`, `default+decisions` (asks by the
            first and judges by the second), `nano`, a path to a TOML file (docs/how-to/prompts.md describes it), or a
            PromptSet.
    """
    if isinstance(source, PromptSet):
        return source
    if isinstance(source, str) and source in _SETS:
        return _shipped(source)
    if isinstance(source, str) and source == "default+decisions":
        asked, judged = _shipped("default"), _shipped("decisions")
        return replace(judged.completed(asked), name=source, version=f"{asked.version}+{judged.version}")
    if not isinstance(source, str | Path) or not os.path.isfile(source):
        raise UnknownName("prompts", source, f"{', '.join(_SETS)}, or a path to a TOML file")
    prompts = parse_prompts(Path(source).read_text(encoding="utf-8"), str(source))
    _check_slots(prompts, str(source))
    return prompts
