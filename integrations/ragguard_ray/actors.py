"""Runs workers as actors of a Ray cluster. Importing it imports no Ray.

Through Ray go the description of a part and its counts alone. Actors read the input and write the results themselves.
An actor or a node that is lost is a lost worker: the driver in `ragguard/parts/driver.py` starts another one.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ragguard.errors import InvalidInput, MissingDependency, RagguardError, WorkerLost
from ragguard.parts.driver import JobReport, carry_out, prepare
from ragguard.parts.part import Part
from ragguard.parts.part_job import PartJob
from ragguard.runtime.arguments import number_between, whole_number
from ragguard.runtime.faults import describe
from ragguard.storage.files.partfolder import PartCounts
from ragguard.text.secret_filter import logger
from ragguard_ray.part_actor import PartActor

_log = logger("ragguard")

ADDRESSES = (
    "HOST:PORT of the head of a Ray cluster, auto for a cluster of this machine, or local to start one here"
)
_KEYS = ("RAGGUARD_API_KEY", "RAGGUARD_HEADERS", "OPENAI_API_KEY", "AZURE_OPENAI_API_KEY")
"""The variables of the environment that actors on other machines get from the driver's."""
_CONNECT_SECONDS = 5.0
_STORE_BYTES = 200 * 2**20
"""The bytes that a Ray that is started here keeps in shared memory: parts put next to nothing there."""


class RayActors:
    """An executor of actors on a Ray cluster. Needs the extra `ray`.

    Args:
        address: The cluster: `HOST:PORT`, `auto` for one of this machine, `local` to start one here. None: the
            RAY_ADDRESS of the environment, else one of this machine, else one is started here. Where the calling
            program is connected to Ray already, that connection is used.
        actors: How many actors at most. Ray starts an actor as soon as a machine is free for it.
        gpus: GPUs of each actor, also a part of one. None: 1 where a model is `vllm:MODEL`, else 0.
        overlap: How many parts an actor scores at once, so that its engine has work while results are written; never
            more than the runs that the job lets a process score at once.
    """

    def __init__(
        self, address: str | None = None, *, actors: int = 8, gpus: float | None = None, overlap: int = 2
    ) -> None:
        if find_spec("ray") is None:
            raise MissingDependency("ray", "scoring on a Ray cluster", "ray")
        if gpus is not None:
            number_between("gpus", gpus, 0, 1024, "a number, 0 or more")
        self.address, self.gpus = address, gpus
        self.workers = whole_number("actors", actors, 1)
        self._overlap = whole_number("overlap", overlap, 1)
        self._ours = False
        """True where this object has made the connection to Ray."""

    def connect(self) -> None:
        """Connects to the cluster; raises where there is none."""
        address = self.address or os.environ.get("RAY_ADDRESS") or None
        if not ("ray" in sys.modules and _ray().is_initialized()):
            _check_address(address)
        ray = _ray()
        if ray.is_initialized():
            return
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # of a Ray that is started here
        for wanted in (address,) if address else ("auto", "local"):
            here = (
                {"include_dashboard": False, "object_store_memory": _STORE_BYTES} if wanted == "local" else {}
            )
            try:
                ray.init(wanted, log_to_driver=False, logging_level="ERROR", **here)
            except ConnectionError as error:
                if address:
                    raise InvalidInput("address", address, f"{ADDRESSES}; {describe(error)}") from error
            except (RuntimeError, ValueError, OSError) as error:
                raise InvalidInput("address", wanted, f"{ADDRESSES}; {describe(error)}") from error
            else:
                self._ours = True
                return

    def worker(self, job: PartJob) -> ActorWorker:
        """Starts an actor."""
        gpus = _gpus(job) if self.gpus is None else self.gpus
        self._warn_of_resources(gpus)
        return ActorWorker(job, gpus, min(self._overlap, job.concurrency))

    def close(self) -> None:
        """Ends the connection that `connect` made, and with it all actors of the job."""
        if self._ours:
            self._ours = False
            _ray().shutdown()

    def _warn_of_resources(self, gpus: float) -> None:
        """Warns where no machine of the cluster can run an actor now: Ray then waits for one, silently."""
        alive = [node["Resources"] for node in _ray().nodes() if node["Alive"]]
        if not any(node.get("CPU", 0) >= 1 and node.get("GPU", 0) >= gpus for node in alive):
            _log.warning(
                "no machine of the Ray cluster has one CPU%s for an actor now; the job waits until one joins",
                f" and {gpus:g} GPU" if gpus else "",
            )


