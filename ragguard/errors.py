"""Every error that ragguard raises, as one tree.

    RagguardError
    ├── InvalidInput (ValueError)        an argument that cannot be right; names it, its value, what is allowed
    │   ├── UnknownName                  a metric, engine scheme, scorer or prompt set that does not exist
    │   └── RunFormatError               a line of a run file that cannot be read; carries its number
    ├── MissingDependency (ImportError)  an optional package is needed; says how to install it
    ├── EngineError                      the engine could not answer
    │   ├── EngineUnreachable            nothing answers at that address, or it went away     (worth repeating)
    │   ├── EngineOverloaded             it answered 429 or 503; may carry `retry_after`      (worth repeating)
    │   ├── EngineTimeout                the deadline passed
    │   ├── EngineRejected               it refused the request: unknown model, bad key, bad parameter
    │   ├── PromptTooLong                the prompt does not fit; carries the limit
    │   ├── EngineProtocolError          it answered something that cannot be what it should be
    │   ├── CircuitOpen                  not asked, since it failed too often just now
    │   └── BudgetExceeded               not asked, since that would overspend
    ├── ScoringError                     a score cannot be given (label mass too low, cap reached, no reference …)
    │   ├── LowLabelMass
    │   ├── ProbeFailed                  the model failed its examination in what it would be asked
    │   ├── NoText                       the passage is an image or something else without text
    │   └── CapExceeded
    ├── StoreError                       the store cannot be opened, read or written
    │   ├── StoreUnavailable             the disk or the file fails now; the same may succeed later
    │   └── SchemaMismatch               made by another version
    ├── WorkerLost                       a process that scores parts has ended; another one tries its parts again
    ├── CalibrationError                 too few examples, or a calibration made with another engine
    ├── AdviceError                      no advice can be given about this run: it has ended, has no step …
    └── Closed                           used after close()

A message says what was tried, what happened, and what to do about it. Foreign exceptions are
translated at the edge where they appear, with `raise … from`.
"""

from __future__ import annotations

from collections.abc import Iterable

from ragguard.text.secret_filter import without_secrets


class RagguardError(Exception):
    """The root of all errors raised by ragguard. Its message holds no key and no password."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(without_secrets(one) if isinstance(one, str) else one for one in args))


class InvalidInput(RagguardError, ValueError):
    """An argument is wrong; the message names it, shows its value and says what is allowed."""

    def __init__(self, argument: str, value: object, allowed: str) -> None:
        self.argument, self.value, self.allowed = argument, value, allowed
        super().__init__(f"{argument}: got {_brief(value)}; allowed: {allowed}")


class UnknownName(InvalidInput):
    """A name is not one of the known names."""


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Returns the known names that are most like a name, as the beginning of a sentence on what is allowed; "" if none
    is."""
    from difflib import get_close_matches  # seldom needed, and slow to import

    near = get_close_matches(name, list(known), n=2) if isinstance(name, str) else []
    return f"{' or '.join(near)} (did you mean that?); known are " if near else ""


class RunFormatError(InvalidInput):
    """A line of a run file that cannot be read."""

    def __init__(self, line: int, argument: str, value: object, allowed: str, *, unit: str = "line") -> None:
        self.line = line
        super().__init__(f"{unit} {line}, {argument}", value, allowed)


def install_line(extras: str) -> str:
    """Returns the command that installs ragguard with some extras, beside the folder of the clone: on the package index
    the name is another project's (docs/decisions/0019-name-on-the-index.md)."""
    return f"pip install './ragguard[{extras}]'"


class MissingDependency(RagguardError, ImportError):
    """An optional package is needed for what was asked."""

    def __init__(self, package: str, purpose: str, extra: str) -> None:
        self.package, self.extra = package, extra
        super().__init__(f"{purpose} needs {package}: {install_line(extra)}")


class EngineError(RagguardError):
    """The engine could not answer."""

    retryable = False
    repeated = False
    """True where the same call is not to be retried: it was, as often as the retry layer allows, or the server has
    another model now."""


class EngineUnreachable(EngineError):
    """The address does not answer, or the connection broke."""

    retryable = True


class EngineOverloaded(EngineError):
    """The server answers, but is busy or fails for the moment (408, 429 or 5xx)."""

    retryable = True

    def __init__(self, message: str, retry_after: float | None = None, *, status: int | None = None) -> None:
        self.retry_after, self.status = retry_after, status
        super().__init__(message)


class EngineTimeout(EngineError):
    """The deadline passed before the answer came."""


class EngineRejected(EngineError):
    """The server refused the request; the same request would be refused again, unless the error is `retryable`: a
    path or a model is gone that was there before."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        self.status = status
        super().__init__(message)


class FetchFailed(EngineError):
    """A model's weights could not be fetched, or are not those that were expected."""


class PromptTooLong(EngineError):
    """A prompt does not fit the model's context."""

    def __init__(self, message: str, *, limit: int | None = None, tokens: int | None = None) -> None:
        self.limit, self.tokens = limit, tokens
        super().__init__(message)


class UnfitText(EngineError):
    """The model does not know the words of a prompt, so that its judgement would mean nothing, or declines to judge
    it."""


class EngineProtocolError(EngineError):
    """The answer is not what the protocol says: broken JSON, missing fields, a NaN. It is `retryable` where no JSON
    came from an address that had answered well before."""


class CircuitOpen(EngineError):
    """The engine failed too often just now; it is asked again after a pause."""


class BudgetExceeded(EngineError):
    """The request would spend more than was allowed."""


class ScoringError(RagguardError):
    """A score cannot be given."""


class LowLabelMass(ScoringError):
    """The judge puts most of its probability on texts that are no label."""


class ProbeFailed(ScoringError):
    """A model's examination has shown that it cannot tell what it would be asked."""


class NoText(ScoringError):
    """A passage without text, such as an image: no question can be asked about it."""


class CapExceeded(ScoringError):
    """A cap on cost was reached; passages, steps or prompts beyond it were not judged."""


class StoreError(RagguardError):
    """The store cannot be opened, read or written."""


class StoreUnavailable(StoreError):
    """The disk or the file of a store fails now; the same may succeed later."""


class SchemaMismatch(StoreError):
    """The store was made by a version of ragguard that this one cannot read."""


class WorkerLost(RagguardError):
    """A process that scores parts of the input has ended; the message says how. Another one tries its parts again."""


class CalibrationError(RagguardError):
    """A calibration that cannot be made or must not be used."""


class AdviceError(RagguardError):
    """No advice can be given about this run: it has ended, was not sampled, or has no question or no step."""


class Closed(RagguardError):
    """An object was used after it was closed."""


def _brief(value: object) -> str:
    try:
        text = without_secrets(repr(value))
    except Exception:  # noqa: BLE001 - the value is the caller's, and so is its repr
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 120 else text[:117] + "..."


def shown_apart(value: float, limit: float) -> tuple[str, str]:
    """Returns a number and the limit that it was held against for a message, with two digits, or with as many as tell
    them apart."""
    for digits in range(2, 10):
        shown = f"{value:.{digits}f}", f"{limit:.{digits}f}"
        if value == limit or shown[0] != shown[1]:
            break
    return shown
