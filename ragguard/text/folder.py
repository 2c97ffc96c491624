"""Reads the texts of a folder as passages, and notes the reason for each file that is not read."""

from __future__ import annotations

import csv
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import unescape
from io import BytesIO, StringIO
from pathlib import Path
from time import monotonic

from ragguard.errors import InvalidInput, install_line
from ragguard.records import Passage
from ragguard.text.chunks import HEADING, split
from ragguard.text.secret_filter import logger

KINDS = (".md", ".txt", ".rst", ".html", ".py", ".csv", ".tsv", ".pdf")
LONGEST_FILE = 2_000_000
"""The most bytes of a text file that is read."""
LONGEST_PDF = 50_000_000
PDF_SECONDS = 20.0
"""The time after which a PDF is given up."""
RESULTS = "ragguard.db"
"""The file by which a folder of results is known; its page is no text of the user's."""
MOST_FILES = 2_000
_NAMED = 3
"""The most files that a remark names."""
_HIDDEN = re.compile(r"<!--|<(script|style)\b", re.IGNORECASE)
_ENDS = {tag: re.compile(rf"</{tag}[^<>]*>", re.IGNORECASE) for tag in ("script", "style")}
_HEADING = re.compile(r"<h([1-6])\b[^<>]*>", re.IGNORECASE)
_CELL = re.compile(r"</t[dh]\s{0,9}>", re.IGNORECASE)
_ROW = re.compile(r"<tr\b[^<>]*>", re.IGNORECASE)
_ITEM = re.compile(r"<li\b[^<>]*>", re.IGNORECASE)
_BLOCK = re.compile(
    r"</?(?:p|div|h[1-6]|section|table|ul|ol|br|pre|blockquote|dt|dd)\b[^<>]*>", re.IGNORECASE
)
_TAG = re.compile(r"</?[a-z!][^<>]*>", re.IGNORECASE)


@dataclass(slots=True)
class Texts:
    """The passages of a folder, and what was not read."""

    passages: list[Passage] = field(default_factory=list)
    files: int = 0
    skipped: dict[str, list[str]] = field(default_factory=dict)
    """The files that were not read, by the reason."""

    @property
    def remarks(self) -> list[str]:
        """Sentences on the files that were not read: the reason, and the names of the first ones."""
        return [
            f"{len(names):,} not read, {reason}: {', '.join(names[:_NAMED])}{', …' if len(names) > _NAMED else ''}"
            for reason, names in self.skipped.items()
        ]


def read_folder(folder: Path) -> Texts:
    """Reads the texts of a folder and of those below it; raises InvalidInput if there is none.

    Hidden files and folders are passed over. A file of another kind, that is no UTF-8 text or too long is noted with
    the reason.
    """
    if not folder.is_dir():
        raise InvalidInput("FOLDER", str(folder), "a folder that exists")
    texts = Texts()
    for path in _files(folder):
        name = path.relative_to(folder).as_posix()
        try:
            if texts.files == MOST_FILES and path.suffix.lower() in KINDS:
                raise _NotRead(f"as only {MOST_FILES:,} texts are (name a folder below)")
            text = _text_of(path)
        except _NotRead as reason:
            texts.skipped.setdefault(str(reason), []).append(name)
            continue
        texts.files += 1
        texts.passages += [
            Passage(
                chunk.text, f"{name}#{number}", metadata={HEADING: chunk.heading} if chunk.heading else {}
            )
            for number, chunk in enumerate(split(text, path.suffix.lower()), 1)
        ]
    if not texts.passages:
        why = "".join(f"; {remark}" for remark in texts.remarks)
        raise InvalidInput("FOLDER", str(folder), f"a folder with texts ({', '.join(KINDS)}){why}")
    return texts


def read_bytes(path: Path, most: int) -> bytes:
    """Returns the bytes of a regular file; raises OSError for a pipe or a device, which may never end, and for a file
    of more bytes than `most`."""
    # Without O_NONBLOCK, opening a pipe waits for its writer.
    with os.fdopen(
        os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)), "rb"
    ) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(None, "no regular file", str(path))
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(None, f"over {most // 1_000_000} MB (split it)", str(path))
    return data


class _NotRead(Exception):
    """The reason for which a file is not read."""


