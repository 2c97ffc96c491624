"""Advice during a run: whether what was read suffices, and what another search is expected to bring."""

from ragguard.advice.adviser import Adviser
from ragguard.advice.calibration import AdviceCalibration, KnownOutcome
from ragguard.advice.loop import LoopAdviser
from ragguard.records import Advice

__all__ = ["Advice", "AdviceCalibration", "Adviser", "KnownOutcome", "LoopAdviser"]
