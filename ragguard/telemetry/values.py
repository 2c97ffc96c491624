"""Attribute values of spans: scalars, flat lists of one type, texts of bounded length. Others are left out and counted.
Texts leave the process only if an argument or the environment asks for it.

An exporter that cannot encode one value drops its whole batch, so a value is checked here.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from typing import Any, TypeAlias

from ragguard.errors import InvalidInput

Scalar: TypeAlias = str | bool | int | float
Value: TypeAlias = Scalar | list[str] | list[bool] | list[int] | list[float]

INT64 = 2**63
TEXT = 4096
"""The most characters of a text; a longer one is cut and says so."""
VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
OPEN = ("SPAN_ONLY", "SPAN_AND_EVENT", "TRUE", "1")
"""The values of this variable with which texts stand on spans."""


class Attributes:
    """Attributes of one span or event, in the order in which they were added; counts values that no span can carry."""

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}
        self.skipped = 0

    def add(self, name: str, value: Any) -> None:
        """Adds one value; None and "" are left out and not counted."""
        if value is None or (isinstance(value, str) and not value):
            return
        clean: Any = self.scalar(value)
        if isinstance(value, (list, tuple)):
            clean = [self.scalar(item) for item in value]
            if None in clean or len(set(map(type, clean))) > 1:
                clean = None
        if clean is None:
            self.skipped += 1
        else:
            self.values.pop(name, None)
            self.values[str(name)] = clean

    def add_json(self, name: str, value: Any) -> None:
        """Adds a nested value as JSON text; cut as a whole, never in the middle."""
        try:
            text = json.dumps(value, ensure_ascii=False, default=float, allow_nan=False)  # NumPy's numbers
        except ValueError:  # a NaN
            text = None
        if text is None or len(text) > TEXT:
            self.skipped += 1
        else:
            self.add(name, text)

    def scalar(self, value: Any) -> Scalar | None:
        """Returns the value as a plain one; None for one that no span can carry."""
        if not isinstance(value, (str, bool, int, float)) and hasattr(value, "item"):
            value = value.item()
        if isinstance(value, bool):
            return value
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else None
        if isinstance(value, int):
            value = int(value)  # a member of an IntEnum as a plain number
            return value if -INT64 <= value < INT64 else None
        return text(value, TEXT) if isinstance(value, str) else None


def text(value: str, limit: int) -> str:
    """Returns `value` as any exporter can encode it (no unpaired surrogates), cut at `limit` characters with a mark."""
    if len(value) > limit:
        value = f"{value[: max(0, limit - 24)]}… [{len(value)} characters]"
    return value.encode("utf-8", "replace").decode("utf-8")


def identifier(value: object) -> str:
    """Returns an id as text, whatever type a framework gave it."""
    return text(value if isinstance(value, str) else str(value), 256)


@dataclass(frozen=True, slots=True)
class Content:
    """The choice of texts that may leave the process by telemetry."""

    texts: bool = False
    inputs: bool = False
    """True where questions and queries may: texts may, and OPENINFERENCE_HIDE_* does not hide inputs."""
    outputs: bool = False
    """True where passages and answers may."""

    @classmethod
    def chosen(cls, wanted: bool | None) -> Content:
        """Returns the choice of the argument, else that of the environment; OPENINFERENCE_HIDE_* overrides both."""
        if not isinstance(wanted, bool | None):
            raise InvalidInput("capture_content", wanted, f"True, False, or None: as {VARIABLE} says")
        if wanted is None:
            wanted = os.environ.get(VARIABLE, "").strip().upper() in OPEN

        def shown(*names: str) -> bool:
            values = (os.environ.get(f"OPENINFERENCE_HIDE_{name}", "") for name in names)
            return not any(value.strip().lower() in ("true", "1") for value in values)

        return cls(
            wanted,
            inputs=wanted and shown("INPUTS", "INPUT_TEXT"),
            outputs=wanted and shown("OUTPUTS", "OUTPUT_TEXT"),
        )