def _text_of(path: Path) -> str:
    """Returns the text of a file; raises _NotRead with the reason."""
    kind = path.suffix.lower()
    if kind not in KINDS:
        raise _NotRead("of another kind")
    try:
        data = read_bytes(path, LONGEST_PDF if kind == ".pdf" else LONGEST_FILE)
        text = _pdf(data) if kind == ".pdf" else data.decode("utf-8")
    except OSError as error:
        raise _NotRead(error.strerror or type(error).__name__) from None
    except UnicodeDecodeError:
        raise _NotRead("no UTF-8 text") from None
    if "\0" in text:
        raise _NotRead("binary")
    if kind in (".csv", ".tsv"):
        return _table(text, "\t" if kind == ".tsv" else "")
    return _html(text) if kind == ".html" else text


def _table(text: str, delimiter: str) -> str:
    """Returns a table of cells as Markdown has it, its first row the names of the columns; raises _NotRead if a row is
    damaged."""
    first = text.partition("\n")[0]
    delimiter = delimiter or max(",;\t|", key=first.count)
    try:
        rows = [row for row in csv.reader(StringIO(text), delimiter=delimiter) if any(map(str.strip, row))]
    except csv.Error as error:
        raise _NotRead(f"damaged table ({error})") from None
    return "\n".join(
        f"| {' | '.join(' '.join(cell.replace('|', '/').split()) for cell in row)} |" for row in rows
    )


def _html(text: str) -> str:
    """Returns what a browser shows of a page, with headings, items and rows as Markdown has them."""
    text = " ".join("".join(_visible(text)).split())
    text = _HEADING.sub(lambda match: f"\n\n{'#' * int(match[1])} ", text)
    text = _ITEM.sub("\n- ", _CELL.sub(" | ", _ROW.sub("\n| ", text)))
    return unescape(_TAG.sub("", _BLOCK.sub("\n\n", text)))


def _visible(text: str) -> Iterator[str]:
    """Yields the parts of a page outside comments, scripts and styles; one that is not closed hides all behind it."""
    at = 0
    while hidden := _HIDDEN.search(text, at):
        yield text[at : hidden.start()]
        if hidden[1]:
            end = _ENDS[hidden[1].lower()].search(text, hidden.end())
            at = end.end() if end else len(text)
        else:
            place = text.find("-->", hidden.end())
            at = place + 3 if place >= 0 else len(text)
    yield text[at:]


def _pdf(data: bytes) -> str:
    """Returns the text of a PDF, page by page; raises _NotRead if there is none."""
    try:
        from pypdf import PdfReader
    except ImportError:
        raise _NotRead(f"PDF ({install_line('pdf')} reads them)") from None

    logger("pypdf").setLevel("CRITICAL")  # what it finds odd in a file that it can read
    deadline = monotonic() + PDF_SECONDS

    def check(*_: object) -> None:
        if monotonic() > deadline:
            raise _NotRead(f"PDF that takes over {PDF_SECONDS:.0f} s")

    pages: list[str] = []
    try:
        for page in PdfReader(BytesIO(data)).pages:
            check()
            drawn = page.get_contents()
            if drawn is not None and len(drawn.get_data()) > LONGEST_FILE:
                raise _NotRead(f"PDF with a page of over {LONGEST_FILE // 1_000_000} MB")
            pages.append(page.extract_text(visitor_operand_before=check))
    except _NotRead:
        raise
    except Exception:  # noqa: BLE001 - a damaged or encrypted file raises anything
        raise _NotRead("PDF that is damaged or encrypted") from None
    text = "\n\n".join(pages)
    if not text.strip():
        raise _NotRead("PDF without text, as of a scan (recognise its text first)")
    return text.replace("\0", "")


def _files(folder: Path) -> Iterator[Path]:
    """Yields the files to read, in the order of their names, those of a folder before those below it."""
    for root, folders, names in os.walk(folder):
        # Of an earlier call are those with its results.
        shown = (name for name in sorted(folders) if not Path(root, name, RESULTS).exists())
        folders[:] = [name for name in shown if not name.startswith((".", "_"))]
        for path in (Path(root, name) for name in sorted(names) if not name.startswith(".")):
            if path.is_file() and not path.is_symlink():
                yield path
