"""The settings of scoring as plain data: models, scorers, prompts, caps and a budget, from which a pipeline is built.

The settings can be pickled wherever models are given as addresses, so that another process builds the same pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ragguard.engines.base import Engine
from ragguard.engines.connect import AUTO, choose, connect, connect_entailer, connect_judge
from ragguard.engines.engine import ConnectedEngine
from ragguard.engines.entailer import Entailer
from ragguard.engines.layers.budget import Account, Limits
from ragguard.engines.prompts import PromptSet
from ragguard.errors import EngineRejected, InvalidInput
from ragguard.metrics.distraction import RELEVANCES, Relevance
from ragguard.runtime.arguments import one_of
from ragguard.runtime.faults import NOTICES
from ragguard.scorers.catalogue import DEFAULT, DEFAULT_OF_SMOL, FAMILIES, LEVELS, Effort
from ragguard.scorers.pipeline import ScoringPipeline
from ragguard.scorers.scorer import Scorer
from ragguard.scorers.view import Caps
from ragguard.text.language import ENGLISH, Language


@dataclass(frozen=True, slots=True)
class CommandLineOption:
    """How a setting is given on a command line."""

    flags: tuple[str, ...]
    help: str
    default: str = ""
    """The default as the help shows it, if the setting itself has none."""

    def value(self, text: str | None) -> Any:
        """Returns the setting that a text stands for."""
        return text


class _NamesOption(CommandLineOption):
    """A list of names with commas between."""

    __slots__ = ()

    def value(self, text: str | None) -> tuple[str, ...] | None:
        """Returns the names; None if the option is not given."""
        return None if text is None else tuple(filter(None, (name.strip() for name in text.split(","))))


def _option(help: str, *flags: str, default: str = "") -> dict[str, CommandLineOption]:
    return {OPTION: CommandLineOption(flags, help, default)}


OPTION = "option"
"""The key of a field's metadata under which its `CommandLineOption` stands."""
ADDRESSES = "nano, smol, http(s)://HOST:PORT/v1[#MODEL], vllm:MODEL, hf:MODEL_OR_FOLDER, gguf:FILE or auto"
"""The engines that can be named by a text."""


