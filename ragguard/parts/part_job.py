"""The settings of a job over many parts: plain data that any process can build a pipeline from, and their digest."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ragguard.engines.connect import AUTO, choose
from ragguard.engines.prompts import load_prompts
from ragguard.errors import InvalidInput
from ragguard.parts.part import digest_of
from ragguard.runtime.arguments import whole_number
from ragguard.scorers.scorer import Scorer
from ragguard.scorers.settings import ScoringSettings
from ragguard.storage.files.partfolder import PartFolder
from ragguard.text.credentials import split_credentials
from ragguard.text.language import ENGLISH
from ragguard.text.secret_filter import without_secrets

_PICKLED = "an address, such as nano or http://HOST:PORT/v1, so that every process connects by itself"

_SECRET = re.compile(r"token|key|secret|passw|credential", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class PartJob:
    """Everything that a process needs to score parts; it can be pickled.

    Prompts are read when the job is made, so that all processes ask the same ones.
    """

    scoring: ScoringSettings
    """The models, given as addresses, and the scorers. A budget is refused: it would count for each process alone."""
    out: str
    """The folder of scores, which all machines that score see."""
    references: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The known right answers by run id or question, for runs that bring none."""
    concurrency: int = 8
    """How many runs a process scores at once, 1 or more."""
    attempts: int = 3
    """How often a part is begun at most, 1 or more. After that its runs are failures with their cause."""
    patience_s: float = 600.0
    """The seconds that a process waits for an engine that does not answer when the process starts."""

    def __post_init__(self) -> None:
        """Refuses what cannot be given to another process."""
        if self.scoring.engine == AUTO:  # chosen here and not anew by each process
            object.__setattr__(self, "scoring", replace(self.scoring, engine=choose().address))
        scoring = self.scoring
        for name in ("engine", "judge", "entailer"):
            model = getattr(scoring, name)
            if model is not None and not isinstance(model, str):
                raise InvalidInput(name, model, _PICKLED)
        if scoring.budget is not None:
            raise InvalidInput(
                "budget", scoring.budget,
                "no budget: each process would spend one of its own; a dry run tells what all of it costs",
            )  # fmt: skip
        whole_number("concurrency", self.concurrency, 1)
        whole_number("attempts", self.attempts, 1)
        if not isinstance(self.patience_s, int | float) or not self.patience_s >= 0:
            raise InvalidInput("patience_s", self.patience_s, "a number of seconds, 0 or more")
        if scoring.prompts is not None:
            object.__setattr__(self, "scoring", replace(scoring, prompts=load_prompts(scoring.prompts)))

    @cached_property
    def record(self) -> dict[str, Any]:
        """The settings that decide about scores, as JSON takes them: without keys, texts of prompts as a digest."""
        scoring = self.scoring
        prompts = None if scoring.prompts is None else load_prompts(scoring.prompts)
        return {
            "engine": _address(scoring.engine),
            "engine_args": {name: _shown(name, value) for name, value in (scoring.engine_args or {}).items()},
            "judge": _address(scoring.judge),
            "entailer": _address(scoring.entailer),
            "scorers": [_scorer(scorer) for scorer in scoring.chosen_scorers],
            "prompts": None
            if prompts is None
            else [prompts.identity, digest_of(dataclasses.asdict(prompts))],
            "caps": None if scoring.caps is None else dataclasses.asdict(scoring.caps),
            "references": digest_of(self.references) if self.references else None,
            **(
                {}
                if scoring.language == ENGLISH
                else {"language": digest_of(dataclasses.asdict(scoring.language))}
            ),
        }

    @cached_property
    def digest(self) -> str:
        """A digest of `record`; part of the key of every part."""
        return digest_of(self.record)

    @property
    def folder(self) -> PartFolder:
        """The folder of scores."""
        return PartFolder(self.out)


def _address(model: object) -> str | None:
    if model is None:
        return None
    address = str(model).strip()
    if address.partition("://")[0] in ("http", "https"):
        address = split_credentials("engine", address, _PICKLED)[0]
    return without_secrets(address)


def _shown(name: str, value: object) -> object:
    """Returns an engine's argument for the record: a digest of one that may be a secret, such as `hf_token`."""
    if isinstance(value, int | float | None):
        return value
    return digest_of(value) if _SECRET.search(name) or not isinstance(value, str) else value


def _scorer(scorer: str | Scorer) -> object:
    if isinstance(scorer, str):
        return scorer
    own = {name: repr(getattr(scorer, name)) for name in getattr(scorer, "__dataclass_fields__", {})}
    return [scorer.name, scorer.version, own]
