"""A folder of scored parts: its layout, which parts in it are complete, and how a part is written whole or not at all.

    settings.json     the settings of all parts in it
    plan.json         the keys of all parts that were asked for, in the order of the input
    parts/KEY.db      the runs of a part with their scores and failures: a store, which every reader of stores opens
    parts/KEY.json    the counts of the part, and the digest of its store; a part without this file is not complete
    driver.lock       the process that scores into the folder, while it does

A file is written under a name that begins with a dot, forced to the disk, and then renamed. A part that is scored once
more replaces the result of before: the file with its counts is removed when the new files are on the disk, and is
renamed last, so that no reader takes the counts of one result for those of another.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
import socket
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ragguard.errors import InvalidInput, SchemaMismatch, StoreError
from ragguard.records import ScoredRun, Usage, new_id
from ragguard.runtime.faults import describe
from ragguard.storage.sqlite.owners import has_ended, this_process
from ragguard.storage.sqlite.store import Store
from ragguard.text.secret_filter import without_secrets

FORMAT = "ragguard.parts/3"
"""The version of the folder; the stores in it have their own."""
SETTINGS, PLAN, LOCK, PARTS = "settings.json", "plan.json", "driver.lock", "parts"


class PartFolder:
    """A folder of scored parts.

    Args:
        path: The folder, on a file system that all machines which score see.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = local_path("out", path)

    def __str__(self) -> str:
        return str(self.path)

    def settings(self) -> Mapping[str, Any] | None:
        """Returns the settings of the parts in the folder; None where there is no such folder, or an empty one.

        Raises StoreError where something else is there, SchemaMismatch where another version wrote it.
        """
        if not self.path.exists():
            return None
        if not self.path.is_dir():
            raise StoreError(f"{self} is a file; name a folder, which is made if it is missing")
        if not (self.path / SETTINGS).is_file():
            names = sorted(file.name for file in self.path.iterdir())
            others = [name for name in names if not name.startswith((f".{SETTINGS}.", LOCK))]
            if not others:
                return None
            # A job that begins writes its settings before all else: other names can be there only now because it does.
            if not (self.path / SETTINGS).is_file():
                raise StoreError(f"{self} holds other files, such as {others[0]!r}; name a new folder")
        try:
            data = json.loads((self.path / SETTINGS).read_bytes())
            version = data["format"]
            if version == FORMAT:
                return {"settings": dict(data["settings"]), "part_bytes": int(data["part_bytes"])}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"{self} has no readable {SETTINGS} ({describe(error)}); name a new folder"
            ) from error
        raise SchemaMismatch(
            f"{self} was written in the format {version!r}, and this ragguard knows {FORMAT!r}: name a new folder"
        )

    def finished(self) -> list[str]:
        """Returns the keys of the complete parts, in order."""
        return sorted(
            file.stem for file in (self.path / PARTS).glob("*.json") if not file.name.startswith(".")
        )

    def planned(self) -> list[str]:
        """Returns the keys of all parts that were asked for, complete or not, in the order of the inputs."""
        try:
            return [str(key) for key in json.loads((self.path / PLAN).read_bytes())["parts"]]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"{self} has no readable {PLAN} ({describe(error)}); the same `ragguard score` command writes it anew"
            ) from error

    def counts(self, key: str) -> PartCounts:
        """Returns the counts of a complete part; raises StoreError where they are not what was written."""
        try:
            data = json.loads(self._counts_file(key).read_bytes())
            if data.pop("sha256") == _digest(data) and data["key"] == key:
                totals = data.pop("totals")
                usage = Usage(**totals.pop("usage"))
                return PartCounts(**data, totals=PartTotals(**totals, usage=usage))
            why = "it is not what was written"
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            why = describe(error)
        raise self._damaged(self._counts_file(key), key, why)

    def complete(self, key: str) -> PartCounts | None:
        """Returns the counts of a complete part; None where the part is not complete."""
        return self.counts(key) if self._counts_file(key).is_file() else None

    def store_of(self, counts: PartCounts) -> Path:
        """Returns the path of a complete part's store; raises StoreError where it is not the one that was written."""
        path, why = self._store_file(counts.key), "it is not the file that was written with the part's counts"
        try:
            with open(path, "rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() == counts.digest:
                    return path
        except OSError as error:
            why = describe(error)
        raise self._damaged(path, counts.key, why)

    def begin(self, settings: Mapping[str, Any], keys: Sequence[str] = ()) -> None:
        """Makes the folder and writes its settings, and the keys of the parts that are to be complete beside those that
        were planned before."""
        planned: list[str] = []
        with suppress(StoreError):  # a plan that cannot be read is written anew
            planned = self.planned()
        text = json.dumps({"format": FORMAT, **settings}, indent=2, sort_keys=True) + "\n"
        plan = json.dumps({"format": FORMAT, "parts": list(dict.fromkeys([*planned, *keys]))}) + "\n"
        with self._writing():
            self.path.mkdir(parents=True, exist_ok=True)
            # First of all: a folder that holds other files alone is refused when the job is begun again.
            _write({self.path / SETTINGS: text.encode()})
            (self.path / PARTS).mkdir(exist_ok=True)
            _write({self.path / PLAN: plan.encode()})

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Makes this process the only one that scores into the folder; raises StoreError where another one does. The
        lock of a process of this machine that has ended is taken over."""
        own, lock = this_process(""), self.path / LOCK
        holder = {"host": socket.gethostname(), "machine": own.machine, "pid": own.pid, "born": own.born}
        with self._writing():
            self.path.mkdir(parents=True, exist_ok=True)
            if not _create(lock, json.dumps(holder)):
                self._refuse_living(lock)
                lock.unlink(missing_ok=True)
                if not _create(lock, json.dumps(holder)):
                    self._refuse_living(lock)
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)

    def write(self, counts: PartCounts, scored: Iterable[ScoredRun]) -> PartCounts:
        """Writes the runs of a part and, last, its counts, which make it complete; replaces an older result. Returns
        the counts with the digest of the part's store."""
        with closing(Store(scored=False)) as store:
            store.add_scored(scored)
            content = store.content()
        counts = dataclasses.replace(counts, digest=hashlib.sha256(content).hexdigest())
        data = dataclasses.asdict(counts)
        sealed = json.dumps({**data, "sha256": _digest(data)}) + "\n"
        last = self._counts_file(counts.key)
        with self._writing():
            _write({self._store_file(counts.key): content, last: sealed.encode()}, replaced=last)
        return counts

    def clean(self, keys: Iterable[str]) -> None:
        """Removes what interrupted attempts at these complete parts have left."""
        complete = set(keys)
        for file in (self.path / PARTS).glob(".*"):
            if file.name[1:].partition(".")[0] in complete:
                file.unlink(missing_ok=True)

    def _counts_file(self, key: str) -> Path:
        return self.path / PARTS / f"{key}.json"

    def _store_file(self, key: str) -> Path:
        return self.path / PARTS / f"{key}.db"

    def _damaged(self, file: Path, key: str, why: str) -> StoreError:
        return StoreError(
            f"{file} is damaged ({why}); remove {PARTS}/{key}.json there, and the same `ragguard score` command scores "
            "this part again"
        )

    def _refuse_living(self, lock: Path) -> None:
        """Raises StoreError unless the process that holds the lock is known to have ended."""
        try:
            holder = json.loads(lock.read_bytes())
            ended = has_ended(holder["machine"], holder["pid"], holder["born"])
            who = f"the process {holder['pid']} on {holder['host']}"
        except (OSError, ValueError, KeyError, TypeError):
            ended, who = None, "another process"
        if not ended:
            raise StoreError(
                f"{who} scores into {self}; wait for it, or name another folder. If it has ended, remove {lock} and "
                "run the same again"
            )

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Turns errors of the file system, such as a full disk, into one sentence."""
        try:
            yield
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            mend = "free the disk" if full else "check the path and its permissions"
            raise StoreError(
                f"{self} could not be written ({describe(error)}); what was finished before stays: {mend} and run the "
                "same again"
            ) from error


def local_path(argument: str, path: str | Path) -> Path:
    """Returns the absolute path of a file or folder; refuses the address of an object store."""
    if "://" in str(path):
        allowed = (
            "a path on a file system that all machines see; mount the object store, or copy from and to it"
        )
        raise InvalidInput(argument, without_secrets(str(path)), allowed)
    return Path(path).absolute()


def is_part_folder(path: str | Path) -> bool:
    """Returns whether a path is that of a folder of scored parts."""
    return (Path(path) / SETTINGS).is_file()


def _write(contents: Mapping[Path, bytes], replaced: Path | None = None) -> None:
    """Writes files under other names and, when all are on the disk, removes the file `replaced` and renames them in
    order."""
    written: dict[Path, Path] = {}
    try:
        for path, content in contents.items():
            temporary = path.with_name(f".{path.name}.{new_id()}")
            written[temporary] = path
            with open(temporary, "wb") as file:
                file.write(content)
            _force_to_disk(temporary)
        if replaced is not None:
            replaced.unlink(missing_ok=True)
        for temporary, path in written.items():
            temporary.replace(path)
            _force_to_disk(path.parent)
    except BaseException:
        for temporary in written:
            temporary.unlink(missing_ok=True)
        raise


def _force_to_disk(path: Path) -> None:
    """Waits until a file or folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _create(path: Path, text: str) -> bool:
    """Writes a file unless it is there; returns whether it was written."""
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return False
    return True


def _digest(data: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode("utf-8")).hexdigest()


MOST_REASONS = 100
"""The most reasons of failures, and the most rejected lines, that the counts of a part name."""


@dataclass(slots=True, kw_only=True)
class PartTotals:
    """The counts of some parts, added up."""

    parts: int = 0
    bytes: int = 0
    """The size of the parts in their input."""
    runs: int = 0
    """Runs that were read, scored or not."""
    referenced: int = 0
    """Runs with references, their own or those of the job's table."""
    failed_runs: int = 0
    """Runs with at least one failure."""
    scores: int = 0
    failures: int = 0
    parts_with_failures: int = 0
    rejected: int = 0
    """Lines that could not be read as runs."""
    usage: Usage = field(default_factory=Usage)
    """The cost of the scores."""
    reasons: dict[str, int] = field(default_factory=dict)
    """The reasons of failures, each with its number; of each part the 100 most frequent ones."""

    def add(self, other: PartTotals) -> None:
        """Adds the counts of other parts."""
        reasons = dict(Counter(self.reasons) + Counter(other.reasons))
        for name in (declared.name for declared in fields(self) if declared.name != "reasons"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.reasons = reasons


@dataclass(frozen=True, slots=True, kw_only=True)
class PartCounts:
    """The counts of one part of the input: the file that makes it complete."""

    key: str
    """The digest of the part's content and of all settings; see `parts.PartJob`."""
    source: str
    """The path of the run file."""
    start: int
    """The first byte of the part in the file."""
    end: int
    """The first byte behind the part."""
    totals: PartTotals
    seconds: float = 0.0
    """The duration of the attempt that gave these results."""
    attempts: int = 1
    """The number of attempts at the part."""
    identity: str = ""
    """A digest of engine, judge, prompts and scorers as they named themselves; "" where none could be reached."""
    rejected_lines: Sequence[str] = ()
    """The first 100 rejected lines: file, byte and reason."""
    digest: str = ""
    """The SHA-256 of the part's store."""


def totals_of(scored: Iterable[ScoredRun]) -> PartTotals:
    """Returns the counts of one part that holds these runs."""
    totals, reasons = PartTotals(parts=1), Counter[str]()
    for one in scored:
        totals.runs += 1
        totals.referenced += bool(one.run.references)
        totals.failed_runs += bool(one.failures)
        totals.scores += len(one.scores)
        totals.failures += len(one.failures)
        totals.usage = sum((score.usage for score in one.scores), totals.usage)
        reasons.update(f"{failure.scorer}, {failure.error}: {failure.message}" for failure in one.failures)
    totals.parts_with_failures = int(totals.failures > 0)
    totals.reasons = dict(reasons.most_common(MOST_REASONS))
    return totals
