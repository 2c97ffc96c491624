"""The floor of each part of the package: an import goes strictly down, or stays in its part or on the lowest floor."""

FLOORS = {
    "ragguard._version": 0, "ragguard.errors": 0, "ragguard.records": 0, "ragguard.runtime": 0, "ragguard.schema": 0,
    "ragguard.text": 0,
    "ragguard.engines": 1, "ragguard.metrics": 1, "ragguard.world": 1,
    "ragguard.capture": 2, "ragguard.scorers": 2,
    "ragguard.storage": 3,
    "ragguard.analysis": 4, "ragguard.telemetry": 4,
    "ragguard.service": 5,
    "ragguard.advice": 6, "ragguard.guard": 6, "ragguard.traces": 6,
    "ragguard.client": 7,
    "ragguard.lab": 8, "ragguard.scale": 8, "ragguard.serve": 8,
    "ragguard.cli": 9, "ragguard.pytest_gate": 9, "ragguard.__main__": 9,
}  # fmt: skip