@dataclass(frozen=True, kw_only=True)
class ScoringSettings:
    """The models that are asked and the scorers that look at a run, as plain data for this process or another one.

    The one description of these settings: RagGuard's arguments, the options of the commands that score, the settings
    page and the identity of a job over parts are made of its fields.
    """

    engine: str | Engine | None = field(
        default=AUTO, kw_only=False, metadata=_option(f"{ADDRESSES}.", "--engine", "-e")
    )
    """The model that is asked: `nano`, `smol`, the address of an OpenAI-compatible server (`http://HOST:PORT/v1`,
    optionally with `#MODEL`), `vllm:MODEL`, `hf:MODEL`, `gguf:FILE`, or an Engine; `auto` chooses as `connect` says,
    and a log line says what. Nothing else is asked before the first run is scored. None: runs are captured, and sent
    where `otlp` says, and scored elsewhere; or scored here by `scorers=["words"]`."""
    engine_args: Mapping[str, Any] | None = None
    """vLLM's own engine arguments, if the engine is `vllm:MODEL`."""
    effort: Effort | None = field(
        default=None,
        metadata=_option(
            f"How much is asked: {', '.join(f'{name} ({level.asks})' for name, level in LEVELS.items())}. --scorers "
            "overrides it.",
            "--effort",
            default=f"{DEFAULT}, or for smol {DEFAULT_OF_SMOL}",
        ),
    )
    """How much is asked: `low` (likelihood), `medium` (belief as far as needed, utility) or `high` (belief from
    samples, credit, utility, coverage); the table above has what each asks. It sets `scorers` and `caps`; your own
    values for these override it. None: `high`, or `low` for `smol`, whose labels cannot judge."""
    judge: str | Engine | None = field(
        default=None, metadata=_option("Another engine, for relevance, ratings and grades.", "--judge")
    )
    """Another model that judges relevance, ratings, grades and sub-questions; in the forms of `engine`. None: the
    engine judges."""
    entailer: str | Entailer | None = None
    """The model that compares sampled answers instead of the judge: the address of a vLLM server that serves an NLI
    model, `hf:MODEL`, or an Entailer."""
    scorers: Sequence[str | Scorer] | None = field(
        default=None,
        metadata={
            OPTION: _NamesOption(("--scorers",), f"Some of {', '.join(FAMILIES)}.", "those of --effort")
        },
    )
    """The scorers that look at each run, by name (`belief`, `likelihood`, `utility`, `coverage`, `grades`, `random`) or
    as objects with their own settings; objects for another process are pickled. What words decide, without a model
    (`words`), is always scored beside them. None: those of `effort`. Empty: runs are captured and never
    scored."""
    prompts: str | Path | PromptSet | None = field(
        default=None,
        metadata=_option("A prompt set: its name, or a TOML file (docs/how-to/prompts.md).", "--prompts"),
    )
    """The prompts that are asked: `default`, `nano`, a TOML file, or a PromptSet. None: those that fit the engine."""
    caps: Caps | None = None
    """The most that is judged of one run. None: that of `effort`, without one `Caps()`."""
    language: Language = ENGLISH
    """The language of answers, a `ragguard.metrics.Language`: its articles, and the phrases with which an answer
    declines. English ships."""
    relevance: Relevance = field(
        default="probability",
        metadata=_option(
            "How relevance counts in utility: as a probability, or binary (the paper's).", "--relevance"
        ),
    )
    """The form in which relevance counts in utility, UDCG and advice: `probability`, the number that the judge gives,
    or `binary`, yes or no at 0.5, as in the paper."""
    budget: Account | Limits | None = None
    """The most that the engines may spend together: a mapping with some of `requests`, `tokens`, `money` and `price`,
    or an Account that several RagGuards and guards share. What would go beyond is refused and becomes a failure."""

    def __post_init__(self) -> None:
        """Refuses values that are wrong for any models."""
        if self.engine is None:
            if any(name != "words" for name in self.scorers or ()):
                allowed = (
                    'a model for the scorers; without one, runs are captured, and scored only by "words"'
                )
                raise InvalidInput("engine", None, allowed)
            object.__setattr__(self, "scorers", self.scorers or ())
        if not isinstance(self.scorers, list | tuple | None):
            raise InvalidInput("scorers", self.scorers, 'a list of names and Scorers, such as ["utility"]')
        if not isinstance(self.caps, Caps | None):
            raise InvalidInput("caps", self.caps, "Caps(...), or None for the usual ones")
        if not isinstance(self.language, Language):
            raise InvalidInput("language", self.language, "a ragguard.metrics.Language, such as ENGLISH")
        one_of("relevance", self.relevance, RELEVANCES)
        if self.effort is not None:
            one_of("effort", self.effort, tuple(LEVELS))
        Account.of(self.budget)
        if self.scorers is not None:
            object.__setattr__(self, "scorers", tuple(self.scorers))  # the caller may go on changing its list

    @property
    def chosen_effort(self) -> Effort:
        """The effort that is given, else the default: `high`, with `smol` `low`."""
        if self.effort is not None:
            return self.effort
        smol = (choose().address if self.engine == AUTO else self.engine) == "smol"
        return DEFAULT_OF_SMOL if smol else DEFAULT

    @property
    def chosen_scorers(self) -> Sequence[str | Scorer]:
        """The scorers that look at a run: the given ones, else those of the effort."""
        if self.scorers is not None:
            return self.scorers
        if self.effort is None and self.chosen_effort != DEFAULT:
            NOTICES.once(
                "smol's scorers",
                "smol cannot judge by label, so each step's likelihood is scored and nothing else: how much likelier "
                "its passages make the right answer (scorers= or --scorers names others)",
            )
        return LEVELS[self.chosen_effort].scorers

    @property
    def chosen_caps(self) -> Caps | None:
        """The most that is judged of a run: what is given, else what the effort allows; None: `Caps()`."""
        return self.caps if self.caps is not None or self.effort is None else LEVELS[self.effort].caps

    def or_capture_only(self) -> ScoringSettings:
        """Returns these settings; if they need an engine and none answers, settings that score nothing, with a warning:
        an application starts all the same, and its runs are kept."""
        try:
            return self.with_needed_engine()
        except EngineRejected as error:
            NOTICES.once("no engine", f"runs are captured and not scored: {error}")
            return replace(self, engine=None, scorers=None)

    def with_needed_engine(self) -> ScoringSettings:
        """Returns these settings, with no engine if none is found and only words score; raises EngineRejected if none
        is found and a scorer asks one."""
        if self.engine != AUTO or self.scorers == ():
            return self
        try:
            choose()
        except EngineRejected:
            if self.scorers is None or any(name != "words" for name in self.scorers):
                raise
            return replace(self, engine=None)
        return self

    def build(self) -> ScoringPipeline:
        """Returns a new pipeline; closing it closes the models that were given as addresses, and no others."""
        account = Account.of(self.budget)
        if self.engine is None:
            make: Callable[[], Engine] = _no_model
        else:
            make = partial(connect, self.engine, budget=account, engine_args=self.engine_args)
        # Without scorers nothing may ever be asked: an engine is looked for when it is.
        later = self.engine is None or (self.engine == AUTO and self.scorers == ())
        engine = ConnectedEngine(make, later=True) if later else make()
        judge = None if self.judge is None else connect_judge(self.judge, account)
        entailer = None if self.entailer is None else connect_entailer(self.entailer, account)
        models = ((engine, self.engine), (judge, self.judge), (entailer, self.entailer))
        chosen = self.chosen_scorers
        return ScoringPipeline(
            engine, judge=judge, entailer=entailer, scorers=["words", *chosen] if chosen else (), prompts=self.prompts,
            caps=self.chosen_caps, language=self.language, relevance=self.relevance,
            owned=[model for model, given in models if model is not None and isinstance(given, str)],
        )  # fmt: skip


def _no_model() -> Engine:
    raise InvalidInput("engine", None, "a model: with engine=None runs are captured, and nothing is asked")
