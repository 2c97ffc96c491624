"""A part of the input: a range of one file, small enough that losing its results is cheap."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ragguard.text.secret_filter import without_secrets

PartKind: TypeAlias = Literal["lines", "gzip", "parquet"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A range of one run file. Plain data, which any process that reaches the file can work on."""

    source: str
    """The file: an absolute path, or an address of pyarrow's."""
    kind: PartKind
    """`lines`: a run file, by bytes. `gzip`: a packed run file, which is one part. `parquet`: the column `run` of a
    Parquet file, by rows."""
    start: int
    """The first byte or row of the part."""
    end: int
    """The first byte or row behind the part. A line belongs to the part in which it begins."""
    size: int
    """The size of the whole file in bytes."""
    modified_ns: int
    """The time at which the file was changed, in nanoseconds since 1970."""
    bytes: int
    """About how many bytes of the file the part has."""

    @property
    def shown(self) -> str:
        """The file without keys and passwords, for messages and records."""
        return without_secrets(self.source)

    def key(self, settings: str) -> str:
        """Returns the digest of all that decides about the part's results; the name of its files.

        Args:
            settings: The digest of the settings; see `PartJob`.
        """
        return digest_of([self.shown, self.kind, self.start, self.end, self.size, self.modified_ns, settings])


def digest_of(value: object) -> str:
    """Returns a digest of plain data."""
    text = json.dumps(value, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:32]
