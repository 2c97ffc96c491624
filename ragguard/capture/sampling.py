"""Chooses which runs are recorded: those of one id, or of one conversation, always or never, in every process."""

from __future__ import annotations

import zlib

from ragguard.capture.events import RunNames
from ragguard.runtime.arguments import number_between


class Sampling:
    """Chooses a share of all runs."""

    def __init__(self, rate: float) -> None:
        number_between("sample_rate", rate, 0.0, 1.0, "a share between 0 and 1")
        self.takes_all = rate == 1.0
        """True where every run is recorded, whatever its id."""
        self._below = rate * 2**32

    def takes(self, run_id: str, names: RunNames | None = None) -> bool:
        """True where a run of this id is recorded. The names of the run count more, since its parts share them."""
        if self.takes_all:
            return True
        chosen_by = (names and (names.caller_id or names.thread)) or run_id
        return zlib.crc32(chosen_by.encode("utf-8", "replace")) < self._below
