"""The guard: drops passages that would mislead the model, within a time budget. If it cannot judge, it keeps all."""

from ragguard.guard.calibration import Calibration, Example
from ragguard.guard.guard import DistractorGuard
from ragguard.guard.policies import (
    HelpThreshold,
    Judged,
    Policy,
    TopUtility,
    UtilityThreshold,
)

__all__ = [
    "Calibration",
    "DistractorGuard",
    "Example",
    "HelpThreshold",
    "Judged",
    "Policy",
    "TopUtility",
    "UtilityThreshold",
]
