"""The files of calibrations, in one format for the guard, advice and the fit of UDCG."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ragguard.errors import CalibrationError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

C = TypeVar("C")


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
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
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
