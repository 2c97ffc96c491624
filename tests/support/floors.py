"""The floor of each part of the package: an import goes strictly down, or stays in its part."""

FLOORS = {
    "ragguard._lazy": 0, "ragguard._version": 0, "ragguard.records": 0, "ragguard.plain": 0,
    "ragguard.terminal_text": 0,
    "ragguard.events": 1, "ragguard.secrets": 1,
    "ragguard.errors": 2,
    "ragguard.answer_text": 3, "ragguard.arguments": 3, "ragguard.conformal": 3, "ragguard.credentials": 3,
    "ragguard.recordcheck": 3,
    "ragguard.runtime": 3,
    "ragguard.engines": 4, "ragguard.metrics": 4, "ragguard.world": 4,
    "ragguard.capture": 5, "ragguard.probes": 5,
    "ragguard.scorers": 6,
    "ragguard.store": 7,
    "ragguard.report": 8, "ragguard.sinks": 8,
    "ragguard.service": 9,
    "ragguard.advice": 10, "ragguard.guard": 10, "ragguard.parts": 10, "ragguard.validate": 10,
    "ragguard.client": 11,
    "ragguard.cli": 12,
    "ragguard.__main__": 13,
}  # fmt: skip
