"""Scores about coverage, from ratings of texts by sub-question.

They tell which sub-questions the passages answer, what each step adds, and what the answer covers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ragguard.engines.prompts import PromptSet
from ragguard.errors import CapExceeded, RagguardError, ScoringError
from ragguard.metrics import subquestions as measures
from ragguard.records import Result, Stage, Usage
from ragguard.runtime.arguments import LARGEST, number_between, share
from ragguard.scorers.probes import Reading, answerability, likeliest, read_rating, read_sub_questions
from ragguard.scorers.question import Ask, answered, count_tokens
from ragguard.scorers.scorer import ScoreWriter, of_list
from ragguard.scorers.view import View, read_texts, retrieved_texts
from ragguard.text.statements.abstention import is_abstention


@dataclass(slots=True)
class Ratings:
    """Holds, for each text, one rating or error for each sub-question."""

    sub_questions: tuple[str, ...]
    rows: dict[str, list[Reading | RagguardError]] = field(default_factory=dict)

    async def learn(self, texts: Iterable[str], prompts: PromptSet, ask: Ask) -> None:
        """Asks for the ratings of the texts, all at once."""
        cells = [
            (text, sub)
            for text in dict.fromkeys(texts)
            if text not in self.rows
            for sub in self.sub_questions
        ]
        questions = [answerability(prompts, sub, text) for text, sub in cells]
        for (text, _), question, answer in zip(cells, questions, await ask(questions), strict=True):
            rating: Reading | RagguardError
            try:
                # Its cost is left out, since several scores rest on it.
                rating = replace(read_rating(question, answered(answer)), usage=Usage())
            except RagguardError as error:
                rating = error
            self.rows.setdefault(text, []).append(rating)

    def table(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Returns the most probable ratings, (texts, sub-questions); raises the error of one that is missing."""
        values = [[answered(cell).value for cell in self.rows[text]] for text in texts]
        return np.array(values, dtype=np.float64).reshape(len(texts), len(self.sub_questions))

    def answered_by(self, text: str, eta: float) -> set[int]:
        """Returns the numbers of the sub-questions that a text answers, with a rating of at least `eta`."""
        cells = enumerate(self.rows[text])
        return {number for number, cell in cells if isinstance(cell, Reading) and cell.value >= eta}

    def stderr(self, texts: Iterable[str]) -> float | None:
        """Returns 0 where no rating of the texts was estimated: what thresholds give has no error then; else None."""
        cells = (cell for text in texts for cell in self.rows[text])
        return 0.0 if all(isinstance(cell, Reading) and cell.stderr == 0.0 for cell in cells) else None


ORACLE_GRADE = 3
"""The least grade of passages of a given pool that make up the oracle; passages without a grade do, too."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """Gives `answerability`, `redundancy`, `coverage`, `delta_coverage`, `delta_coverage_selection`, `coverage_total`,
    `alpha_ndcg`, `alpha_ndcg_total`, `density`, `answer_coverage` and `answer_density`."""

    name: ClassVar[str] = "coverage"
    version: ClassVar[str] = "2"
    models: ClassVar[tuple[str, ...]] = ("judge",)
    live = "so far"

    eta: float = 3
    """The least rating, from 0 to 5, with which a passage counts as answering a sub-question."""
    alpha: float = 0.5
    """How much a sub-question loses in alpha-nDCG each time that it is answered again, from 0 to 1."""
    w: float = 0.5
    """The power to which coverage per token, divided by that of the oracle, is raised for density; 0 or more."""

    def __post_init__(self) -> None:
        number_between("Coverage.eta", self.eta, 0, 5, "a number from 0 to 5")
        share("Coverage.alpha", self.alpha)
        number_between("Coverage.w", self.w, 0, LARGEST, "a finite number, 0 or more")

    async def score(self, view: View, ask: Ask) -> Sequence[Result]:
        writer = ScoreWriter(view, self)
        writer.left_out()
        answer = (view.run.answer or "").strip()
        if not view.steps_with_empty and not answer:
            return writer.results()
        try:
            asked = await find_sub_questions(view, ask)
        except RagguardError as error:
            writer.fail(error, "coverage")
            return writer.results()
        most = view.setting.caps.sub_questions
        if len(asked) > most:
            message = f"at most {most} sub-questions of a run are rated; raise Caps(sub_questions=...)"
            writer.fail(CapExceeded(message), f"{len(asked) - most} of {len(asked)} sub-questions")
        good = [p.text for p in view.run.pool or () if p.grade is None or p.grade >= ORACLE_GRADE]
        oracle = good[: view.setting.caps.passages]
        says_nothing = is_abstention(answer, view.setting.language)
        texts = retrieved_texts(view.steps)
        answers = [] if says_nothing else [answer]
        ratings = Ratings(asked[:most])
        await ratings.learn([*texts, *oracle, *answers], view.setting.judge_prompts, ask)
        report = _CoverageReport(self, writer, ratings, oracle)
        report.passages()
        report.steps("passages")
        report.steps("candidates")
        report.selections()
        report.run()
        if view.run.answer is not None:
            report.answer("" if says_nothing else answer)
        return writer.results()


async def find_sub_questions(view: View, ask: Ask) -> tuple[str, ...]:
    """Returns the run's sub-questions, given or made from its question."""
    if given := given_sub_questions(view):
        return given
    if not view.run.question.strip():
        raise ScoringError("sub-questions are made from the run's question, and this run has none")
    asked = likeliest(view.setting.judge_prompts, "sub_questions", view.seed, question=view.run.question)
    return tuple(read_sub_questions(answered((await ask([asked]))[0])))


