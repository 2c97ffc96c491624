"""The fuzz run: hostile values for capture, constructors, scoring on demand, guards and metrics.

What holds: capture raises nothing; everything else raises errors of the package, all of them ValueErrors where
an argument is wrong; the store stays readable; what was captured is stored or counted.
"""

from __future__ import annotations

import asyncio
import inspect
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from support.hostile_values import Values
from support.scripted_engine import ScriptedEngine

import ragguard
from ragguard import DistractorGuard, RagGuard, metrics
from ragguard.engines.connect import connect
from ragguard.errors import RagguardError
from ragguard.records import Passage
from ragguard.scorers.view import Caps
from ragguard.storage.files.runfile import read_runs, write_runs

METRICS = [
    (name, function)
    for name in metrics.__all__
    if callable(function := getattr(metrics, name)) and name not in ("Metric", "Language")
]
RIGHT = {
    "draws": 20,
    "k": 3, "alpha": 0.5, "beta": 0.5, "kind": "max", "rel": [1, 0, 1], "relevance": [1, 0, 1], "p_abstain": [0.2, 0.4],
    "p_relevant": [0.9, 0.1], "utilities": [0.5, -0.2], "values": [0.1, 0.2], "ratings": [[0, 3], [5, 1]],
    "grades": [1, 5, 3], "mask": [True, True, False], "text": "Ada Berg", "answer": "Ada", "references": ["Ada Berg"],
    "lists": [[1.0], [0.5, 2.0]], "ks": [1, 2], "seed": 1, "n": 10, "weights": [0.5, 0.5],
}  # fmt: skip
ENGINE = ScriptedEngine(label=lambda text, label: 0.4)
ALLOWED: tuple[type[BaseException], ...] = (RagguardError, ValueError)
NEVER: tuple[type[BaseException], ...] = ()
"""Capture may raise nothing."""


