"""Scoring in parts on a Ray cluster: `ragguard score INPUT… --on ray --out DIR`. Needs the extra `ray`; importing this
imports no Ray.

Through Ray go the description of a part and its counts alone. Actors read the input and write the results themselves.
An actor or a node that is lost is a lost worker: the driver in `ragguard/scale/job.py` starts another one.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from typing import Any

from ragguard.errors import InvalidInput, MissingDependency, RagguardError, StoreError, WorkerLost
from ragguard.runtime.arguments import number_between, whole_number
from ragguard.runtime.faults import describe
from ragguard.scale.job import PartJob, Worker
from ragguard.scale.part import Part
from ragguard.scale.part_scorer import PartScorer
from ragguard.storage.files.partfolder import PartCounts
from ragguard.text.secret_filter import logger

__all__ = ["RayActors"]

_log = logger("ragguard")
_ADDRESSES = (
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
            RAY_ADDRESS of the environment, else one of this machine, else one is started here. If the calling
            program is connected to Ray already, that connection is used.
        actors: How many actors at most. Ray starts an actor as soon as a machine is free for it.
        gpus: GPUs of each actor, also a part of one. None: 1 where a model is `vllm:MODEL`, else 0.
    """

    def __init__(self, address: str | None = None, *, actors: int = 8, gpus: float | None = None) -> None:
        if find_spec("ray") is None:
            raise MissingDependency("ray", "scoring on a Ray cluster", "ray")
        if gpus is not None:
            number_between("gpus", gpus, 0, 1024, "a number, 0 or more")
        self.address, self.gpus = address or os.environ.get("RAY_ADDRESS") or None, gpus
        self.workers = whole_number("actors", actors, 1)
        self._ours = False
        """True where this object has made the connection to Ray."""
        self._actors: list[Any] | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> RayActors:
        """Connects to the cluster; raises where there is none."""
        self._actors = []
        if "ray" in sys.modules and _ray().is_initialized():
            return self
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # of a Ray that is started here
        for wanted in (self.address,) if self.address else ("auto", "local"):
            try:
                _check_listening(wanted)
                here = {"include_dashboard": False, "object_store_memory": _STORE_BYTES}
                _ray().init(
                    wanted, log_to_driver=False, logging_level="ERROR", **here if wanted == "local" else {}
                )
            except (RuntimeError, ValueError, OSError, OverflowError) as error:
                if not self.address and isinstance(error, ConnectionError):
                    continue  # no cluster of this machine: one is started
                raise InvalidInput("address", wanted, f"{_ADDRESSES}; {describe(error)}") from error
            break
        self._ours = True
        return self

    def __exit__(self, *_: object) -> None:
        """Ends all actors of the job, and the connection that this object made."""
        with self._lock:
            actors, self._actors = self._actors or [], None
        for actor in actors:
            _ray().kill(actor)
        if self._ours:
            self._ours = False
            _ray().shutdown()

    def worker(self, job: PartJob) -> Worker:
        """Starts an actor, and waits until Ray has found a machine for it."""
        ray = _ray()
        gpus = float(job.loads("vllm")) if self.gpus is None else self.gpus
        environment = {name: os.environ[name] for name in _KEYS if name in os.environ}
        actor_class = ray.remote(PartActor).options(
            num_cpus=1, num_gpus=gpus or None, max_concurrency=1, scheduling_strategy="SPREAD"
        )
        with self._lock:
            actors = self._check_going_on()
            alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
            actor = actor_class.remote(job, environment, os.getcwd())
            actors.append(actor)
        if not any(node.get("CPU", 0) >= 1 and node.get("GPU", 0) >= gpus for node in alive):
            _log.warning(
                "no machine of the Ray cluster has one CPU%s for an actor now; the job waits until one joins",
                f" and {gpus:g} GPU" if gpus else "",
            )

        def answer_of(method: Any, *arguments: Any) -> Any:
            with self._lock:
                self._check_going_on()
                # Not ray.get, which is called without the lock and would connect once more.
                answering = method.remote(*arguments).future()
            try:
                answer = answering.result()
            except ray.exceptions.RayActorError:
                answer = WorkerLost("was lost with its actor; Ray's logs have its messages")
            except Exception as error:  # noqa: BLE001 - whatever Ray raises ends the job with one sentence
                answer = RagguardError(
                    f"Ray ended the job: {describe(error)}; all machines of the cluster need the same ragguard and the "
                    "same Python"
                )
            if isinstance(answer, WorkerLost):
                with self._lock:
                    self._check_going_on()
                    ray.kill(actor)
            if isinstance(answer, Exception):
                raise answer
            return answer

        answer_of(actor.start)
        return partial(answer_of, actor.attempt)

    def _check_going_on(self) -> list[Any]:
        """Returns the actors; raises once the job has ended: a call of Ray would connect once more, and end the
        program."""
        if self._actors is None:
            raise WorkerLost("was to go on after the end of its job")
        return self._actors


class PartActor:
    """Scores parts in a process of a cluster. Returns an error in place of raising it: Ray would add tracebacks.

    Args:
        job: The settings.
        environment: Variables that this process gets where it does not have them.
        folder: The driver's folder, so that relative paths name the same here.
    """

    def __init__(self, job: PartJob, environment: Mapping[str, str], folder: str) -> None:
        for name, value in environment.items():
            os.environ.setdefault(name, value)
        with suppress(OSError):
            os.chdir(folder)
        self._job, self._scorer = job, PartScorer(job)

    async def start(self) -> StoreError | None:
        """Returns once this process runs: an error where it does not see the folder of scores."""
        if self._job.folder.settings() is not None:
            return None
        return StoreError(
            f"the machine {socket.gethostname()} does not see {self._job.folder}; name a folder that all machines of "
            "the cluster share"
        )

    async def attempt(self, part: Part) -> PartCounts | RagguardError:
        """Scores a part; returns its counts, or the error."""
        answer = await self._scorer.answer(part)
        if isinstance(answer, WorkerLost):  # the driver ends this process; those of its engine would go on
            for child in multiprocessing.active_children():
                child.kill()
        return answer


def _ray() -> Any:
    import ray
    import ray.exceptions

    return ray


def _check_listening(address: str) -> None:
    """Raises where nothing listens at an address: Ray itself would wait for a minute and say it in its own words."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if not colon and address not in ("auto", "local"):
        raise ValueError("it has no port")
    if colon:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
