"""A folder of scored parts: its layout, which parts in it are complete, and how a part is written whole or not at all.

    settings.json     the settings of all parts in it
    plan.json         the keys of all parts that were asked for, in the order of the input
    parts/KEY.db      the runs of a part with their scores and failures: a store, which every reader of stores opens
    parts/KEY.json    the counts of the part; a part without this file is not complete
    driver.lock       locked by the process that scores into the folder

A file is written under a name that begins with a dot, forced to the disk, and then renamed.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ragguard.errors import InvalidInput, SchemaMismatch, StoreError
from ragguard.records import ScoredRun, Usage, new_id
from ragguard.runtime.faults import describe
from ragguard.storage.sqlite.database import is_whole_store
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
            if others:
                raise StoreError(f"{self} holds other files, such as {others[0]!r}; name a new folder")
            return None
        with self._reading(SETTINGS, "name a new folder") as data:
            version = data["format"]
            if version == FORMAT:
                return {"settings": dict(data["settings"]), "part_bytes": int(data["part_bytes"])}
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
        if not (self.path / PLAN).exists():
            return []
        with self._reading(PLAN, "remove it, and the same `ragguard score` command writes it again") as data:
            return [str(key) for key in data["parts"]]

    def counts(self, key: str) -> PartCounts:
        """Returns the counts of a complete part; raises StoreError where they are not what was written."""
        mend = "remove it, and the same `ragguard score` command scores this part again"
        with self._reading(f"{PARTS}/{key}.json", mend) as data:
            totals = data["totals"]
            data["totals"] = PartTotals(**totals | {"usage": Usage(**totals["usage"])})
            return PartCounts(**{declared.name: data[declared.name] for declared in fields(PartCounts)})

    def store_of(self, key: str) -> Path:
        """Returns the path of a complete part's store; raises StoreError where it is none, or not whole."""
        path = self._store_path(key)
        if not is_whole_store(path):
            raise StoreError(
                f"{path} is damaged; remove {key}.json there, and the same `ragguard score` command scores this part "
                "again"
            )
        return path

    def begin(self, settings: Mapping[str, Any], part_bytes: int, keys: Iterable[str]) -> None:
        """Makes the folder and writes its settings, the size of its parts, and the keys of the parts that are to be
        complete beside those that were planned before."""
        first = {"format": FORMAT, "settings": settings, "part_bytes": part_bytes}
        plan = {"format": FORMAT, "parts": list(dict.fromkeys([*self.planned(), *keys]))}
        with self._writing():
            self.path.mkdir(parents=True, exist_ok=True)
            # First of all: a folder that holds other files alone is refused when the job is begun again.
            _write(self.path / SETTINGS, json.dumps(first, indent=2, sort_keys=True).encode())
            (self.path / PARTS).mkdir(exist_ok=True)
            _write(self.path / PLAN, json.dumps(plan).encode())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Makes this process the only one that scores into the folder; raises StoreError where another one does."""
        import fcntl  # Windows, which reads folders as well, has none

        with self._writing():
            self.path.mkdir(parents=True, exist_ok=True)
            file = (self.path / LOCK).open("wb")
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise StoreError(
                    f"another process scores into {self} ({describe(error)}); wait for it, or name another folder"
                ) from error
            yield

    def write(self, counts: PartCounts, scored: Iterable[ScoredRun]) -> None:
        """Writes the runs of a part and, last, its counts, which make it complete."""
        with closing(Store(scored=False)) as store:
            store.add_scored(scored)
            content = store.content()
        last = self.path / PARTS / f"{counts.key}.json"
        with self._writing():
            _write(self._store_path(counts.key), content)
            _write(last, json.dumps(dataclasses.asdict(counts)).encode())

    def clean(self) -> None:
        """Removes what processes that were killed have left."""
        for file in (self.path / PARTS).glob(".*"):
            file.unlink(missing_ok=True)

    def _store_path(self, key: str) -> Path:
        return self.path / PARTS / f"{key}.db"

    @contextmanager
    def _reading(self, name: str, mend: str) -> Iterator[dict[str, Any]]:
        """Reads a file of the folder; turns what is wrong with its content into one sentence."""
        try:
            yield json.loads((self.path / name).read_bytes())
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise StoreError(f"{self.path / name} is damaged ({describe(error)}); {mend}") from error

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


def _write(path: Path, content: bytes) -> None:
    """Writes a file under another name and, once it is on the disk, renames it."""
    temporary = path.with_name(f".{path.name}.{new_id()}")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


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
    """The digest of the part's content and of all settings; see `PartJob`."""
    source: str
    """The path of the run file."""
    start: int
    """The first byte of the part in the file."""
    end: int
    """The first byte behind the part."""
    totals: PartTotals
    identity: str = ""
    """A digest of engine, judge, prompts and scorers as they named themselves; "" where none could be reached."""
    rejected_lines: Sequence[str] = ()
    """The first 100 rejected lines: file, byte and reason."""


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