class ActorWorker:
    """An actor that scores some parts at once."""

    def __init__(self, job: PartJob, gpus: float, slots: int) -> None:
        self.slots = slots
        environment = {name: os.environ[name] for name in _KEYS if name in os.environ}
        made = _ray().remote(PartActor).options(
            num_cpus=1, num_gpus=gpus or None, max_concurrency=slots, max_restarts=0, scheduling_strategy="SPREAD"
        )  # fmt: skip
        self._actor = made.remote(job, environment, os.getcwd())

    def start(self, *, after_loss: bool) -> Future[Any]:
        """Loads or reaches the engine."""
        return _answer(self._actor.start.remote(after_loss))

    def attempt(self, part: Part, causes: Sequence[str]) -> Future[PartCounts]:
        """Scores a part."""
        return _answer(self._actor.attempt.remote(part, list(causes)))

    def stop(self) -> None:
        """Ends the actor at once."""
        with suppress(Exception):  # the connection is gone, and the actor with it
            _ray().kill(self._actor)


def score_on_ray(
    inputs: Sequence[str | Path],
    job: PartJob,
    *,
    address: str | None = None,
    actors: int = 8,
    gpus: float | None = None,
    overlap: int = 2,
    size: int | None = None,
    retry_failures: bool = False,
) -> JobReport:
    """Scores run files on a Ray cluster, into the folder of the job, and returns what was done.

    Parts that are complete are skipped: the same call goes on where one was stopped, and starts no Ray where nothing is
    left. Raises what is wrong with the inputs, the settings, the folder, the engine or the cluster before anything is
    written.

    Args:
        inputs: Run files and folders of run files, at paths that every machine of the cluster sees.
        job: The settings.
        address: The cluster; see `RayActors`.
        actors: How many actors at most.
        gpus: GPUs of each actor.
        overlap: How many parts an actor scores at once.
        size: About how many bytes a part has; see `prepare`.
        retry_failures: True where complete parts that hold failures are scored again; see `prepare`.
    """
    executor = RayActors(address, actors=actors, gpus=gpus, overlap=overlap)
    prepared = prepare(inputs, job, workers=executor.workers, size=size, retry_failures=retry_failures)
    return carry_out(prepared, executor)


def _answer(reference: Any) -> Future[Any]:
    """Returns a future of what an actor answers, or of the error that it gave in place of an answer."""
    answer: Future[Any] = Future()

    def hand_over(done: Future[Any]) -> None:
        try:
            result = done.result()
        except _ray().exceptions.RayActorError:
            result = WorkerLost("was lost with its actor; Ray's logs have its messages")
        except Exception as error:  # noqa: BLE001 - whatever Ray raises ends the job with one sentence
            result = RagguardError(
                f"Ray ended the job: {describe(error)}; all machines of the cluster need the same ragguard and the "
                "same Python"
            )
        if isinstance(result, Exception):
            answer.set_exception(result)
        else:
            answer.set_result(result)

    reference.future().add_done_callback(hand_over)
    return answer


def _ray() -> Any:
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise MissingDependency("ray", "scoring on a Ray cluster", "ray") from error
    return ray


def _check_address(address: str | None) -> None:
    """Raises where nothing listens at an address: Ray itself would wait for a minute and say it in its own words."""
    scheme, _, rest = (address or "auto").rpartition("://")
    host, colon, port = rest.rpartition(":")
    if not colon:
        if not scheme and rest not in ("auto", "local"):
            raise InvalidInput("address", address, ADDRESSES)
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except (OSError, ValueError, OverflowError) as error:
        raise InvalidInput(
            "address", address, f"{ADDRESSES}; nothing answers there ({describe(error)})"
        ) from error


def _gpus(job: PartJob) -> float:
    models = (job.scoring.engine, job.scoring.judge)
    return float(any(str(model).strip().startswith("vllm:") for model in models))
