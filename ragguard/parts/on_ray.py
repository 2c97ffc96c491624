"""Scores parts on actors of a Ray cluster. No other module imports Ray.

Ray Data is used as a scheduler alone: it carries the description of a part to an actor and the counts of the part back.
Actors read the input and write the results themselves, so that nothing large goes through Ray. An actor or a node that
is lost is replaced by Ray, and its parts are tried again; `PartScorer` counts the attempts.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import socket
import sys
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

from ragguard.errors import (
    EngineError,
    InvalidInput,
    MissingDependency,
    PartUnanswered,
    RagguardError,
    StoreError,
)
from ragguard.parts.job import JobReport, carry_out, prepare
from ragguard.parts.part import Part
from ragguard.parts.scoring import PartScorer
from ragguard.parts.settings import PartJob
from ragguard.runtime.arguments import number_between, whole_number
from ragguard.runtime.background_loop import BackgroundLoop
from ragguard.runtime.faults import describe
from ragguard.runtime.retry import RetrySchedule
from ragguard.storage.files.parttables import PartCounts
from ragguard.text.secret_filter import logger

_log = logger("ragguard")

ADDRESSES = (
    "HOST:PORT of the head of a Ray cluster, auto for a cluster of this machine, or local to start one here"
)
_KEYS = ("RAGGUARD_API_KEY", "OPENAI_API_KEY")
"""The variables of the environment that actors on other machines get from the driver's."""
_CONNECT_SECONDS = 5.0
_STARTS = 3
"""How often an actor may be lost before it can score."""
_CLOSE_SECONDS = 20.0
_STORE_BYTES = 200 * 2**20
"""The bytes that a Ray that is started here keeps in shared memory: parts put next to nothing there."""
_RAY_DATA_THREADS = ("iter_threaded", "StreamingExecutor")
"""How the names begin that Ray Data gives to the threads that read results."""
_AT_FIRST = RetrySchedule(attempts=1)
_AFTER_LOSS = RetrySchedule(attempts=4, first=5.0, longest=20.0)


class RayActors:
    """An executor of actors on a Ray cluster. Needs the extra `ray`.

    Args:
        address: The cluster: `HOST:PORT`, `auto` for one of this machine, `local` to start one here. None: the
            RAY_ADDRESS of the environment, else one of this machine, else one is started here. Where the calling
            program is connected to Ray already, that connection is used.
        actors: How many actors at least and at most; Ray adds actors as long as parts wait and machines are free.
        gpus: GPUs of each actor, also a part of one. None: 1 where a model is `vllm:MODEL`, else 0.
        overlap: How many parts an actor scores at once, so that its engine has work while results are written; never
            more than the runs that the job lets a process score at once.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        actors: tuple[int, int] = (1, 8),
        gpus: float | None = None,
        overlap: int = 2,
    ) -> None:
        if find_spec("ray") is None:
            raise MissingDependency("ray", "scoring on a Ray cluster", "ray")
        if not isinstance(actors, tuple | list) or len(actors) != 2:
            raise InvalidInput("actors", actors, "two numbers, the least and the most")
        least, most = (whole_number("actors", number, 1) for number in actors)
        if least > most:
            raise InvalidInput("actors", actors, "two numbers, the second not below the first")
        if gpus is not None:
            number_between("gpus", gpus, 0, 1024, "a number, 0 or more")
        self.address, self.gpus = address, gpus
        self.workers = most
        self._least = least
        self._overlap = whole_number("overlap", overlap, 1)
        self._ours = False
        """True where this object has made the connection to Ray."""

    def connect(self) -> None:
        """Connects to the cluster; raises where there is none."""
        address = self.address or os.environ.get("RAY_ADDRESS") or None
        if not _connected():
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

    def completed(self, job: PartJob, parts: Sequence[Part]) -> Generator[PartCounts, None, None]:
        """Yields the counts of each part once it is complete."""
        ray = _ray()
        from ray import data

        context = data.DataContext.get_current()
        context.enable_progress_bars = False
        context.print_on_execution_start = False
        if self._ours:
            logger("ray.data").setLevel("ERROR")  # progress is shown by who calls
        gpus = _gpus(job) if self.gpus is None else self.gpus
        self._warn_of_resources(gpus)
        overlap = min(self._overlap, job.concurrency)
        pool = data.ActorPoolStrategy(
            min_size=min(self._least, len(parts)), max_size=min(self.workers, len(parts)),
            max_tasks_in_flight_per_actor=2 * overlap,  # the next parts are there when one is done
            max_concurrent_calls_per_actor=overlap, enable_true_multi_threading=overlap > 1,
        )  # fmt: skip
        here = {"job": job, "environment": _environment(), "folder": os.getcwd()}
        rows = (
            data.from_items(
                [{"part": json.dumps(asdict(part))} for part in parts], override_num_blocks=len(parts)
            )
            .map_batches(
                PartActor, fn_constructor_kwargs=here, batch_size=1, compute=pool, num_cpus=1, num_gpus=gpus or None
            )
            .iter_rows()
        )  # fmt: skip
        try:
            for row in rows:
                yield _counts(row["said"])
        except ray.exceptions.RayError as error:
            raise RagguardError(
                f"Ray ended the job: {describe(error)}; all machines of the cluster need the same ragguard "
                "and the same Python"
            ) from error
        finally:
            del rows
            self.disconnect()

    def disconnect(self) -> None:
        """Ends the connection that `connect` made, and with it all actors of the job."""
        if self._ours:
            self._ours = False
            if _ray_data_ended():
                _ray().shutdown()
            else:
                _log.warning(
                    "Ray Data still reads results after %.0f s: the connection to Ray, with the job's actors, ends "
                    "with this process",
                    _CLOSE_SECONDS,
                )

    def _warn_of_resources(self, gpus: float) -> None:
        """Warns where no machine of the cluster can run an actor now: Ray then waits for one, silently."""
        ray = _ray()
        alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if not any(node.get("CPU", 0) >= 1 and node.get("GPU", 0) >= gpus for node in alive):
            _log.warning(
                "no machine of the Ray cluster has one CPU%s for an actor now; the job waits until one joins",
                f" and {gpus:g} GPU" if gpus else "",
            )


def score_on_ray(
    inputs: Sequence[str | Path],
    job: PartJob,
    *,
    address: str | None = None,
    actors: tuple[int, int] = (1, 8),
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
        inputs: Run files and folders of run files, local or at addresses of pyarrow's, which every machine reaches.
        job: The settings.
        address: The cluster; see `RayActors`.
        actors: How many actors at least and at most.
        gpus: GPUs of each actor.
        overlap: How many parts an actor scores at once.
        size: About how many bytes a part has; see `prepare`.
        retry_failures: True where complete parts that hold failures are scored again; see `prepare`.
    """
    executor = RayActors(address, actors=actors, gpus=gpus, overlap=overlap)
    try:
        prepared = prepare(inputs, job, workers=executor.workers, size=size, retry_failures=retry_failures)
        return carry_out(prepared, executor)
    finally:
        executor.disconnect()


