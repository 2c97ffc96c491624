"""The floor of each part of the package: an import goes strictly down, or stays in its part or on the lowest floor."""

FLOORS = {
    "ragguard._version": 0, "ragguard.errors": 0, "ragguard.records": 0, "ragguard.runtime": 0, "ragguard.schema": 0,
    "ragguard.text": 0,
    "ragguard.engines": 1, "ragguard.metrics": 1, "ragguard.world": 1,
    "ragguard.capture": 2, "ragguard.facts": 2,
    "ragguard.scorers": 3,
    "ragguard.storage": 4,
    "ragguard.analysis": 5, "ragguard.telemetry": 5,
    "ragguard.service": 6,
    "ragguard.advice": 7, "ragguard.guard": 7, "ragguard.traces": 7,
    "ragguard.client": 8, "ragguard.inputs": 8, "ragguard.splitters": 8,
    "ragguard.lab": 9, "ragguard.scale": 9, "ragguard.serve": 9,
    "ragguard.cli": 10, "ragguard.pytest_gate": 10, "ragguard.__main__": 10,
}  # fmt: skip
