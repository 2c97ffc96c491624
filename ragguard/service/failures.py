"""The latest failures of scoring, for the report of `flush`; failures of an engine are also logged at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ragguard.errors import EngineError, PromptTooLong
from ragguard.records import Failure
from ragguard.runtime.notices import NOTICES

_CAUSE_CHARACTERS = 240


def _names(kind: type[EngineError]) -> Iterable[str]:
    yield kind.__name__
    for special in kind.__subclasses__():
        yield from _names(special)


def _is_of_engine(failure: Failure) -> bool:
    """Returns True where an engine failed, and not one prompt, one reply or one passage."""
    return failure.error in {*_names(EngineError)} - {PromptTooLong.__name__}


class FailureTally:
    """The latest failure that is tried again, and the latest one that is not."""

    def __init__(self) -> None:
        self.for_now = self.for_good = ""

    def note(self, failures: Sequence[Failure]) -> None:
        """Takes the failures of one attempt at one run; warns where an engine failed, each kind once a minute."""
        for failure in failures:
            cause = f"{failure.scorer}, {failure.error}: {failure.message}"
            if len(cause) > _CAUSE_CHARACTERS:
                cause = cause[: _CAUSE_CHARACTERS - 3] + "..."
            if failure.will_retry:
                self.for_now = cause
            else:
                self.for_good = cause
            if _is_of_engine(failure):
                _warn(failure)


def _warn(failure: Failure) -> None:
    goes_on = (
        "it is tried again, and waits until then"
        if failure.will_retry
        else (
            "it is not tried again by itself: `ragguard score STORE --store STORE` asks for what is missing"
        )
    )
    NOTICES.warn(
        f"scoring: {failure.error}, {failure.will_retry}",
        f"the run {failure.run_id!r} could not be scored by {failure.scorer}; {goes_on}. {failure.error}: "
        f"{failure.message}",
    )
