"""Chooses which runs are recorded, by their ids: the same id is chosen always or never, in every process."""

from __future__ import annotations

import zlib

from ragguard.runtime.arguments import number_between


class Sampling:
    """Chooses a share of all runs."""

    def __init__(self, rate: float) -> None:
        number_between("sample_rate", rate, 0.0, 1.0, "a share between 0 and 1")
        self.takes_all = rate == 1.0
        """True where every run is recorded, whatever its id."""
        self._below = rate * 2**32

    def takes(self, run_id: str) -> bool:
        """True where a run of this id is recorded."""
        return self.takes_all or zlib.crc32(run_id.encode("utf-8", "replace")) < self._below
