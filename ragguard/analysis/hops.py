"""Shows the hops of a run in the terminal: each query, its passages, and what each passage did for the model."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from rich.console import Console, Group, RenderableType
from rich.text import Text

from ragguard.analysis.wording import (
    MISLEADS,
    best,
    diagnose_selection,
    line_of,
    named,
    remarks_on_fit,
    remarks_on_leads,
    would_drop,
)
from ragguard.capture.model_calls import notice
from ragguard.facts.explanation import STATES_REFERENCE, STATES_WRONG, Bridge, Explanation, explain
from ragguard.facts.run_facts import ANSWERS, is_clear
from ragguard.facts.steps import view_step
from ragguard.records import CUT_TOKENS, K_ERROR, LEFT_OUT, Failure, RetrievalStep, Run, Score
from ragguard.runtime.faults import without_times
from ragguard.scorers.answers import SAME_WORDS
from ragguard.text.secret_filter import strip_control_characters

BAR = 6
"""The number of cells of one side of a utility bar."""
_SIGNED = "+z.2f"

R = TypeVar("R", Score, Failure)


class RunReader(Protocol):
    """A source of runs, scores and failures for `print_hops`, such as a RagGuard."""

    def runs(self) -> Iterable[Run]: ...
    def scores(self, run_id: str) -> Sequence[Score]: ...
    def failures(self, run_id: str) -> Sequence[Failure]: ...


def print_hops(rg: RunReader, console: Console | None = None) -> None:
    """Prints every run of a RagGuard with its hops; call it after `flush`.

    Args:
        rg: The RagGuard.
        console: A rich Console to print to. None: the terminal.
    """
    out = console or Console(highlight=False)
    for run in rg.runs():
        out.print(hop_table(run, rg.scores(run.id), rg.failures(run.id)))


def hop_table(run: Run, scores: Sequence[Score], failures: Sequence[Failure] = ()) -> RenderableType:
    """Returns one run for Rich to print: question, answer, one block for each hop, and why scores are missing."""
    total, correct = best(scores, "delta_seper_total"), best(scores, "answer_correct")
    explanation = explain(run, scores)
    head = Text.assemble((f"\n{line_of(run.question) or '(no question)'}", "bold"))
    if run.status not in ("ok", "open"):
        why = line_of(str(run.metadata.get("error", "")))
        head.append(f"\n{run.status}{': ' if why else ''}{why}", "red")
    head.append(f"\nanswer: {line_of(run.answer or '–')}")
    if correct is not None and correct.label:
        head.append(f" ({line_of(correct.label)}{_judged_by(correct)})", colour_of(correct.value - 0.5))
    if total is not None:
        head.append(f"   ΔSePer of the run: {_number(total, _SIGNED)}")
    head.append("".join(f"\n{sentence}" for sentence in explanation.sentences))
    if any(score.provisional for score in scores):
        head.append("\nscores so far: they are provisional until the end of the run is scored", "cyan")
    scores_of, failures_of = _by_step(scores), _by_step(failures)
    steps = {step.id for step in run.steps}
    of_no_step = [failure for failure in failures if failure.step_id not in steps]
    head.append("".join(f"\n{why}" for why in _reasons(of_no_step)), "yellow")
    head.append(f"\nrun {line_of(run.id)}{'' if run.steps else ': no retrieval was captured'}", "dim")
    hops: list[RenderableType] = []
    for number, step in enumerate(run.steps, 1):
        bridge = explanation.bridges.get(number)
        hops += _about(run, step, scores_of[step.id], failures_of[step.id], bridge)
        seen = bool(step.candidates or step.passages)
        hops.append(_passages(step, scores_of[step.id], explanation, number) if seen else "")
    return Group(head, *hops)


def _judged_by(correct: Score) -> str:
    """Returns whose judgement it is that an answer is right; empty where it has the words of a reference."""
    if not correct.value or correct.explanation in ("", SAME_WORDS):
        return ""
    return ", as nano judges, which errs" if correct.engine.startswith("nano:") else ", as a model judges"


def _by_step(results: Sequence[R]) -> defaultdict[str, list[R]]:
    """Groups scores or failures by the id of their step."""
    found: defaultdict[str, list[R]] = defaultdict(list)
    for one in results:
        found[one.step_id].append(one)
    return found


def _reasons(failures: Sequence[Failure]) -> list[str]:
    """Returns why scores are missing, each reason once, whatever times it names."""
    reasons = [f"not scored: {line_of(failure.message)}" for failure in failures]
    return list({without_times(reason): reason for reason in reasons}.values())


def _about(
    run: Run, step: RetrievalStep, scores: Sequence[Score], failures: Sequence[Failure], bridge: Bridge | None
) -> list[Text]:
    """Returns the lines about a hop: its query, its numbers, and what a reader has to know of these."""
    before = best(scores, "udcg", "candidates") if step.decision and step.decision.dropped else None
    was, to = f" (was {_number(before, 'z.3f')})", f" (bridge to hop {bridge.later.number})" if bridge else ""
    facts = [
        f"ΔSePer {_number(best(scores, 'delta_seper'), _SIGNED)}{to}",
        f"UDCG {_number(best(scores, 'udcg'), 'z.3f')}{was if before else ''}",
        f"coverage {_number(best(scores, 'coverage'), 'z.2f')}",
        f"selection {_number(best(scores, 'delta_seper_selection'), _SIGNED)}",
    ]
    known = [fact for fact in facts if " –" not in fact]
    # Of scorers whose numbers have a place of their own, the page shows the others.
    numbers = [*known, *named(scores if not known else (one for one in scores if one.scorer == "grades"))]
    found = bool(step.candidates or step.passages)
    outcome = "" if numbers and found else _outcome(step, scored=bool(scores))
    lines = [
        Text.assemble(f"hop {step.index + 1}: ", (strip_control_characters(step.query), "bold")),
        Text("   ".join(filter(None, [_places(step), outcome, *numbers]))),
    ]
    lines += [Text(remark) for remark in remarks_on_leads(step, run.steps)]
    if bridge:
        lines.append(Text(bridge.remark))
    reached, chosen = best(scores, "proc"), best(scores, "pct_proc")
    if reached and chosen:
        lines.append(Text(diagnose_selection(reached.value, chosen.value)))
    shortened = [
        (one.position, one.name, one.metadata.get(LEFT_OUT), one.metadata.get(CUT_TOKENS)) for one in scores
    ]
    remarks = [notice(step.metadata, len(step.passages)), *remarks_on_fit(shortened)]
    if advice := step.advice:
        said = f"advice: {advice.action}{'' if advice.calibrated else ' (uncalibrated)'}"
        remarks.append(": ".join(filter(None, [said, "; ".join(advice.reasons)])))
    remarks += _reasons(failures)
    contested = best(scores, "contested")
    if contested and contested.value > 0:
        remarks.append(f"contested: {contested.explanation}")
    if step.decision:
        remarks.append(would_drop([drop.position for drop in step.decision.would_drop]))
    return [*lines, *(Text(strip_control_characters(one), "yellow") for one in remarks if one)]


def _passages(
    step: RetrievalStep, scores: Sequence[Score], explanation: Explanation, number: int
) -> RenderableType:
    """Returns a row for each passage of a hop: those found, and those that the model read otherwise."""
    # Only here: a list of runs has no such table, and Rich's takes some 20 ms to load.
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    dropped = {drop.position: drop for drop in step.decision.dropped} if step.decision else {}
    seen = view_step(step, sys.maxsize)
    read = set(seen.got)
    read_as = {seen.all[at].id: at + 1 for at in seen.got if at >= seen.candidates and seen.all[at].id}
    judgements = {s.position: s for s in scores if s.name == "utility" and s.position is not None}
    known = judgements or any(drop.utility is not None for drop in dropped.values())
    judged = _judged(scores)
    table = Table(box=SIMPLE_HEAD, expand=True, pad_edge=False)
    table.add_column("#", justify="right", min_width=2)
    table.add_column("passage", ratio=1, min_width=8, no_wrap=True)
    table.add_column("utility" if known else "judged", width=2 * BAR + 7, no_wrap=True)
    table.add_column("verdict", min_width=7, max_width=32)
    for position, passage in enumerate(seen.all, 1):
        drop, judgement = dropped.get(position), judgements.get(position)
        utility = judgement.value if judgement else drop.utility if drop else None
        clear = judgement is None or is_clear(judgement.value, judgement.stderr)
        bar = colour_of(utility if utility is not None and clear else 0.0)
        cut = position - 1 not in read and not drop
        verdict, colour = "", bar
        if drop:
            reason = drop.reason.removeprefix("utility ")  # the bar shows the rest
            verdict, colour = f"dropped: {strip_control_characters(reason)}", "yellow"
        elif utility is not None:
            verdict = "does little" if -abs(utility) >= MISLEADS else "misleads" if utility < 0 else "helps"
            verdict = verdict if clear or verdict == "does little" else "unclear"
        if (number, position) in explanation.sources:
            verdict, colour, bar = STATES_WRONG, "red", "red"
        elif (number, position) in explanation.stating and colour == "red":
            verdict, colour, bar = STATES_REFERENCE, "yellow", "yellow"
        elif cut:
            other = read_as.get(passage.id)
            verdict, colour = f"read as {other}" if other else "cut", "yellow"
        shown = line_of(passage.text) or (f"({line_of(passage.id)})" if passage.id else "")
        worth = (
            Text(judged.get(position, "not judged"), "dim") if utility is None else _utility_bar(utility, bar)
        )
        style = "dim" if drop or cut else ""
        table.add_row(str(position), Text(shown), worth, Text(verdict, colour), style=style)
    return table


def _utility_bar(utility: float, colour: str) -> Text:
    """Returns a utility as a bar from the middle, to the left for harm, and as a number."""
    cells = min(BAR, round(abs(utility) * BAR))
    left, right = (cells, 0) if utility < 0 else (0, cells)
    sides = " " * (BAR - left), ("█" * left, colour), "│", ("█" * right, colour), " " * (BAR - right)
    return Text.assemble(*sides, f" {utility:+z.2f}")


def _places(step: RetrievalStep) -> str:
    """Returns K of a step, and how many passages were found or kept where these are fewer; "" where K is not known."""
    if K_ERROR in step.metadata or not step.places:
        return ""
    kept, found = len(step.passages), len(step.candidates or step.passages)
    fewer = "" if kept == step.places else f", {kept} {'kept' if kept < found else 'found'}"
    return f"K = {step.places}{fewer}"


def _outcome(step: RetrievalStep, *, scored: bool) -> str:
    """Returns in words the state of a hop that has no scores of its own."""
    if step.error or step.status != "ok":
        return ": ".join(filter(None, [step.status, line_of(step.error or "")]))
    if not (step.passages or step.candidates):
        return "nothing was found"
    if not step.passages and not step.decision:
        return "the model got none of these"
    return "" if scored else "not scored"


def _judged(scores: Sequence[Score]) -> dict[int, str]:
    """Returns what is known of passages beside their utility, by position: the grade, else how many sub-questions the
    passage answers, else how well it fits the query."""
    ratings: defaultdict[int, dict[int, bool]] = defaultdict(dict)
    grades: dict[int, str] = {}
    fits: dict[int, str] = {}
    for score in scores:
        if score.position is None:
            continue
        if score.name == "answerability" and score.sub_question is not None:
            ratings[score.position][score.sub_question] = score.value >= ANSWERS
        elif score.name == "grade":
            grades[score.position] = f"grade {score.value:g}"
        elif score.name == "query_gain":
            fits[score.position] = f"fit {score.value:+z.2f}"
    answered = {at: f"answers {sum(found.values())} of {len(found)}" for at, found in ratings.items()}
    return fits | answered | grades


def _number(score: Score | None, form: str) -> str:
    """Returns a score as text, with its error where there is one; "–" for none."""
    if score is None:
        return "–"
    error = f" ± {score.stderr:.2f}" if score.stderr is not None and form == _SIGNED else ""
    support = " (support)" if score.reference_source == "answer" else ""
    return f"{score.value:{form}}{error}{support}"


def colour_of(value: float) -> str:
    """Returns the colour of a utility: red for harm, green for help, grey for neither."""
    return "red" if value < MISLEADS else "green" if value > -MISLEADS else "bright_black"
