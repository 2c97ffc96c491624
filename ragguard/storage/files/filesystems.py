"""Finds and opens files by their address: local paths, and what `pyarrow.fs` opens, such as `s3://`, `gs://`,
`hdfs://` and `file://`."""

from __future__ import annotations

import errno
import io
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, cast
from urllib.parse import quote

from ragguard.errors import MissingDependency, RagguardError, StoreError
from ragguard.runtime.faults import describe
from ragguard.text.secret_filter import without_secrets

_BUFFER = 2**20


class FileInfo(NamedTuple):
    """A file: its address, its size in bytes, and the time of its last change in nanoseconds since 1970."""

    address: str
    size: int
    modified_ns: int


class Location(NamedTuple):
    """A file or folder on a file system of pyarrow's."""

    filesystem: Any
    path: str
    address: str
    """The full address, by which another machine finds the same file."""

    @property
    def shown(self) -> str:
        """The address without keys and passwords, for messages and records."""
        return without_secrets(self.address)

    def within(self, *names: str) -> Location:
        """Returns the location of a file or folder below this folder."""
        below = "/".join(names)
        if "://" in self.address:
            base, mark, query = self.address.partition("?")
            address = f"{base.rstrip('/')}/{quote(below)}{mark}{query}"
        else:
            address = f"{self.address.rstrip('/')}/{below}"
        return Location(self.filesystem, f"{self.path.rstrip('/')}/{below}", address)


def pyarrow_for(purpose: str) -> Any:
    """Returns the module pyarrow with `pyarrow.parquet` and `pyarrow.fs`; raises MissingDependency without it."""
    try:
        import pyarrow
        import pyarrow.fs
        import pyarrow.parquet
    except ImportError as error:
        raise MissingDependency("pyarrow", purpose, "parquet") from error
    return pyarrow


def locate(address: str | Path) -> Location:
    """Returns where a file or folder is: a local path, or an address that pyarrow knows."""
    fs = pyarrow_for("reading and writing parts of the input").fs
    text = str(address)
    if "://" not in text:
        path = os.path.abspath(text)
        return Location(fs.LocalFileSystem(), path, path)
    try:
        filesystem, path = fs.FileSystem.from_uri(text)
    except (OSError, ValueError, ImportError, NotImplementedError) as error:
        raise StoreError(
            f"{without_secrets(text)} is no address that pyarrow opens ({describe(error)}); "
            "give a local path, or one such as s3://BUCKET/FOLDER"
        ) from error
    return Location(filesystem, path, text)


def find_files(address: str | Path) -> list[FileInfo] | None:
    """Returns the file at an address, or all files below the folder there in the order of their names; None where there
    is neither. Raises StoreError for a pipe or a device, which several processes cannot read.

    Names that begin with `.` or `_` below a folder are left out, as by other readers of such folders.
    """
    place = locate(address)
    fs = pyarrow_for("reading and writing parts of the input").fs
    with reading(place):
        found = place.filesystem.get_file_info(place.path)
        if found.type == fs.FileType.NotFound:
            return None
        if found.type == fs.FileType.Unknown:
            raise StoreError(
                f"{place.shown} is neither a file nor a folder, and several processes cannot read it; write its runs "
                "to a file first"
            )
        if found.type != fs.FileType.Directory:
            return [_file_info(place.address, found)]
        if isinstance(place.filesystem, fs.LocalFileSystem):
            below = place.filesystem.get_file_info(_local_files(place.path))
        else:
            below = place.filesystem.get_file_info(fs.FileSelector(place.path, recursive=True))
    files = []
    for info in below:
        names = info.path[len(place.path) :].strip("/")
        hidden = any(name.startswith((".", "_")) for name in names.split("/"))
        if info.type == fs.FileType.File and not hidden:
            files.append(_file_info(place.within(names).address, info))
    return sorted(files)


def _local_files(folder: str) -> list[str]:
    """Returns the paths of all files below a folder of this machine. Links to folders are followed, and each folder is
    walked once, by whatever links it is reached."""
    files: list[str] = []
    walked: set[str] = set()
    for path, folders, names in os.walk(folder, followlinks=True):
        if (real := os.path.realpath(path)) in walked:
            folders.clear()
            continue
        walked.add(real)
        folders.sort()
        files += [os.path.join(path, name) for name in names]
    return files


def file_at(place: Location) -> FileInfo | None:
    """Returns the size and the time of one file; None where there is none."""
    with reading(place):
        found = place.filesystem.get_file_info(place.path)
    return _file_info(place.address, found) if found.is_file else None


@contextmanager
def opened_at(place: Location) -> Iterator[IO[bytes]]:
    """Yields a file that is open to read bytes, buffered, from any position."""
    with reading(place), place.filesystem.open_input_file(place.path) as file:
        yield cast(IO[bytes], io.BufferedReader(file, _BUFFER))


@contextmanager
def reading(place: Location) -> Iterator[None]:
    """Turns errors of a file system into one sentence."""
    try:
        yield
    except RagguardError:
        raise
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise StoreError(
            f"{place.shown} could not be read ({describe(error)}); check the path and the file"
        ) from error


@contextmanager
def writing(place: Location) -> Iterator[None]:
    """Turns errors of a file system, such as a full disk, into one sentence."""
    try:
        yield
    except OSError as error:
        mend = (
            "free the disk"
            if error.errno in (errno.ENOSPC, errno.EDQUOT)
            else "check the path and its permissions"
        )
        raise StoreError(
            f"{place.shown} could not be written ({describe(error)}); what was finished before stays: {mend} and run "
            "the same again"
        ) from error


def _file_info(address: str, found: Any) -> FileInfo:
    return FileInfo(address, int(found.size or 0), found.mtime_ns or 0)