def given_sub_questions(view: View) -> tuple[str, ...]:
    """Returns the sub-questions that the run has, without blanks and repetitions."""
    given = (text.strip() for text in view.run.sub_questions or ())
    return tuple(dict.fromkeys(text for text in given if text))


@dataclass(slots=True)
class _CoverageReport:
    """Adds the scores that follow from the ratings."""

    settings: Coverage
    writer: ScoreWriter
    ratings: Ratings
    oracle: list[str]
    """The good passages of a pool given with the run, within the cap on passages."""
    answerable: NDArray[np.bool_] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        # Only an oracle may take sub-questions out: by the run's own passages, coverage would be 1 by construction.
        if not self.oracle:
            return
        with self.writer.failing("which sub-questions the pool answers"):
            rated = self.ratings.table(self.oracle)
            self.answerable = measures.answerable_questions(rated, self.settings.eta)
            if not self.answerable.any():
                error = ScoringError("no passage of the run's pool answers any of its sub-questions")
                self.writer.fail(error, "coverage")

    def add(self, name: str, value: float | Reading, texts: Iterable[str] = (), **more: Any) -> None:
        """Adds one score that follows from the ratings of `texts`."""
        asked = given_sub_questions(self.writer.view)
        error: dict[str, Any] = {} if isinstance(value, Reading) else {"stderr": self.ratings.stderr(texts)}
        self.writer.add(name, value, who="judge", references=asked, **error, **more)

    def passages(self) -> None:
        """Adds `answerability` of every passage, and `redundancy` of those that the model got, unless a rating is
        missing."""
        sub_questions, rows = self.ratings.sub_questions, self.ratings.rows
        for step in self.writer.view.steps:
            for at in sorted(step.judged):
                rated = zip(sub_questions, rows[step.all[at].text], strict=True)
                for number, (sub, cell) in enumerate(rated):
                    what = f"answerability of passage {at + 1} for the sub-question “{sub}”"
                    with self.writer.failing(what, step):
                        about: dict[str, Any] = {"sub_question": number, "explanation": sub}
                        self.add("answerability", answered(cell), step=step, at=at, **about)
        delivered = [(step, at) for step in self.writer.view.steps for at in step.got if at in step.judged]
        texts = [step.all[at].text for step, at in delivered]
        if not texts or any(isinstance(cell, RagguardError) for text in texts for cell in rows[text]):
            return
        table = self.ratings.table(texts)
        required = set(measures.required_subset(table, self.settings.eta).required.tolist())
        shares = measures.redundancy(table, self.settings.eta).tolist()
        for index, ((step, at), value) in enumerate(zip(delivered, shares, strict=True)):
            label = "required" if index in required else "repeats"
            self.add("redundancy", value, texts[: index + 1], step=step, at=at, label=label)

    def steps(self, stage: Stage) -> None:
        """Adds `coverage` so far, `delta_coverage` and `alpha_ndcg` of each step, and of its candidates where some
        were dropped or changed; also for a step of which the model got nothing."""
        so_far: list[str] = []
        before = 0.0
        for step in self.writer.view.steps_with_empty:
            listed, k = step.listed(stage), step.judged_places(stage)
            texts, earlier = step.texts(listed), list(dict.fromkeys(so_far))
            so_far += texts
            covered: float | RagguardError
            try:
                covered = self._covered(so_far)
            except RagguardError as error:
                covered = error
            if bool(texts or not step.got) if stage == "passages" else step.changed:
                facts = {"kept": len(texts), "not_judged": len(listed) - len(texts)}
                facts |= {"k": k} if step.places else {}
                about = {**of_list(step, stage), "metadata": facts}
                with self.writer.failing(f"coverage ({stage})", step):
                    self.add("coverage", answered(covered), so_far, **about)
                    self.add("delta_coverage", answered(covered) - before, so_far, **about)
                    retrieved = retrieved_texts([step])
                    # An error may be about a passage of the ideal ranking alone.
                    with self.writer.failing(f"alpha_ndcg ({stage})", step):
                        ranked = self._alpha_ndcg(texts, retrieved, k, earlier)
                        self.add("alpha_ndcg", ranked, [*earlier, *texts, *retrieved], **about)
            before = before if isinstance(covered, RagguardError) else covered

    def selections(self) -> None:
        """Adds `delta_coverage_selection`: coverage with what the model got of a step less that with all candidates."""
        read: list[str] = []
        for step in self.writer.view.steps:
            got = step.texts(step.got)
            if step.changed:
                found = step.texts(range(step.candidates))
                facts = {
                    "k": step.judged_places("passages"),
                    "kept": len(got),
                    "candidates": len(found),
                    "not_judged": len(step.all) - len(step.judged),
                }
                with self.writer.failing("delta_coverage_selection", step):
                    change = self._covered([*read, *got]) - self._covered([*read, *found])
                    texts = [*read, *got, *found]
                    self.add("delta_coverage_selection", change, texts, step=step, metadata=facts)
            read += got

    def run(self) -> None:
        """Adds `coverage_total`, and `alpha_ndcg_total` and `density` unless the run found nothing."""
        view = self.writer.view
        texts, empty = read_texts(view.steps), view.empty_places
        if not texts and not view.read_nothing:
            return
        if texts and empty is not None:
            # The ideal is over all that was retrieved, in as many places as there were.
            k, everything = len(texts) + empty, retrieved_texts(view.steps)
            with self.writer.failing("alpha_ndcg_total"):
                ranked = self._alpha_ndcg(texts, everything, k)
                self.add("alpha_ndcg_total", ranked, everything, metadata={"k": k, "kept": len(texts)})
        missing = sum(at not in step.judged for step in view.steps for at in step.got)
        facts = {"sub_questions": list(self.ratings.sub_questions), "not_judged": missing}
        with self.writer.failing("coverage_total"):
            covered = self._covered(texts)
            self.add("coverage_total", covered, texts, metadata=facts)
            if texts:
                self._density("density", covered, texts)

    def answer(self, answer: str) -> None:
        """Adds `answer_coverage` and `answer_density` of the answer; "" is an abstention, which covers nothing."""
        if not answer:
            self.add("answer_coverage", 0.0, label="abstained")
            return
        with self.writer.failing("answer_coverage"):
            covered = self._covered([answer])
            self.add("answer_coverage", covered, [answer])
            self._density("answer_density", covered, [answer])

    def _density(self, name: str, covered: float, texts: Sequence[str]) -> None:
        """Adds a density: coverage per token, beside that of the required passages of the pool's good ones, else of all
        retrieved ones."""
        length = sum(map(count_tokens, texts))
        with self.writer.failing(name):
            among = list(dict.fromkeys(self.oracle)) or retrieved_texts(self.writer.view.steps)
            if not among or math.isnan(covered):
                return
            subset = measures.required_subset(self.ratings.table(among), self.settings.eta)
            needed = [among[i] for i in subset.required.tolist()]
            best = self._covered(needed) if needed else 0.0
            value = float(
                measures.density(covered, length, best, sum(map(count_tokens, needed)), self.settings.w)
            )
            facts = {"tokens": length, "oracle": "pool" if self.oracle else "retrieved"}
            self.add(name, value, texts, metadata=facts)

    def _covered(self, texts: Sequence[str]) -> float:
        """Returns the coverage of texts; 0 where there are none, and nan where the pool answers no sub-question."""
        if texts:
            table = self.ratings.table(texts)
            return float(measures.coverage(table, self.settings.eta, self.answerable))
        return math.nan if self.answerable is not None and not self.answerable.any() else 0.0

    def _alpha_ndcg(
        self, texts: Sequence[str], retrieved: Sequence[str], k: int, earlier: Sequence[str] = ()
    ) -> float:
        """Returns α-nDCG of texts in k places, beside the best order of what was retrieved; nan without places."""
        if not k:
            return math.nan
        table, ideal, before = map(self.ratings.table, (texts, retrieved, earlier))
        eta, alpha = self.settings.eta, self.settings.alpha
        return float(measures.alpha_ndcg(table, eta, alpha, ideal=ideal, k=k, earlier=before))
