"""A folder of scored parts: its layout, which parts in it are complete, and how a part is written whole or not at all.

    settings.json            the settings of all parts in it
    plan.json                the keys of all parts that were asked for, in the order of the input
    scores/KEY.parquet       one file of each table for each part; `storage/files/parttables.py` has the columns
    failures/KEY.parquet
    runs/KEY.parquet
    steps/KEY.parquet
    parts/KEY.json           the counts, written last: a part without this file is not complete
    driver.lock              the process that scores into the folder, while it does

A file is written under a name that begins with a dot, forced to the disk, and then renamed. Names are the keys of the
parts, so that a part which is scored once more replaces what an earlier attempt has left. A complete part that is
replaced stays as it is until all new files are written. Then its file in `parts/` is removed first, so that no reader
takes old and new tables for one part. The counts have the digest of each table, which readers check.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ragguard.errors import SchemaMismatch, StoreError
from ragguard.records import new_id
from ragguard.runtime.faults import describe
from ragguard.storage.files.filesystems import Location, locate, opened_at, pyarrow_for, reading, writing
from ragguard.storage.files.parttables import FORMAT, TABLES, PartCounts, Table, counts_of
from ragguard.storage.sqlite.owners import has_ended, this_process

SETTINGS, PLAN, LOCK = "settings.json", "plan.json", "driver.lock"
_PURPOSE = "a folder of scored parts"
_READERS = 8
"""The number of files that are read at the same time."""


class PartFolder:
    """A folder of scored parts, local or at any address of pyarrow's.

    Args:
        address: The folder.
    """

    def __init__(self, address: str | Path) -> None:
        self.place = locate(address)

    def __str__(self) -> str:
        return self.place.shown

    def settings(self) -> Mapping[str, Any] | None:
        """Returns the settings of the parts in the folder; None where there is no such folder, or an empty one.

        Raises StoreError where something else is there, SchemaMismatch where another version wrote it.
        """
        pa = pyarrow_for(_PURPOSE)
        with reading(self.place):
            info = self.place.filesystem.get_file_info(self.place.path)
        if info.type == pa.fs.FileType.NotFound:
            return None
        if info.type != pa.fs.FileType.Directory:
            raise StoreError(f"{self} is a file; name a folder, which is made if it is missing")
        if not self._exists(self.place.within(SETTINGS)):
            names = [name for name in self._names() if not name.startswith((f".{SETTINGS}.", LOCK))]
            if not names:
                return None
            # A job that begins writes its settings before all else: other names can be there only now because it does.
            if not self._exists(self.place.within(SETTINGS)):
                raise StoreError(f"{self} holds other files, such as {names[0]!r}; name a new folder")
        try:
            data = json.loads(self._content(self.place.within(SETTINGS)))
            version = data["format"]
            if version == FORMAT:
                return {"settings": dict(data["settings"]), "part_bytes": int(data["part_bytes"])}
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"{self} has no readable {SETTINGS} ({describe(error)}); name a new folder"
            ) from error
        raise SchemaMismatch(
            f"{self} was written in the format {version!r}, and this ragguard knows {FORMAT!r}: name a new folder"
        )

    def finished(self) -> list[str]:
        """Returns the keys of the complete parts, in order."""
        names = self._names("parts")
        return sorted(name.removesuffix(".json") for name in names if name.endswith(".json"))

    def planned(self) -> list[str]:
        """Returns the keys of all parts that were asked for, complete or not, in the order of the inputs."""
        if not self._exists(self.place.within(PLAN)):
            return []
        try:
            return [str(key) for key in json.loads(self._content(self.place.within(PLAN)))["parts"]]
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"{self} has no readable {PLAN} ({describe(error)}); the same `ragguard score` command writes it anew"
            ) from error

    def counts(self, keys: Iterable[str]) -> Iterator[PartCounts]:
        """Yields the counts of these complete parts; raises StoreError for a part whose counts are damaged."""
        with ThreadPoolExecutor(_READERS, thread_name_prefix="ragguard-reader") as readers:
            yield from readers.map(self._counts, keys)

    def complete(self, key: str) -> PartCounts | None:
        """Returns the counts of a complete part; None where the part is not complete."""
        return self._counts(key) if self._exists(self._counts_file(key)) else None

    def check(self, parts: Iterable[PartCounts]) -> None:
        """Raises StoreError where a table of one of these complete parts is not the one that was written."""
        with ThreadPoolExecutor(_READERS, thread_name_prefix="ragguard-reader") as readers:
            for _ in readers.map(lambda counts: [self._checked(table, counts) for table in TABLES], parts):
                pass

    def tables(self, parts: Iterable[PartCounts], *names: Table) -> Iterator[dict[Table, Any]]:
        """Yields these tables, or all, of each of these complete parts; raises StoreError where one is not the one that
        was written."""
        for counts in parts:
            yield {table: self._table(table, counts) for table in names or TABLES}

    def begin(self, settings: Mapping[str, Any], keys: Sequence[str] = ()) -> None:
        """Makes the folder and writes its settings, and the keys of the parts that are to be complete beside those that
        were planned before."""
        planned: list[str] = []
        with suppress(StoreError):  # a plan that cannot be read is written anew
            planned = self.planned()
        text = json.dumps({"format": FORMAT, **settings}, indent=2, sort_keys=True) + "\n"
        plan = json.dumps({"format": FORMAT, "parts": list(dict.fromkeys([*planned, *keys]))}) + "\n"
        with writing(self.place):
            self.place.filesystem.create_dir(self.place.path, recursive=True)
            # First of all: a folder that holds other files alone is refused when the job is begun again.
            self._write([(self.place.within(SETTINGS), text.encode("utf-8"))])
            for name in (*TABLES, "parts"):
                self.place.filesystem.create_dir(self.place.within(name).path, recursive=True)
            self._write([(self.place.within(PLAN), plan.encode("utf-8"))])

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Makes this process the only one that scores into the folder; raises StoreError where another one does. The
        lock of a process of this machine that has ended is taken over."""
        own, lock = this_process(""), self.place.within(LOCK)
        holder = {"host": socket.gethostname(), "machine": own.machine, "pid": own.pid, "born": own.born}
        with writing(self.place):
            self.place.filesystem.create_dir(self.place.path, recursive=True)
            if not self._create(lock, json.dumps(holder).encode()):
                self._refuse_living(lock)
                self._remove(lock)
                if not self._create(lock, json.dumps(holder).encode()):
                    self._refuse_living(lock)
        try:
            yield
        finally:
            self._remove(lock)

    def write(self, counts: PartCounts, tables: Mapping[Table, Any]) -> PartCounts:
        """Writes the tables of a part and, last, its counts, which make it complete; replaces an older result. Returns
        the counts with the digests of the tables."""
        pa = pyarrow_for(_PURPOSE)
        files: list[tuple[Location, bytes]] = []
        digests: dict[str, str] = {}
        for table in TABLES:
            sink = pa.BufferOutputStream()
            pa.parquet.write_table(tables[table], sink)
            content = sink.getvalue().to_pybytes()
            digests[table] = hashlib.sha256(content).hexdigest()
            files.append((self._table_file(table, counts.key), content))
        counts = dataclasses.replace(counts, digests=digests)
        data = dataclasses.asdict(counts)
        sealed = json.dumps({**data, "sha256": _digest(data)}) + "\n"
        files.append((self._counts_file(counts.key), sealed.encode("utf-8")))
        with writing(self.place):
            self._write(files, replaced=self._counts_file(counts.key))
        return counts

    def clean(self, keys: Iterable[str]) -> None:
        """Removes what interrupted attempts at these complete parts have left."""
        complete = set(keys)
        for folder in (*TABLES, "parts"):
            for name in self._names(folder):
                if name.startswith(".") and name[1:].partition(".")[0] in complete:
                    self._remove(self.place.within(folder, name))

    def _counts(self, key: str) -> PartCounts:
        try:
            data = json.loads(self._content(self._counts_file(key)))
            if data.pop("sha256") == _digest(data) and data["key"] == key:
                return counts_of(data)
            why = "it is not what was written"
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            why = describe(error)
        raise self._damaged(f"parts/{key}.json", key, why)

    def _table(self, table: Table, counts: PartCounts) -> Any:
        pa = pyarrow_for(_PURPOSE)
        try:
            file = pa.parquet.ParquetFile(pa.BufferReader(self._checked(table, counts)))
            return file.read(
                use_threads=False
            )  # one of Arrow's threads that holds the buffer at exit ends in abort()
        except (OSError, pa.ArrowException) as error:
            raise self._damaged(f"{table}/{counts.key}.parquet", counts.key, describe(error)) from error

    def _checked(self, table: Table, counts: PartCounts) -> bytes:
        """Returns the content of a table's file; raises StoreError where it is not the one that was written."""
        why = "it is not the file that was written with the part's counts"
        try:
            content = self._content(self._table_file(table, counts.key))
            if hashlib.sha256(content).hexdigest() == counts.digests.get(table):
                return content
        except StoreError as error:
            why = str(error)
        raise self._damaged(f"{table}/{counts.key}.parquet", counts.key, why)

    def _damaged(self, name: str, key: str, why: str) -> StoreError:
        return StoreError(
            f"{name} in {self} is damaged ({why}); remove parts/{key}.json there, and the same `ragguard score` "
            "command scores this part again"
        )

    def _create(self, lock: Location, content: bytes) -> bool:
        """Writes the lock unless it is there; returns whether it was written. Object stores cannot do both in one step:
        there two drivers that begin in the same moment may both go on."""
        if "://" in lock.address:
            if self._exists(lock):
                return False
            self._write([(lock, content)])
            return True
        try:
            descriptor = os.open(lock.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            return False
        with open(descriptor, "wb") as file:
            file.write(content)
        return True

    def _refuse_living(self, lock: Location) -> None:
        """Raises StoreError unless the process that holds the lock is known to have ended."""
        try:
            holder = json.loads(self._content(lock))
            ended = has_ended(holder["machine"], holder["pid"], holder["born"])
            who = f"the process {holder['pid']} on {holder['host']}"
        except (ValueError, KeyError, TypeError):
            ended, who = None, "another process"
        if not ended:
            raise StoreError(
                f"{who} scores into {self}; wait for it, or name another folder. If it has ended, remove {lock.shown} "
                "and run the same again"
            )

    def _content(self, place: Location) -> bytes:
        with opened_at(place) as file:
            return file.read()

    def _counts_file(self, key: str) -> Location:
        return self.place.within("parts", f"{key}.json")

    def _table_file(self, table: Table, key: str) -> Location:
        return self.place.within(table, f"{key}.parquet")

    def _write(self, files: Sequence[tuple[Location, bytes]], replaced: Location | None = None) -> None:
        """Writes files under other names and, when all are on the disk, removes the file `replaced`, if there is one,
        and renames them in order."""
        written: list[tuple[str, str]] = []
        try:
            for place, content in files:
                folder, _, name = place.path.rpartition("/")
                written.append((f"{folder}/.{name}.{new_id()}", place.path))
                with self.place.filesystem.open_output_stream(written[-1][0]) as file:
                    file.write(content)
                self._force_to_disk(written[-1][0])
            if replaced is not None and self._exists(replaced):
                self.place.filesystem.delete_file(replaced.path)
            for temporary, path in written:
                self.place.filesystem.move(temporary, path)
                self._force_to_disk(path.rpartition("/")[0])
        except BaseException:
            for temporary, _ in written:
                with suppress(OSError):
                    self.place.filesystem.delete_file(temporary)
            raise

    def _force_to_disk(self, path: str) -> None:
        """Waits until a file or folder of this machine is on the disk; an object store has what it has taken."""
        if "://" in self.place.address:
            return
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _remove(self, place: Location) -> None:
        with suppress(OSError):
            place.filesystem.delete_file(place.path)

    def _exists(self, place: Location) -> bool:
        with reading(place):
            return bool(self.place.filesystem.get_file_info(place.path).is_file)

    def _names(self, *below: str) -> list[str]:
        fs = pyarrow_for(_PURPOSE).fs
        place = self.place.within(*below) if below else self.place
        with reading(place):
            try:
                infos = place.filesystem.get_file_info(fs.FileSelector(place.path, allow_not_found=True))
            except FileNotFoundError:  # Arrow looks twice: a folder that was made in between is empty
                infos = []
        return sorted(info.base_name for info in infos)


def is_part_folder(address: str | Path) -> bool:
    """Returns whether an address is that of a folder of scored parts. A local path needs no pyarrow to find out."""
    text = str(address)
    if "://" not in text:
        return Path(text).is_dir() and (Path(text) / SETTINGS).is_file()
    try:
        return PartFolder(address).settings() is not None
    except SchemaMismatch:
        return True
    except StoreError:
        return False


def _digest(data: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode("utf-8")).hexdigest()
