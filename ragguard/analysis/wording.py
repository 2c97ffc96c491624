"""Words that the terminal, the page and the list of runs share: lines, markup and ids of texts from outside, and
remarks on what was selected, dropped, or too long for a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import NamedTuple, TypeAlias

from rich.markup import escape

from ragguard.facts.hop_sentence import first_of
from ragguard.facts.run_view import HopView, RunView
from ragguard.facts.verdicts import Verdict, utility_verdict
from ragguard.records import RetrievalStep, Score
from ragguard.text.numbers import as_shown
from ragguard.text.plain import counted
from ragguard.text.secret_filter import strip_control_characters
from ragguard.text.statements.names import absent_names

IN_COLUMNS = (
    "credit",
    "delta_seper",
    "udcg",
    "coverage",
    "delta_seper_selection",
    "delta_udcg_selection",
    "contested",
)
"""The scores of a step that have a place of their own in the terminal, or go with one that has."""
Shortened: TypeAlias = tuple[int | None, str, object, object]
"""A note that a model read less than all passages: the rank of the passage, the score's name, passages left out, tokens
cut."""
_OF_ALL_READ = dict.fromkeys(("delta_seper", "semantic_entropy"), "what was read so far")
"""The step scores that are about everything read up to that step."""
LONGEST = 200
"""The most characters of a question that is shown in one line."""
_LINE = 2000
_SHOWN = 3
"""How many ids of runs a sentence names."""


def line_of(text: str) -> str:
    """Returns the text in one line without control characters, cut after 2,000 characters."""
    return strip_control_characters(" ".join(text[:_LINE].split()))


def question_line(question: str) -> str:
    """Returns a question in one line of at most 200 characters, "(no question)" for an empty one."""
    line = " ".join(question.split())
    return (line if len(line) <= LONGEST else line[: LONGEST - 1] + "…") or "(no question)"


def as_markup(text: str) -> str:
    """Returns the text as markup for Rich, with escaped brackets and without control characters."""
    return escape(strip_control_characters(text))


def short_id(run_id: str) -> str:
    """Returns the part of an id that is shown: its last 8 characters, as ids that begin with the time, such as UUIDs of
    version 7, differ only at their ends."""
    return run_id[-8:]


def diagnose_selection(proc: float, pct_proc: float) -> str:
    """Says whether a retriever, or what chose among its candidates, lost more of the best set of passages.

    PROC is what the candidates make possible, %PROC the share of it that was chosen; both from 0 to 1.
    """
    by_retriever, by_choice = 1 - proc, proc * (1 - pct_proc)
    numbers = (
        f"its candidates allow {proc:.2f} of the best set (PROC), of which {pct_proc:.0%} was chosen (%PROC)"
    )
    if max(by_retriever, by_choice) < 0.05:
        return f"Retriever and selection lose next to nothing: {numbers.removeprefix('its ')}."
    if by_retriever >= by_choice:
        return f"The retriever loses most: {numbers}."
    return f"What chooses after the retriever, a reranker or the guard, loses most: {numbers.removeprefix('its ')}."


def about_selections(numbers: Sequence[tuple[float, float]]) -> str:
    """Says of many steps, by PROC and %PROC of each, whether retrievers or what chose after them lost more."""
    proc = sum(one for one, _ in numbers) / len(numbers)
    reached = sum(one * chosen for one, chosen in numbers) / len(numbers)
    return (
        f"Over {counted(len(numbers), 'step')}: {diagnose_selection(proc, reached / proc if proc else 1.0)}"
    )


def would_drop(ranks: Sequence[int]) -> str:
    """Says which passages of a step a guard in shadow would have dropped, by their ranks; empty where none."""
    which = ", ".join(map(str, ranks))
    return f"the guard, in shadow, would drop passage{'s' if len(ranks) > 1 else ''} {which}" if ranks else ""


class ShadowStep(NamedTuple):
    """The decision of a guard in shadow at one step."""

    run_id: str
    passages: int
    dropped: list[Verdict | None]
    """The verdicts on the passages that it would have dropped; None for those that were not scored."""
    elapsed_ms: float


def shadow_steps(view: RunView) -> Iterator[ShadowStep]:
    """Yields the decisions of guards in shadow in a run."""
    for hop in view.hops:
        decision = hop.step.decision
        if decision is None or not decision.would_drop:
            continue
        verdicts = {
            one.position: utility_verdict(one.value, one.stderr)
            for one in hop.scores
            if one.name == "utility"
        }
        dropped = [verdicts.get(drop.position) for drop in decision.would_drop]
        yield ShadowStep(view.run.id, len(decision.kept), dropped, decision.elapsed_ms)


def about_shadow(decided: Sequence[ShadowStep]) -> str:
    """Says what guards in shadow would have dropped at many steps, and whether it misleads or helps by its utility."""
    dropped = [(verdict, step.run_id) for step in decided for verdict in step.dropped]
    said = (
        f"The guard, in shadow, would have dropped {len(dropped):,} of {sum(step.passages for step in decided):,} "
        f"passages at {counted(len(decided), 'step')}, in {median(step.elapsed_ms for step in decided):.0f} ms each."
    )
    scored = [(verdict, run_id) for verdict, run_id in dropped if verdict is not None]
    if not scored:
        return said
    misleading = sum(verdict == "misleads" for verdict, _ in scored)
    lost_in = [run_id for verdict, run_id in scored if verdict == "helps"]
    neither, helpful = len(scored) - misleading - len(lost_in), len(lost_in)
    runs = list(dict.fromkeys(lost_in))
    more = f" and {len(runs) - _SHOWN} more" if len(runs) > _SHOWN else ""
    where = f": look at {', '.join(runs[:_SHOWN])}{more}" if runs else ""
    return (
        f"{said} By their scored utility {misleading:,} of them mislead, {neither:,} do neither, and {helpful:,} "
        f"help{'s' if helpful == 1 else ''}{where}."
    )


def named(scores: Iterable[Score]) -> dict[str, Score]:
    """Returns each number about a step as a whole that has no column of its own, by its text with its name."""
    latest = {
        score.name: score
        for score in scores
        if score.level == "step" and score.stage == "passages" and score.name not in IN_COLUMNS
    }
    return {
        f"{strip_control_characters(name)} {as_shown(one.value):z.2f}": one for name, one in latest.items()
    }


def remarks_on_leads(step: RetrievalStep, steps: Sequence[RetrievalStep]) -> list[str]:
    """Returns for each lead of a step which words its query took, and from which passages, by hop and rank."""
    numbers = {one.id: number for number, one in enumerate(steps, 1)}
    remarks = []
    for lead in step.led_by or ():
        places = [f"{numbers[one.step_id]}.{one.position}" for one in lead.sources if one.step_id in numbers]
        if places:
            several = " (nobody can say which)" if len(lead.steps) > 1 else ""
            which = " or ".join(places)
            remarks.append(f"↳ its query took “{line_of(lead.words)}” from passage {which}{several}")
    return remarks


def remarks_on_coverage(hop: HopView) -> list[str]:
    """Returns which names of the query stand in no passage that was read, if a judge says that the hop answered a
    sub-question; and why advice names open sub-questions beside a coverage that calls all of them answered."""
    coverage, added, advice = hop.find("coverage"), hop.find("delta_coverage"), hop.step.advice
    remarks = []
    read = [one.passage.text for one in hop.passages if one.read]
    if added and added.value > 0 and (absent := absent_names(hop.step.query, read)):
        names = first_of([f"“{line_of(name)}”" for name in absent])
        remarks.append(
            f"coverage is the judge's: no passage that was read has {names} of the query, so they may be about "
            "something else"
        )
    if advice and advice.open_sub_questions and coverage and coverage.value >= 1:
        remarks.append(
            "advice and coverage differ: advice names in a sub-question who or what was read, and counts relevant "
            "passages only; coverage does not"
        )
    return remarks


def remarks_on_worth(hop: HopView, steps: Sequence[RetrievalStep]) -> list[str]:
    """Returns what a hop was worth and by what evidence, if that is another number than its own credit."""
    worth = hop.worth
    numbers = {one.id: f"hop {number}, to which it led" for number, one in enumerate(steps, 1)}
    if worth is None or not (worth.through or worth.stated or worth.name == "joint_gain"):
        return []
    shown, of = f"worth {as_shown(worth.value):+z.2f}", numbers.get(worth.through, "")
    if worth.stated:
        of = "the first passage that states the reference"
    if worth.name != "joint_gain":
        return [f"{shown}: that of {of}"]
    parts = f"question {as_shown(worth.question):+z.2f}, answer {as_shown(worth.answer):+z.2f}"
    return [f"{shown} (joint gain): {parts}{of and ' of '}{of}"]


def remarks_on_fit(scores: Iterable[Shortened]) -> list[str]:
    """Returns what of a hop did not fit the context of the model that judged it; empty where all did."""
    short = set()
    for rank, name, *counts in scores:
        if any(isinstance(count, int) and count for count in counts):
            short.add(f"passage {rank}" if rank is not None else _OF_ALL_READ.get(name, ""))
    what = ", ".join(sorted(filter(None, short)))
    return [f"did not fit the model's context, so that its scores are about a part: {what}"] if what else []
