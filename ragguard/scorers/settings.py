"""The settings of scoring as plain data: models, scorers, prompts, caps and a budget, from which a pipeline is built.

The settings can be pickled wherever models are given as addresses, so that another process builds the same pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ragguard.engines.base import Engine
from ragguard.engines.connect import AUTO, choose, connect, connect_entailer, connect_judge
from ragguard.engines.engine import ConnectedEngine
from ragguard.engines.entailer import Entailer
from ragguard.engines.layers.budget import Account, Limits
from ragguard.engines.prompts import PromptSet
from ragguard.errors import InvalidInput
from ragguard.metrics.distraction import RELEVANCES, Relevance
from ragguard.runtime.arguments import one_of
from ragguard.runtime.faults import NOTICES
from ragguard.scorers.pipeline import USUAL, ScoringPipeline
from ragguard.scorers.scorer import Scorer
from ragguard.scorers.view import Caps
from ragguard.text.language import ENGLISH, Language


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringSettings:
    """The models that are asked and the scorers that look at a run; the fields are RagGuard's arguments."""

    engine: str | Engine | None = AUTO
    """The model that is asked: an address as `connect` takes it, or an Engine. None: runs are captured alone."""
    engine_args: Mapping[str, Any] | None = None
    """vLLM's own engine arguments, where the engine is `vllm:MODEL`."""
    judge: str | Engine | None = None
    """Another model that judges relevance, ratings, grades and sub-questions. None: the engine."""
    entailer: str | Entailer | None = None
    """The model that compares sampled answers. None: the judge."""
    scorers: Sequence[str | Scorer] | None = None
    """The scorers, by name or as objects; objects for another process are pickled. None: belief, utility and coverage;
    for `smol`, whose labels cannot judge, likelihood alone."""
    prompts: str | Path | PromptSet | None = None
    """The prompts that are asked: a name, a TOML file or a PromptSet. None: those that fit the engine."""
    caps: Caps | None = None
    """The most that is judged of one run. None: `Caps()`."""
    language: Language = ENGLISH
    """The language of answers: its articles, and the phrases by which an answer says that it is none."""
    relevance: Relevance = "probability"
    """The form of relevance in utility: the judge's `probability`, or `binary`, yes or no, as in the paper."""
    budget: Account | Limits | None = None
    """The most that the models may spend together. None: no limit."""

    def __post_init__(self) -> None:
        """Refuses values that are wrong for any models."""
        if self.engine is None:
            if self.scorers:
                raise InvalidInput(
                    "engine", None, "a model for the scorers; without one, runs are captured alone"
                )
            object.__setattr__(self, "scorers", ())
        if not isinstance(self.scorers, list | tuple | None):
            raise InvalidInput("scorers", self.scorers, 'a list of names and Scorers, such as ["utility"]')
        if not isinstance(self.caps, Caps | None):
            raise InvalidInput("caps", self.caps, "Caps(...), or None for the usual ones")
        if not isinstance(self.language, Language):
            raise InvalidInput("language", self.language, "a ragguard.metrics.Language, such as ENGLISH")
        one_of("relevance", self.relevance, RELEVANCES)
        Account.of(self.budget)
        if self.scorers is not None:
            object.__setattr__(self, "scorers", tuple(self.scorers))  # the caller may go on changing its list

    @property
    def chosen_scorers(self) -> Sequence[str | Scorer]:
        """The scorers that look at a run: the given ones, else those that fit the engine."""
        if self.scorers is not None:
            return self.scorers
        if (choose().address if self.engine == AUTO else self.engine) != "smol":
            return USUAL
        NOTICES.once(
            "smol's scorers",
            "smol cannot judge by label, so each step's likelihood alone is scored: how much likelier its "
            "passages make the right answer (scorers= or --scorers names others)",
        )
        return ("likelihood",)

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
        return ScoringPipeline(
            engine, judge=judge, entailer=entailer, scorers=self.chosen_scorers, prompts=self.prompts, caps=self.caps,
            language=self.language, relevance=self.relevance,
            owned=[model for model, given in models if model is not None and isinstance(given, str)],
        )  # fmt: skip


def _no_model() -> Engine:
    raise InvalidInput("engine", None, "a model: with engine=None runs are captured, and nothing is asked")