class PartActor:
    """Scores parts in a process of the cluster; Ray Data makes it and calls it.

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
        self._loop = BackgroundLoop("ragguard-parts")
        self._fault: RagguardError | None = None
        self._scorer: PartScorer | None = None
        try:
            self._start(job)
        except RagguardError as error:
            self._fault = error  # said in place of a part's counts, which ends the job with this sentence

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[str]]:
        """Scores the one part of a batch; returns its counts, or why the job has to end."""
        try:
            if self._fault is not None or self._scorer is None:
                raise self._fault or StoreError("the actor has no scorer")
            part = Part(**json.loads(str(batch["part"][0])))
            said: dict[str, Any] = {"counts": self._loop.run(self._scorer.attempt(part)).row()}
        except PartUnanswered:
            self._leave()
        except EngineError as error:
            said = {"engine": str(error)}
        except Exception as error:  # noqa: BLE001 - Ray would say it with a traceback of its own
            said = {
                "fault": str(error)
                if isinstance(error, RagguardError)
                else f"an actor failed: {describe(error)}"
            }
        return {"said": [json.dumps(said)]}

    def _start(self, job: PartJob) -> None:
        """Loads or reaches the engine. One that has just lost its process is tried a few times: what that process held
        of a GPU is given back a little later."""
        folder = job.folder
        if folder.settings() is None:
            raise StoreError(
                f"the machine {socket.gethostname()} does not see {folder}; name a folder that all machines of the "
                "cluster share, or an address such as s3://BUCKET/FOLDER"
            )
        context = _ray().get_runtime_context()
        begun = folder.attempt(f"actor-{context.get_actor_id()}", job.invocation, _STARTS + 1)
        if begun.number > _STARTS:
            folder.forget(begun)
            raise EngineError(
                f"an actor on {socket.gethostname()} was lost {_STARTS} times before it could score; Ray's logs there "
                "have its messages"
            )
        waits = _AFTER_LOSS if context.was_current_actor_reconstructed else _AT_FIRST
        for number in itertools.count(1):
            try:
                self._scorer = PartScorer(job)
                self._loop.run(self._scorer.start())
                break
            except EngineError:
                wait = waits.after(number)
                if wait is None:
                    raise
            time.sleep(wait)
        folder.forget(begun)

    def _leave(self) -> NoReturn:
        """Ends this process, with the processes that its engine has started. Ray starts the actor anew and tries its
        parts again."""
        with suppress(Exception):
            assert self._scorer is not None
            self._loop.run(self._scorer.aclose(), _CLOSE_SECONDS)
        for child in multiprocessing.active_children():
            child.kill()
        os._exit(1)


def _ray_data_ended() -> bool:
    """Waits until the threads by which Ray Data reads results have ended; returns False where they go on. One that asks
    Ray when the connection is gone has Ray's core end this whole process, before the cause of an error is said."""
    deadline = time.monotonic() + _CLOSE_SECONDS
    reading = [one for one in threading.enumerate() if one.name.startswith(_RAY_DATA_THREADS)]
    for thread in reading:
        thread.join(max(0.0, deadline - time.monotonic()))
    return not any(thread.is_alive() for thread in reading)


def _connected() -> bool:
    """Returns whether the calling program is connected to Ray; imports nothing."""
    return bool("ray" in sys.modules and _ray().is_initialized())


def _ray() -> Any:
    try:
        import ray
        import ray.data
        import ray.exceptions
    except ImportError as error:
        raise MissingDependency("ray", "scoring on a Ray cluster", "ray") from error
    return ray


def _counts(said: str) -> PartCounts:
    """Returns the counts that an actor gave; raises what it gave in their place."""
    found = json.loads(said)
    if "counts" in found:
        return PartCounts.of_row(found["counts"])
    if "engine" in found:
        raise EngineError(found["engine"])
    raise StoreError(found["fault"])


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


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _KEYS if name in os.environ}


def _gpus(job: PartJob) -> float:
    models = (job.scoring.engine, job.scoring.judge)
    return float(any(str(model).strip().startswith("vllm:") for model in models))
