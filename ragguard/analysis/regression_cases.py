"""Regression cases: questions of stored runs, against which later versions of a pipeline are checked.

case = case_of(view, corpus)            # of a failed run: what it must find, what it must not read, the right answers
result = check_case(case, later_run)    # passed, failed with reasons, or stale

A case is judged by words and passages, without a model; if the later run has `answer_correct`, that counts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from ragguard.errors import InvalidInput
from ragguard.facts.documents import document_of
from ragguard.facts.run_view import RunView
from ragguard.records import Passage, Run, Score
from ragguard.storage.files.jsonl import Fields, json_lines, text_file
from ragguard.text.language import normalise
from ragguard.text.statements.phrases import findable, mentions
from ragguard.text.statements.verdict import right_by_words

FORMAT = "ragguard.case/1"
PASSED, FAILED, STALE, NOT_ASKED = "passed", "failed", "stale", "not asked"
GOLD = 4
"""The least grade of a passage of a pool that a run must find."""


@dataclass(frozen=True, slots=True)
class CasePassage:
    """A passage that a case is about: its id and its text, since either may change."""

    text: str
    id: str = ""
    document: str = ""

    @classmethod
    def of(cls, passage: Passage) -> CasePassage:
        """Returns what a case keeps of a passage."""
        return cls(passage.text, passage.id, document_of(passage))

    @property
    def name(self) -> str:
        """The name of the passage in sentences."""
        return self.document or self.id or f"the passage {' '.join(self.text.split())[:40]!r}"

    def is_in(self, passages: Iterable[Passage]) -> bool:
        """True if one of the passages has its text, whatever its id."""
        return any(normalise(passage.text) == normalise(self.text) for passage in passages)

    def is_changed_in(self, passages: Sequence[Passage]) -> bool:
        """True if passages have its id, and none its text."""
        return bool(self.id) and any(one.id == self.id for one in passages) and not self.is_in(passages)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegressionCase:
    """A question to which later versions are held."""

    id: str
    question: str
    references: list[str] = field(default_factory=list)
    """The right answers; without them only passages are checked."""
    must_find: list[CasePassage] = field(default_factory=list)
    """The passages of which the model must get one, or another that states a reference."""
    find_all: bool = False
    """True if the model must read each of the passages that were graded as needed."""
    must_not_read: list[CasePassage] = field(default_factory=list)
    """The passages that misled the run, and that the model must not get."""
    cause: str = ""
    """The cause of the run that the case is made of: a word of `facts.causes.CAUSES`."""
    answer: str = ""
    """The answer of that run."""
    run: str = ""
    made_at: str = ""
    corpus: str = ""
    """The fingerprint of the passages that the runs of its store saw when the case was made."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """A case, and what a later version made of it."""

    case: RegressionCase
    status: str
    """`passed`, `failed`, `stale` or `not asked`."""
    reasons: tuple[str, ...] = ()

    def __str__(self) -> str:
        said = f": {'; '.join(self.reasons)}" if self.reasons else ""
        return f"{self.status.upper() if self.status != PASSED else PASSED}: {self.case.question}{said}"


def case_of(view: RunView, cause: str, corpus: str = "") -> RegressionCase:
    """Returns the case that a run becomes; raises InvalidInput for one that nothing could be held to.

    Args:
        view: The run with its scores.
        cause: What it counts as.
        corpus: The fingerprint of the passages of its store.
    """
    run, found = view.run, view.explanation
    references = list(run.references or ())
    phrases = findable(references)
    stating: dict[str, CasePassage] = {}
    misleading: dict[str, CasePassage] = {}
    for hop in view.hops:
        for one in hop.passages:
            kept = CasePassage.of(one.passage)
            if (hop.number, one.rank) in found.sources:
                misleading[kept.text] = kept
            elif (hop.number, one.rank) in found.stating or mentions(kept.text, phrases):
                stating[kept.text] = kept
    graded = {one.text: CasePassage.of(one) for one in run.pool or () if (one.grade or 0) >= GOLD}
    stating = graded or stating
    if not (references or stating or misleading):
        allowed = "a run with references, or one that a passage misled: without them nothing can be checked"
        raise InvalidInput(f"run {run.id}", run.question, allowed)
    digest = sha256(json.dumps([run.question, references, sorted(stating), sorted(misleading)]).encode())
    return RegressionCase(
        id=digest.hexdigest()[:12], question=run.question, references=references,
        must_find=[*stating.values()], find_all=bool(graded), must_not_read=[*misleading.values()],
        cause=cause, answer=run.answer or "",
        run=run.id, made_at=datetime.now(UTC).isoformat(timespec="seconds"), corpus=corpus,
    )  # fmt: skip


def retrieved(run: Run, document: str) -> bool:
    """True if the run retrieved a passage with this id, or of this document."""
    return any(document in (passage.id, document_of(passage)) for passage in _passages_of(run))


def _passages_of(run: Run) -> list[Passage]:
    """Returns the passages that the steps of a run found, those that were kept included."""
    return [passage for step in run.steps for passage in (*step.candidates, *step.passages)]


def check_case(
    case: RegressionCase,
    run: Run,
    scores: Iterable[Score] = (),
    *,
    seen: Sequence[Passage] = (),
    corpus: CorpusTexts | None = None,
) -> CaseResult:
    """Returns whether a later run keeps to a case.

    Args:
        case: The case.
        run: The later run.
        scores: Its scores, of which `answer_correct` counts; without it the words of its answer do.
        seen: The passages that other runs of the later version saw: one with the id of a passage of the case and
            another text shows that the passage was changed.
        corpus: The texts that can be retrieved now; without it nobody can tell whether a passage is gone.
    """
    read = [passage for step in run.steps for passage in step.passages]
    candidates = _passages_of(run)
    known = [*candidates, *seen]
    gone = []
    passages = [*case.must_find, *case.must_not_read]
    for passage in passages:
        if passage.is_changed_in(known):
            gone.append(f"{passage.name} has another text now")
        elif corpus is not None and not corpus.has(passage.text):
            gone.append(f"{passage.name} is not in the corpus any more")
    if gone and (case.find_all or len(gone) == len(passages)):
        return CaseResult(case, STALE, tuple(gone))
    reasons = [
        f"{passage.name} was read, which misled it" for passage in case.must_not_read if passage.is_in(read)
    ]
    reasons += _about_passages(case, read, candidates)
    reasons += _about_answer(case, run, scores)
    return CaseResult(case, FAILED if reasons else PASSED, tuple(reasons))


def _about_passages(
    case: RegressionCase, read: Sequence[Passage], candidates: Sequence[Passage]
) -> Iterator[str]:
    """Yields what the model did not get of the passages that it must get."""
    missing = [passage for passage in case.must_find if not passage.is_in(read)]
    phrases = findable(case.references)
    enough = len(missing) < len(case.must_find) or any(mentions(passage.text, phrases) for passage in read)
    if missing and (case.find_all or not enough):
        for passage in missing:
            yield f"{passage.name} was {'found and not read' if passage.is_in(candidates) else 'not found'}"


def _about_answer(case: RegressionCase, run: Run, scores: Iterable[Score]) -> Iterator[str]:
    if not case.references:
        return
    if not run.answer:
        yield "it has no answer"
        return
    labels = [score.label for score in scores if score.name == "answer_correct" and score.label]
    if labels:
        right: bool | None = labels[-1].startswith("correct")
    else:
        right = right_by_words(run.answer, case.references, case.question)
    if right is False:
        yield f"it answered {_brief(run.answer)}, not {_brief(case.references[0])}"


def _brief(text: str) -> str:
    text = " ".join(text.split())
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


class CorpusTexts:
    """The texts that can be retrieved: those of a folder of files, or of one file."""

    def __init__(self, path: str | Path) -> None:
        files = sorted(Path(path).rglob("*")) if Path(path).is_dir() else [Path(path)]
        self._texts = [_squeezed(text) for file in files if file.is_file() for text in _texts_in(file)]
        if not self._texts:
            raise InvalidInput(
                "--corpus", str(path), "a folder of text files, or a file of JSON lines with texts"
            )

    def has(self, text: str) -> bool:
        """True if a text of the corpus holds this one, whatever its spaces."""
        wanted = _squeezed(text)
        return any(wanted in held for held in self._texts)


def _texts_in(file: Path) -> Iterator[str]:
    if file.name.endswith((".jsonl", ".jsonl.gz")):
        for line in json_lines(file):
            yield "\n".join(str(value) for value in line.data.values() if isinstance(value, str))
    else:
        yield file.read_text(encoding="utf-8", errors="replace")


def _squeezed(text: str) -> str:
    return " ".join(text.split()).casefold()


def check_cases(
    cases: Sequence[RegressionCase],
    runs: Iterable[tuple[Run, Sequence[Score]]],
    corpus: CorpusTexts | None = None,
) -> list[CaseResult]:
    """Returns how later runs keep to cases, by their questions; of several runs of one question the last counts."""
    asked = {normalise(case.question) for case in cases}
    ids = {one.id for case in cases for one in (*case.must_find, *case.must_not_read) if one.id}
    latest: dict[str, tuple[Run, Sequence[Score]]] = {}
    seen: dict[tuple[str, str], Passage] = {}
    for run, scores in runs:
        for passage in _passages_of(run):
            if passage.id in ids:
                seen[passage.id, passage.text] = passage
        if (question := normalise(run.question)) in asked:
            latest[question] = run, scores
    results = []
    for case in cases:
        later = latest.get(normalise(case.question))
        if later is None:
            results.append(CaseResult(case, NOT_ASKED, ("no run has this question",)))
        else:
            results.append(check_case(case, *later, seen=[*seen.values()], corpus=corpus))
    return results


def case_lines(results: Sequence[CaseResult]) -> list[str]:
    """Returns the results in words: how many there are of each, then those that did not pass, what failed first."""
    order = [FAILED, NOT_ASKED, STALE, PASSED]
    ranked = sorted(results, key=lambda one: order.index(one.status))
    counts = Counter(one.status for one in ranked)
    said = ", ".join(f"{count} {status}" for status, count in counts.items())
    return [f"Regression cases: {said}.", *(str(one) for one in ranked if one.status != PASSED)]


def write_cases(cases: Iterable[RegressionCase], path: str | Path) -> int:
    """Adds cases to a file of JSON lines; one that is there already is replaced. Returns how many the file has."""
    known = {case.id: case for case in read_cases(path)} if Path(path).exists() else {}
    known |= {case.id: case for case in cases}
    with text_file(path) as file:
        for case in known.values():
            file.write(json.dumps({"format": FORMAT} | asdict(case)) + "\n")
    return len(known)


def read_cases(path: str | Path) -> list[RegressionCase]:
    """Returns the cases of a file; raises InvalidInput for the first line that is none."""
    cases = []
    for line in json_lines(path):
        if line.data.get("format") != FORMAT:
            raise line.wrong("format", line.data.get("format"), f"{FORMAT!r}, as `ragguard cases` writes it")
        texts = {
            name: line.text(name, default="") for name in ("cause", "answer", "run", "made_at", "corpus")
        }
        cases.append(RegressionCase(
            id=line.text("id"), question=line.text("question"), references=[*line.texts("references")],
            must_find=_passages(line, "must_find"), must_not_read=_passages(line, "must_not_read"),
            find_all=line.data.get("find_all") is True, **texts,
        ))  # fmt: skip
    return cases


def _passages(line: Fields, name: str) -> list[CasePassage]:
    items: Any = line.data.get(name) or []
    try:
        return [
            CasePassage(str(one["text"]), str(one.get("id", "")), str(one.get("document", "")))
            for one in items
        ]
    except (TypeError, LookupError, AttributeError) as error:
        raise line.wrong(name, items, 'a list of {"text": …, "id": …, "document": …}') from error
