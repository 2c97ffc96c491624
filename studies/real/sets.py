"""The sets that the study reads, from a folder that the caller names; no text of them is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ragguard.analysis.tables import Table
from ragguard.errors import InvalidInput, RagguardError
from studies.readers import answerable, evouna, multi_hop, ramdocs
from studies.real.labels import Grades, read_grades

T = TypeVar("T")
READERS: dict[str, Callable[[Path], Iterator[Any]]] = {
    "ramdocs": ramdocs.read,
    "musique": multi_hop.read,
    "hotpotqa": multi_hop.read_hotpotqa,
    "evouna_nq": evouna.read,
    "evouna_tq": evouna.read,
    "clapnq_answerable": answerable.read_clapnq,
    "clapnq_unanswerable": answerable.read_clapnq,
    "mtragun": answerable.read_mtrag,
}
"""The readers, by the names of the files without their ending `.jsonl`."""


PEOPLE, MODEL = "qrels.rag25.test.txt", "qrels.rag25.test-umbrela2.txt"
"""The files of grades."""


@dataclass(slots=True)
class Sets:
    """The entries of the files of a folder, and why a file was not read, or not to its end."""

    items: dict[str, list[Any]] = field(default_factory=dict)
    grades: Grades | None = None
    """The grades of passages by people and by a model."""
    remarks: list[str] = field(default_factory=list)

    def table(self) -> Table:
        """Returns how many entries of each file were read."""
        return Table(
            "real-sets", "What was read", ("file", "entries"),
            (*((name, len(items)) for name, items in self.items.items()),
             ("qrels.rag25.test", 0 if self.grades is None else len(self.grades.people))),
            notes=tuple(self.remarks),
        )  # fmt: skip


def read_sets(folder: Path) -> Sets:
    """Reads every file that there is; of one that is broken, the entries before the broken one. Raises InvalidInput if
    the folder has none of them."""
    found = Sets()
    for name, read in READERS.items():
        path = folder / f"{name}.jsonl"
        if not path.is_file():
            found.items[name] = []
            found.remarks.append(f"{path.name} is not there.")
            continue
        items, broken = _until_broken(read(path))
        found.items[name] = items
        if broken is not None:
            found.remarks.append(f"{path.name} was read up to entry {len(items)}: {broken}.")
    people, model = folder / PEOPLE, folder / MODEL
    if people.is_file() and model.is_file():
        try:
            found.grades = read_grades(people, model)
        except RagguardError as error:
            found.remarks.append(f"{PEOPLE} was not read: {error}.")
    else:
        found.remarks.append(f"{PEOPLE} and {MODEL} are not both there.")
    if not any(found.items.values()) and found.grades is None:
        files = ", ".join(f"{name}.jsonl" for name in READERS)
        raise InvalidInput("--data", str(folder), f"a folder with one of {files}")
    return found


def _until_broken(entries: Iterable[T]) -> tuple[list[T], RagguardError | None]:
    items: list[T] = []
    try:
        items.extend(entries)  # what came before an error stays
    except RagguardError as error:
        return items, error
    return items, None
