"""Conformal risk control, and the files of calibrations: shared by the guard and by advice.

A rule has one setting λ. The loss L(λ) of each example is at most 1, and does not grow with λ. On n examples that are
exchangeable with the next one, the smallest λ with

    (n · mean loss(λ) + 1) / (n + 1) ≤ limit

keeps the expected loss of the next example at the limit or under it (Angelopoulos et al., 2022, theorem 1). With a
confidence, a bound that holds with that probability is used instead (Hoeffding–Bentkus; Bates et al., 2021).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ragguard.errors import CalibrationError, InvalidInput

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

C = TypeVar("C")


def least_examples(argument: str, limit: float, confidence: float | None = None) -> int:
    """Returns how many examples are needed to keep the expected loss, or the loss with a confidence, at a limit.

    Args:
        argument: The name under which the caller knows the limit, for the error of one that cannot be right.
        limit: The largest loss that is allowed, in (0, 1).
        confidence: The probability with which the bound holds; None: the expected loss is bounded.
    """
    if not isinstance(limit, int | float) or isinstance(limit, bool) or not 0 < limit < 1:
        raise InvalidInput(argument, limit, "a share in (0, 1)")
    if confidence is None:
        return math.ceil(1 / limit - 1 - 1e-9)
    if not 0 < confidence < 1:
        raise InvalidInput("confidence", confidence, "a probability in (0, 1), or None")
    return math.ceil(math.log(1 - confidence) / math.log(1 - limit) - 1e-9)


def keeps_bound(loss: float, n: int, limit: float, confidence: float | None = None) -> bool:
    """Returns whether a setting with this mean loss on n examples keeps the bound on the next one."""
    if confidence is None:
        return (n * loss + 1) / (n + 1) <= limit + 1e-12
    return _tail(loss, n, limit) <= 1 - confidence


def _tail(loss: float, n: int, limit: float) -> float:
    """Returns the Hoeffding–Bentkus bound on how probable so small a mean loss is where the true one is `limit`."""
    if loss >= limit:
        return 1.0
    divergence = (1 - loss) * math.log((1 - loss) / (1 - limit))
    if loss > 0:
        divergence += loss * math.log(loss / limit)
    hits = math.ceil(n * loss - 1e-9)
    binomial = sum(
        math.exp(
            math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
            + k * math.log(limit) + (n - k) * math.log(1 - limit)
        )
        for k in range(hits + 1)
    )  # fmt: skip
    return min(math.exp(-n * divergence), math.e * binomial)


def save_calibration(calibration: DataclassInstance, path: str | Path, **kind: object) -> None:
    """Writes a calibration as JSON, with its `kind` as the first entry."""
    Path(path).write_text(json.dumps(kind | asdict(calibration), indent=2) + "\n", encoding="utf-8")


def load_calibration(make: Callable[..., C], path: str | Path, **kind: object) -> C:
    """Returns what `make` makes of a saved calibration; raises CalibrationError for another kind."""
    try:
        data: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
        for name, value in kind.items():
            if data.pop(name, None) != value:
                raise CalibrationError(f"{path} is no calibration of {name} {value}; calibrate again")
        if "kind" in data:
            raise CalibrationError(
                f"{path} is a calibration of kind {data['kind']}, not of a guard; calibrate again"
            )
        return make(**data)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise CalibrationError(f"{path} cannot be read as a calibration: {error}") from error


def check_same(owner: str, calibrated: Iterable[tuple[str, str, str]]) -> None:
    """Raises CalibrationError where a calibration was made with other models, prompts or settings than those of
    `owner`.

    Args:
        owner: The part that is to use the calibration, in words, such as "this guard".
        calibrated: The name of each thing that decides about the promise, as the calibration has it, and as the owner
            has it.
    """
    for what, there, here in calibrated:
        if here != there:
            raise CalibrationError(
                f"the calibration was made with {what} {there}, {owner} has {here}: its promise would not hold; "
                f"calibrate again"
            )
