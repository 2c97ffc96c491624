"""A folder of scored parts: its layout, which parts in it are complete, and how a part is written whole or not at all.

    settings.json                 the settings of all parts in it
    plan.json                     the keys of all parts that were asked for, in the order of the input
    scores/KEY.parquet            one file of each table for each part; `storage/files/parttables.py` has the columns
    failures/KEY.parquet
    runs/KEY.parquet
    parts/KEY.parquet             written last: a part without this file is not complete, and its others are ignored
    attempts/KEY.INVOCATION.N     the attempts at parts that are not complete

A file is written under a name that begins with a dot and then renamed. Names are the keys of the parts, so that a part
which is scored once more replaces what an earlier attempt has left. A complete part that is replaced stays as it is
until all new files are written. Then its file in `parts/` is removed first, so that no reader takes old and new tables
for one part.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ragguard.errors import RagguardError, SchemaMismatch, StoreError
from ragguard.records import new_id
from ragguard.runtime.faults import describe
from ragguard.storage.files.parttables import FORMAT, TABLES, PartCounts, Table, table_schemas
from ragguard.storage.sqlite.filesystems import Location, locate, opened_at, pyarrow_for, reading, writing

SETTINGS, PLAN = "settings.json", "plan.json"
_SUFFIX = ".parquet"
_PURPOSE = "a folder of scored parts"
_FILES_AT_ONCE = 64
"""A data set of pyarrow's keeps what it knows of each of its files, some 40 KiB, until it is dropped."""


