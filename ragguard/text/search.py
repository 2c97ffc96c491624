"""Reads a folder of texts, splits them into passages, and searches these by BM25, without an index on the disk."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import unescape
from itertools import islice
from pathlib import Path

import numpy as np

from ragguard.errors import InvalidInput, install_line
from ragguard.records import Passage
from ragguard.text.language import COMMON
from ragguard.text.secret_filter import logger

KINDS = (".md", ".txt", ".rst", ".html", ".py", ".pdf")
LONGEST_FILE = 2_000_000
"""The most bytes of a text file that is read."""
LONGEST_PDF = 50_000_000
RESULTS = "ragguard.db"
"""The file by which a folder of results is known; its page is no text of the user's."""
MOST_FILES = 2_000
WORDS = 120
"""The most words of a passage."""
_LONGEST_WORD = 200
"""The longest word of a text; longer ones are of a script without spaces, or no words."""
_CUT = 600
"""The characters of a passage of such a text."""
_NAMED = 3
"""The most files that a remark names."""
_HIDDEN = re.compile(r"<!--.*?-->|<(script|style)\b.*?</\1\s*>", re.DOTALL | re.IGNORECASE)
_BLOCK = re.compile(r"<(p|div|li|h[1-3]|tr|section)\b[^>]*>", re.IGNORECASE)
_TAG = re.compile(r"</?[a-z!][^>]*>", re.IGNORECASE)
_BLANK_LINES = re.compile(r"\n[^\S\n]*\n\s*")
_IDEOGRAPHS = "\u3040-\u30ff\u4e00-\u9fff"
_WORD = re.compile(rf"[{_IDEOGRAPHS}]|[^\W{_IDEOGRAPHS}]+")


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
    """Reads the texts of a folder and of those below it; raises InvalidInput where there is none.

    Hidden files and folders are passed over. A file that is no UTF-8 text or too long is noted with the reason.
    """
    if not folder.is_dir():
        raise InvalidInput("FOLDER", str(folder), "a folder that is there")
    found = Texts()
    for path in _files(folder):
        name = path.relative_to(folder).as_posix()
        try:
            if found.files == MOST_FILES:
                raise _NotRead(f"as only {MOST_FILES:,} texts are (name a folder below)")
            text = _text_of(path)
        except _NotRead as reason:
            found.skipped.setdefault(str(reason), []).append(name)
            continue
        found.files += 1
        found.passages += [Passage(part, f"{name}#{number}") for number, part in enumerate(split(text), 1)]
    if not found.passages:
        why = "".join(f"; {remark}" for remark in found.remarks)
        raise InvalidInput("FOLDER", str(folder), f"a folder with texts ({', '.join(KINDS)}){why}")
    return found


def split(text: str) -> list[str]:
    """Joins neighbouring paragraphs into passages of at most 120 words, and cuts longer paragraphs."""
    parts: list[str] = []
    held: list[str] = []
    for paragraph in filter(None, map(str.strip, _BLANK_LINES.split(text))):
        words = paragraph.split()
        if held and sum(len(one.split()) for one in held) + len(words) > WORDS:
            parts.append("\n".join(held))
            held = []
        if max(map(len, words)) > _LONGEST_WORD:
            parts += [paragraph[at : at + _CUT] for at in range(0, len(paragraph), _CUT)]
        elif len(words) > WORDS:
            parts += [" ".join(words[at : at + WORDS]) for at in range(0, len(words), WORDS)]
        else:
            held.append(paragraph)
    return [*parts, "\n".join(held)] if held else parts


def content_words(text: str) -> list[str]:
    """Returns the words of a text in their order, without the most common ones of English."""
    return [word for word in _WORD.findall(text) if word.lower() not in COMMON]


