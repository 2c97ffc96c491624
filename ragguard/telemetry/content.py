"""Decides whether texts leave the process by telemetry: only where an argument or the environment asks for it."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ragguard.errors import InvalidInput

VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
MODES = ("NO_CONTENT", "SPAN_ONLY", "EVENT_ONLY", "SPAN_AND_EVENT")


@dataclass(frozen=True, slots=True)
class Content:
    """The choice of texts that may leave the process by telemetry: on spans or events, inputs or outputs."""

    spans: bool = False
    events: bool = False
    inputs: bool = True
    outputs: bool = True

    @classmethod
    def chosen(cls, wanted: bool | str | None) -> Content:
        """Returns the choice of the argument, else that of the environment; OPENINFERENCE_HIDE_* overrides both."""
        if isinstance(wanted, bool):
            mode = "SPAN_AND_EVENT" if wanted else "NO_CONTENT"
        elif wanted is None:
            mode = os.environ.get(VARIABLE, "").strip().upper()
            mode = {"TRUE": "SPAN_AND_EVENT", "1": "SPAN_AND_EVENT"}.get(mode, mode)
            mode = mode if mode in MODES else "NO_CONTENT"
        else:
            mode = wanted.upper() if isinstance(wanted, str) else ""
            if mode not in MODES:
                raise InvalidInput(
                    "capture_content", wanted, f"True, False, None or one of {', '.join(MODES)}"
                )

        def hidden(*names: str) -> bool:
            values = (os.environ.get(f"OPENINFERENCE_HIDE_{name}", "") for name in names)
            return any(value.strip().lower() in ("true", "1") for value in values)

        return cls(
            spans=mode in ("SPAN_ONLY", "SPAN_AND_EVENT"),
            events=mode in ("EVENT_ONLY", "SPAN_AND_EVENT"),
            inputs=not hidden("INPUTS", "INPUT_TEXT"),
            outputs=not hidden("OUTPUTS", "OUTPUT_TEXT"),
        )