class PartAttempt(NamedTuple):
    """An attempt at scoring a part."""

    key: str
    invocation: str
    number: int
    """The number of the attempt: 1 for the first one of this invocation of the command."""


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
            found = self.place.filesystem.get_file_info(self.place.path)
        if found.type == pa.fs.FileType.NotFound:
            return None
        if found.type != pa.fs.FileType.Directory:
            raise StoreError(f"{self} is a file; name a folder, which is made if it is missing")
        if not self._exists(self.place.within(SETTINGS)):
            names = [name for name in self._names() if not name.startswith(f".{SETTINGS}.")]
            if not names:
                return None
            # A job that begins writes its settings before all else: other names can be there only now because it does.
            if not self._exists(self.place.within(SETTINGS)):
                raise StoreError(f"{self} holds other files, such as {names[0]!r}; name a new folder")
        try:
            with opened_at(self.place.within(SETTINGS)) as file:
                data = json.loads(file.read())
            version = data["format"]
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{self} has no readable {SETTINGS} ({error}); name a new folder") from error
        if version != FORMAT:
            raise SchemaMismatch(
                f"{self} was written in the format {version!r}, and this ragguard knows {FORMAT!r}: name a new folder"
            )
        return dict(data)

    def finished(self) -> list[str]:
        """Returns the keys of the complete parts, in order."""
        names = self._names("parts")
        return sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))

    def planned(self) -> list[str]:
        """Returns the keys of all parts that were asked for, complete or not, in the order of the inputs."""
        if not self._exists(self.place.within(PLAN)):
            return []
        try:
            with opened_at(self.place.within(PLAN)) as file:
                return [str(key) for key in json.loads(file.read())["parts"]]
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"{self} has no readable {PLAN} ({describe(error)}); the same `ragguard score` command writes it anew"
            ) from error

    def paths(self, table: Table, keys: Iterable[str]) -> list[str]:
        """Returns the paths of a table's files on `place.filesystem`, one for each of these complete parts."""
        return [self._file(table, key).path for key in keys]

    def read(
        self, table: Table, keys: Iterable[str], columns: Sequence[str] | None = None, *, where: Any = None
    ) -> Iterator[Any]:
        """Yields record batches of a table over these complete parts: of the columns that are named (`__filename` is
        the path of each row's file), and of the rows that fulfil `where`, an expression of pyarrow's."""
        import pyarrow.dataset as dataset

        paths = self.paths(table, keys)
        if not paths:
            return
        schema = table_schemas(pyarrow_for(_PURPOSE))[table]
        with reading(self.place):
            for at in range(0, len(paths), _FILES_AT_ONCE):
                some, filesystem = paths[at : at + _FILES_AT_ONCE], self.place.filesystem
                found = dataset.dataset(some, schema, format="parquet", filesystem=filesystem)
                yield from found.to_batches(columns=columns, filter=where)

    def counts(self, keys: Iterable[str]) -> Iterator[PartCounts]:
        """Yields the counts of these complete parts."""
        for batch in self.read("parts", keys):
            yield from map(PartCounts.of_row, batch.to_pylist())

    def complete(self, key: str) -> PartCounts | None:
        """Returns the counts of a complete part; None where the part is not complete."""
        return next(self.counts([key])) if self._exists(self._file("parts", key)) else None

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
            self._put([(self.place.within(SETTINGS), text.encode("utf-8"))])
            for name in (*TABLES, "attempts"):
                self.place.filesystem.create_dir(self.place.within(name).path, recursive=True)
            self._put([(self.place.within(PLAN), plan.encode("utf-8"))])

    def write(self, counts: PartCounts, tables: Mapping[Table, Any]) -> None:
        """Writes the tables of a part and, last, its counts, which make it complete; replaces an older result."""
        pa = pyarrow_for(_PURPOSE)
        schema = table_schemas(pa)["parts"]
        every = {**tables, "parts": pa.Table.from_pylist([counts.row()], schema=schema)}
        files: list[tuple[Location, bytes]] = []
        for table in TABLES:
            sink = pa.BufferOutputStream()
            pa.parquet.write_table(every[table], sink)
            files.append((self._file(table, counts.key), sink.getvalue()))
        with writing(self.place):
            self._put(files, replaced=self._file("parts", counts.key))

    def clean(self, keys: Iterable[str]) -> None:
        """Removes what interrupted attempts at these complete parts have left."""
        complete = set(keys)
        for table in TABLES:
            for name in self._names(table):
                if name.startswith(".") and name[1:].partition(".")[0] in complete:
                    self._remove(self.place.within(table, name))
        for name in self._names("attempts"):
            if name.partition(".")[0] in complete:
                self._remove(self.place.within("attempts", name))

    def attempt(self, key: str, invocation: str, most: int) -> PartAttempt:
        """Notes an attempt at a part before the attempt begins, and returns it with its number, `most` at the most;
        attempts that another call of the command made are not counted."""
        places = [self._marker(PartAttempt(key, invocation, number)) for number in range(1, most + 1)]
        with reading(self.place):
            found = self.place.filesystem.get_file_info([place.path for place in places])
        attempt = PartAttempt(key, invocation, min(most, 1 + sum(info.is_file for info in found)))
        self.explain(attempt, "")
        return attempt

    def explain(self, attempt: PartAttempt, cause: str) -> None:
        """Notes why an attempt ended without a result."""
        place = self._marker(attempt)
        with writing(place), place.filesystem.open_output_stream(place.path) as file:
            file.write(cause.encode("utf-8"))

    def explain_last(self, key: str, invocation: str, cause: str) -> None:
        """Notes why the latest attempt at a part ended, unless the attempt has noted that itself."""
        latest = PartAttempt(key, invocation, 0)
        while self._exists(self._marker(following := latest._replace(number=latest.number + 1))):
            latest = following
        if latest.number and not self._cause(latest):
            self.explain(latest, cause)

    def causes(self, attempt: PartAttempt) -> list[str]:
        """Returns why the attempts before this one ended, as far as somebody noted it."""
        found = [self._cause(attempt._replace(number=number)) for number in range(1, attempt.number)]
        return [cause for cause in found if cause]

    def forget(self, attempt: PartAttempt) -> None:
        """Removes the notes of a part's attempts, once it is complete."""
        for number in range(1, attempt.number + 1):
            self._remove(self._marker(attempt._replace(number=number)))

    def _cause(self, attempt: PartAttempt) -> str:
        with suppress(RagguardError), opened_at(self._marker(attempt)) as file:
            return file.read().decode("utf-8", "replace")
        return ""

    def _marker(self, attempt: PartAttempt) -> Location:
        return self.place.within("attempts", f"{attempt.key}.{attempt.invocation}.{attempt.number}")

    def _file(self, table: Table, key: str) -> Location:
        return self.place.within(table, key + _SUFFIX)

    def _put(self, files: Sequence[tuple[Location, bytes]], replaced: Location | None = None) -> None:
        """Writes files under other names and, when all are written, removes the file `replaced`, if there is one, and
        renames them in order."""
        written: list[tuple[str, str]] = []
        try:
            for place, content in files:
                folder, _, name = place.path.rpartition("/")
                written.append((f"{folder}/.{name}.{new_id()}", place.path))
                with self.place.filesystem.open_output_stream(written[-1][0]) as file:
                    file.write(content)
            if replaced is not None and self._exists(replaced):
                self.place.filesystem.delete_file(replaced.path)
            for temporary, path in written:
                self.place.filesystem.move(temporary, path)
        except BaseException:
            for temporary, _ in written:
                with suppress(OSError):
                    self.place.filesystem.delete_file(temporary)
            raise

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
                found = place.filesystem.get_file_info(fs.FileSelector(place.path, allow_not_found=True))
            except FileNotFoundError:  # Arrow looks twice: a folder that was made in between is empty
                found = []
        return sorted(info.base_name for info in found)


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