class Index:
    """BM25 over texts, given as their words, with the usual k1 = 1.2 and b = 0.75."""

    def __init__(self, texts: Iterable[Sequence[str]]) -> None:
        counts = [Counter(words) for words in texts]
        self.size = len(counts)
        lengths = np.array([sum(count.values()) for count in counts], dtype=np.float64)
        spread = 1.2 * (0.25 + 0.75 * lengths / (lengths.sum() / max(1, self.size) or 1.0))
        found: dict[str, list[tuple[int, int]]] = {}
        for number, count in enumerate(counts):
            for word, times in count.items():
                found.setdefault(word, []).append((number, times))
        self._places = {word: np.array(places).T for word, places in found.items()}
        self._weights = {
            word: self.rarity(word) * times * 2.2 / (times + spread[numbers])
            for word, (numbers, times) in self._places.items()
        }

    def rarity(self, word: str) -> float:
        """Returns the inverse document frequency of a word."""
        among = self._places[word].shape[1] if word in self._places else 0
        return math.log(1 + (self.size - among + 0.5) / (among + 0.5))

    def best(self, words: Iterable[str]) -> Iterator[tuple[int, float]]:
        """Returns the numbers and scores of the texts that hold one of the words, the best first; of equal ones the
        lower number first."""
        scores = np.zeros(self.size)
        for word in words:
            if word in self._places:
                scores[self._places[word][0]] += self._weights[word]
        order = np.argsort(-scores, kind="stable")
        return ((int(number), float(scores[number])) for number in order if scores[number] > 0)


class Search:
    """Searches passages by their words, without the most common ones of English."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self._passages = passages
        self._index = Index([word.lower() for word in content_words(one.text)] for one in passages)
        self.rarity = self._index.rarity

    def __call__(self, words: Iterable[str], most: int, without: Collection[Passage] = ()) -> list[Passage]:
        """Returns the best passages that hold one of the words, the best first."""
        asked = dict.fromkeys(word.lower() for word in words)
        taken = {one.id for one in without}
        best = (self._passages[number] for number, _ in self._index.best(asked))
        return list(islice((one for one in best if one.id not in taken), most))


def left_open(question: str, found: Sequence[Passage], search: Search) -> list[str]:
    """Returns what a second search asks for: the words of the question that no passage has, and new names.

    A name is a word of the best passage that begins with a capital; the three rarest ones that the question lacks
    count. Without either, all words of the question.
    """
    asked = content_words(question)
    known = {word.lower() for one in found for word in content_words(one.text)}
    open_words = [word for word in asked if word.lower() not in known]
    best = content_words(found[0].text) if found else []
    names = {word for word in best if word[0].isupper() and word.lower() not in map(str.lower, asked)}
    rarest = sorted(names, key=lambda word: (-search.rarity(word.lower()), word))
    return [*(open_words or asked), *rarest[:3]]


class _NotRead(Exception):
    """The reason for which a file is not read."""


def _text_of(path: Path) -> str:
    """Returns the text of a file; raises _NotRead with the reason."""
    kind = path.suffix.lower()
    most = LONGEST_PDF if kind == ".pdf" else LONGEST_FILE
    try:
        if path.stat().st_size > most:
            raise _NotRead(f"over {most // 1_000_000} MB (split it)")
        text = _pdf(path) if kind == ".pdf" else path.read_text(encoding="utf-8")
    except OSError as error:
        raise _NotRead(error.strerror or type(error).__name__) from None
    except UnicodeDecodeError:
        raise _NotRead("no UTF-8 text") from None
    if "\0" in text:
        raise _NotRead("binary")
    return unescape(_TAG.sub("", _BLOCK.sub("\n\n", _HIDDEN.sub("", text)))) if kind == ".html" else text


def _pdf(path: Path) -> str:
    """Returns the text of a PDF, page by page; raises _NotRead where there is none."""
    try:
        from pypdf import PdfReader
    except ImportError:
        raise _NotRead(f"PDF ({install_line('pdf')} reads them)") from None
    logger("pypdf").setLevel("CRITICAL")  # what it finds odd in a file that it can read
    try:
        text = "\n\n".join(page.extract_text() for page in PdfReader(path).pages)
    except Exception:  # noqa: BLE001 - a damaged or encrypted file raises anything
        raise _NotRead("PDF that is damaged or encrypted") from None
    if not text.strip():
        raise _NotRead("PDF without text, as of a scan (recognise its text first)")
    return text.replace("\0", "")


def _files(folder: Path) -> Iterator[Path]:
    """Yields the files to read, in the order of their names, those of a folder before those below it."""
    for root, folders, names in os.walk(folder):
        # Of an earlier call are those with its results.
        seen = (one for one in sorted(folders) if not Path(root, one, RESULTS).exists())
        folders[:] = [one for one in seen if not one.startswith((".", "_"))]
        for path in (Path(root, name) for name in sorted(names) if not name.startswith(".")):
            if path.suffix.lower() in KINDS and path.is_file() and not path.is_symlink():
                yield path
