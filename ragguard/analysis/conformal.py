"""Conformal risk control, and the files of calibrations: shared by the guard and by advice.

A rule has one setting λ. The loss L(λ) of each example is at most 1, and does not grow with λ. On n examples that are
exchangeable with the next one, the smallest λ with

    (n · mean loss(λ) + 1) / (n + 1) ≤ limit

keeps the expected loss of the next example at the limit or under it (Angelopoulos et al., 2022, theorem 1).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ragguard.errors import CalibrationError, InvalidInput

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

C = TypeVar("C")


def least_examples(argument: str, limit: float) -> int:
    """Returns how many examples are needed to keep the expected loss at a limit.

    Args:
        argument: The name under which the caller knows the limit, for the error of one that cannot be right.
        limit: The largest loss that is allowed, in (0, 1).
    """
    if not isinstance(limit, int | float) or isinstance(limit, bool) or not 0 < limit < 1:
        raise InvalidInput(argument, limit, "a share in (0, 1)")
    return math.ceil(1 / limit - 1 - 1e-9)


def keeps_bound(loss: float, n: int, limit: float) -> bool:
    """Returns whether a setting with this mean loss on n examples keeps the bound on the next one."""
    return (n * loss + 1) / (n + 1) <= limit + 1e-12


def save_calibration(calibration: DataclassInstance, path: str | Path, **kind: object) -> None:
    """Writes a calibration as JSON, with its `kind` as the first entry."""
    Path(path).write_text(json.dumps(kind | asdict(calibration), indent=2) + "\n", encoding="utf-8")


def load_calibration(make: Callable[..., C], path: str | Path, **kind: object) -> C:
    """Returns what `make` makes of a saved calibration; raises CalibrationError for another kind."""
    try:
        data: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
        found = {name: data.pop(name, None) for name in ("kind", "format")}
        if found != {"kind": None, **kind}:
            raise CalibrationError(
                f"{path} is a calibration of another kind or format: {found}; calibrate again"
            )
        return make(**data)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise CalibrationError(f"{path} cannot be read as a calibration: {error}") from error


def check_same(owner: str, calibration: object, identity: Mapping[str, str]) -> None:
    """Raises CalibrationError where a calibration was made with other models, prompts or settings than those of
    `owner`.

    Args:
        owner: The part that is to use the calibration, in words, such as "this guard".
        calibration: The calibration.
        identity: What decides about the promise, as the owner has it, by its name in the calibration.
    """
    for what, here in identity.items():
        there = str(getattr(calibration, what))
        if here != there:
            raise CalibrationError(
                f"the calibration was made with {what} {there}, {owner} has {here}: its promise would not hold; "
                f"calibrate again"
            )
