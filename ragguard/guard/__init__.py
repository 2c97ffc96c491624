"""The guard: drops passages that would mislead before the model reads them, on time, and fails open."""

from ragguard.guard.calibration import Calibration, Example
from ragguard.guard.guard import DistractorGuard
from ragguard.guard.policies import Deduplicate, Judged, Policy, TokenBudget, TopUtility, UtilityThreshold

__all__ = [
    "Calibration",
    "Deduplicate",
    "DistractorGuard",
    "Example",
    "Judged",
    "Policy",
    "TokenBudget",
    "TopUtility",
    "UtilityThreshold",
]