class Fuzz:
    """A fuzz run over one store. `findings` says what should not have happened: kind → an example."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.values, self.folder = Values(seed), folder
        self.findings: dict[str, str] = {}
        self.calls: Counter[str] = Counter()
        self.rg = RagGuard(ENGINE, store=folder / "fuzz.db", scorers=(), queue_size=1024)
        self.scoring = RagGuard(ENGINE, store=folder / "scored.db", scorers=("utility",))
        self.guard = DistractorGuard(ENGINE, budget_ms=2000)
        self._loop = asyncio.new_event_loop()

    def run(self, calls: int) -> None:
        """Makes so many calls."""
        v = self.values
        kinds: list[tuple[float, Callable[[], None]]] = [
            (0.55, self.a_metric), (0.40, self.a_captured_run), (0.03, self.a_constructor), (0.012, self.a_score),
            (0.008, self.a_guard),
        ]  # fmt: skip
        shares, actions = zip(*kinds, strict=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            while self.calls.total() < calls:
                v.random.choices(actions, shares)[0]()

    def finish(self) -> dict[str, int]:
        """Writes everything, reads the store back, and gives what was captured, stored and counted."""
        report = self.rg.flush(timeout=120)
        counts = dict(self.rg.store.counts)
        stored = sum(1 for _ in self.rg.runs())
        for run in self.rg.store.runs():
            for step in run.steps:
                assert all(isinstance(passage.text, str) for passage in step.passages)
        for one in self.scoring.store.scored_runs():
            assert isinstance(one.run.id, str)
        captured = self.rg.recorder.here.counts["runs"]
        self.rg.close(10)
        self.scoring.close(10)
        self._loop.close()
        return {
            "captured": captured, "stored": stored, "lost": counts.get("events_lost", 0),
            "refused": counts.get("events_refused", 0), "complete": int(report.complete),
        }  # fmt: skip

    # Calls

    def _try(
        self, what: str, call: Callable[[], Any], allowed: tuple[type[BaseException], ...] = ALLOWED
    ) -> Any:
        self.calls[what.partition("(")[0]] += 1
        try:
            return call()
        except allowed:
            return None
        except BaseException as error:  # noqa: BLE001 - a finding
            trace = traceback.extract_tb(error.__traceback__)
            ours = [
                frame for frame in trace if "/ragguard/" in frame.filename or "/ragguard_" in frame.filename
            ]
            at = ours[-1] if ours else trace[-1]
            kind = f"{what}: {type(error).__name__} at {Path(at.filename).name}:{at.lineno}"
            with suppress(Exception):
                self.findings.setdefault(kind, f"{error}"[:200])
            self.findings.setdefault(kind, "?")
            return None

    def a_metric(self) -> None:
        """A metric with arguments of which some are right."""
        name, function = self.values.random.choice(METRICS)
        arguments: dict[str, Any] = {}
        for parameter in _parameters(function):
            needed = parameter.default is parameter.empty
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            # The thousands of draws that are usual would take most of the run's time.
            if needed or parameter.name == "draws" or self.values.random.random() < 0.3:
                right = RIGHT.get(parameter.name, [0.5, 0.2])
                arguments[parameter.name] = self.values.or_any(lambda right=right: right)  # type: ignore[misc]
        self._try(f"metrics.{name}", lambda: function(**arguments))

    def a_captured_run(self) -> None:
        """A run as user code captures it, badly."""
        v = self.values
        handle = self._try(
            "rg.run",
            lambda: self.rg.run(
                v.or_any(lambda: "who?", 0.9), references=v.or_any(lambda: None, 0.9), name=v.or_any(lambda: "n", 0.9),
                sub_questions=v.or_any(lambda: None, 0.9), pool=v.or_any(v.passages, 0.8), metadata=v.or_any(dict, 0.5),
            ),
        )  # fmt: skip
        if handle is None:
            return
        self._try("with rg.run", handle.__enter__, NEVER)
        for _ in range(v.random.randrange(1, 4)):
            v.random.choices((self._retrieved, self._failed, self._answered, self._found), (3, 1, 1, 1))[0](
                handle
            )
        if v.random.random() < 0.2:
            name = v.random.choice(
                ("answer", "references", "pool", "metadata", "question", "name", "sub_questions")
            )
            with suppress(Exception):
                setattr(handle, name, v.any())
        if v.random.random() < 0.1:
            self._try("run.record", handle.record, NEVER)
        error = v.random.choice((None, None, None, ValueError("x")))
        kind = None if error is None else ValueError
        self._try("with rg.run, end", lambda: handle.__exit__(kind, error, None), NEVER)

    def _retrieved(self, handle: Any) -> None:
        v = self.values
        decision = v.or_any(v.decision, 0.5) if v.random.random() < 0.3 else None
        before = len(handle.steps)
        self._try(
            "run.retrieved",
            lambda: handle.retrieved(
                v.or_any(lambda: "q"), v.or_any(v.passages, 0.7), candidates=v.or_any(lambda: None, 0.7),
                tool=v.or_any(lambda: "", 0.8), turn=v.or_any(lambda: None, 0.8), decision=decision,
                started_ns=v.or_any(lambda: 0, 0.8), metadata=v.or_any(lambda: None, 0.5), id="",
            ),
            NEVER,
        )  # fmt: skip
        if handle.sampled and len(handle.steps) == before:
            self.findings.setdefault("run.retrieved: no step", "a field that is wrong cost the whole step")

    def _failed(self, handle: Any) -> None:
        v = self.values
        status = v.or_any(lambda: "error")
        self._try("run.failed", lambda: handle.failed(v.any(), v.any(), status=status, tool=v.any()), NEVER)

    def _answered(self, handle: Any) -> None:
        self._try("run.answered", lambda: handle.answered(self.values.any()), NEVER)

    def _found(self, handle: Any) -> None:
        v = self.values
        self._try("ragguard.retrieved", lambda: ragguard.retrieved(v.any(), v.or_any(v.passages)), NEVER)

    def a_constructor(self) -> None:
        """A constructor with arguments of which one or two are wrong."""
        v = self.values
        made, arguments = v.random.choice(
            (
                (RagGuard, {"engine": ENGINE, "store": None, "scorers": ()}),
                (DistractorGuard, {"engine": ENGINE}),
                (connect, {"engine": ENGINE}),
                (Caps, {}),
            )
        )
        names = [parameter.name for parameter in _parameters(made)]
        arguments = {
            **arguments,
            **{v.random.choice(names): v.any() for _ in range(v.random.randrange(1, 3))},
        }
        if "store" in arguments and isinstance(arguments["store"], str):
            arguments["store"] = str(self.folder / "made.db")
        kind = getattr(made, "__name__", "")
        result = self._try(f"{kind}({', '.join(sorted(arguments))})", lambda: made(**arguments))
        if isinstance(result, RagGuard):
            self._try("close", lambda: result.close(1), ())

    def a_score(self) -> None:
        """A run made by hand, scored on demand, written to a run file and read back."""
        v = self.values
        run = v.or_any(v.run, 0.9)
        kind = v.random.randrange(3)
        if kind == 0:
            self._try("rg.score", lambda: self._loop.run_until_complete(self.scoring.score(run)))
        elif kind == 1:

            async def all_of(runs: Any) -> list[Any]:
                return [one async for one in self.scoring.score_runs(runs)]

            self._try(
                "rg.score_runs", lambda: self._loop.run_until_complete(all_of(v.or_any(lambda: [run], 0.8)))
            )
        else:
            path = self.folder / "one.jsonl"
            if self._try("write_runs", lambda: write_runs([run], path)) is not None:
                self._try("read_runs", lambda: list(read_runs(path)))

    def a_guard(self) -> None:
        """A guard with any query and any passages."""
        v = self.values
        self._try(
            "guard.prune",
            lambda: self.guard.prune(v.or_any(lambda: "q"), v.or_any(lambda: [Passage("a"), v.passage()])),
        )


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())
