"""The options of commands that score, made of the fields of `ScoringSettings`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any, TypeAlias

import typer

from ragguard.scorers.settings import OPTION, CommandLineOption, ScoringSettings

_OPTIONS: dict[str, tuple[CommandLineOption, Any]] = {
    one.name: (one.metadata[OPTION], one.default) for one in fields(ScoringSettings) if OPTION in one.metadata
}
"""Setting → its option and default, of those that a command line can give."""
ScoringOptions: TypeAlias = dict[str, Any]
"""Settings by name, as the user gave them."""


def option(name: str) -> Any:
    """Returns the option of a setting, for a command that takes only some of them."""
    made = _OPTIONS[name][0]
    return typer.Option(*made.flags, help=made.help, show_default=made.default or True)


def takes_scoring_options(run: Callable[..., None]) -> Callable[..., None]:
    """Gives a command an option for each setting of scoring, in place of its parameter `scoring`, which gets what the
    user gave, as `ScoringOptions`."""

    @functools.wraps(run)
    def command(**given: Any) -> None:
        run(scoring={name: made.value(given.pop(name)) for name, (made, _) in _OPTIONS.items()}, **given)

    parameters = []
    for name, parameter in inspect.signature(run, eval_str=True).parameters.items():
        added = [parameter]
        if name == "scoring":
            added = [
                inspect.Parameter(
                    setting,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=default,
                    annotation=Annotated[str | None, option(setting)],
                )
                for setting, (_, default) in _OPTIONS.items()
            ]
        parameters += [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in added]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command


EngineAddress: TypeAlias = Annotated[str, option("engine")]
JudgeAddress: TypeAlias = Annotated[str | None, option("judge")]
RelevanceForm: TypeAlias = Annotated[str, option("relevance")]
PromptSetName: TypeAlias = Annotated[str | None, option("prompts")]
