"""Shows the hops of a run in the terminal: each query, its passages, and what each passage did for the model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.text import Text

from ragguard.analysis.wording import (
    diagnose_selection,
    line_of,
    named,
    remarks_on_coverage,
    remarks_on_fit,
    remarks_on_leads,
    remarks_on_worth,
    would_drop,
)
from ragguard.capture.model_calls import notice
from ragguard.facts.run_facts import ANSWERS
from ragguard.facts.run_view import CONFIRMED, HopView, PassageView, RunView
from ragguard.facts.verdicts import Tone
from ragguard.records import CUT_TOKENS, LEFT_OUT, Failure, RetrievalStep, Run, Score
from ragguard.runtime.faults import without_times
from ragguard.scorers.answers import BY_WORDS
from ragguard.scorers.exam.record import JUDGING, unjudged_because
from ragguard.text.numbers import as_shown
from ragguard.text.secret_filter import strip_control_characters

BAR = 6
"""The number of cells of one side of a utility bar."""
_SIGNED = "+z.2f"
COLOURS: dict[Tone, str] = {"good": "green", "bad": "red", "doubtful": "yellow", "": "bright_black"}
"""The colour of a number or a verdict in the terminal."""


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
        out.print(hop_table(RunView(run, rg.scores(run.id), rg.failures(run.id))))


def hop_table(view: RunView) -> RenderableType:
    """Returns one run for Rich to print: question, answer, one block for each hop, and why scores are missing."""
    run, total, correct = view.run, view.find("delta_seper_total"), view.find("answer_correct")
    head = Text.assemble((f"\n{line_of(run.question) or '(no question)'}", "bold"))
    scores = view.counted.all
    judged = any(score.name in JUDGING for score in scores)
    if not judged and (why := unjudged_because(score.engine for score in scores)):
        head = Text.assemble((f"\n{why}.", "yellow"), head)
    if run.status not in ("ok", "open"):
        why = line_of(str(run.metadata.get("error", "")))
        head.append(f"\n{run.status}{': ' if why else ''}{why}", "red")
    head.append(f"\nanswer: {line_of(run.answer or '–')}")
    if correct is not None and correct.label:
        head.append(f" ({line_of(correct.label)}{_judged_by(correct)})", COLOURS[view.answer_tone])
    head.append(_by_words(view))
    if total is not None:
        support = " (support)" if total.reference_source == "answer" else ""
        head.append(f"   ΔSePer of the run: {_number(total, _SIGNED)}{support}")
    if said := view.explanation.text:
        head.append(f"\n{said}")
    if run.metadata.get(CONFIRMED) == view.explanation.cause != "":
        head.append(
            "\nThe cause is confirmed: without it the reader's answer is right (ragguard try-again).", "cyan"
        )
    head.append("".join(f"\n{line_of(remark)}" for remark in view.remarks), "yellow")
    if view.provisional:
        head.append("\nscores so far: they are provisional until the end of the run is scored", "cyan")
    steps = {step.id for step in run.steps}
    of_no_step = [failure for failure in view.failures if failure.step_id not in steps]
    head.append("".join(f"\n{why}" for why in _reasons(of_no_step)), "yellow")
    head.append(f"\nrun {line_of(run.id)}{'' if run.steps else ': no retrieval was captured'}", "dim")
    hops: list[RenderableType] = []
    for hop in view.hops:
        hops += _about(
            hop, run.steps, [failure for failure in view.failures if failure.step_id == hop.step.id]
        )
        hops.append("" if hop.seen.empty else _passages(hop))
    return Group(head, *hops)


def _by_words(view: RunView) -> str:
    """Returns what words alone tell of an answer: whether a reference stands in what was read, and what of the answer
    stands in no passage."""
    stands, ungrounded = view.find("answer_in_context"), view.find("ungrounded")
    told = [] if stands is None else [f"the reference is {'' if stands.value else 'not '}in what was read"]
    if ungrounded is not None and ungrounded.value:
        told.append(
            ungrounded.explanation or f"{ungrounded.value:.0%} of its names and figures are in no passage"
        )
    return f"   {line_of('; '.join(told))}" if told else ""


def _judged_by(correct: Score) -> str:
    """Returns whose judgement it is that an answer is right; empty where it has the words of a reference."""
    if not correct.value or correct.explanation in BY_WORDS:
        return ""
    return ", as nano judges, which errs" if correct.engine.startswith("nano:") else ", as a model judges"


def _reasons(failures: Sequence[Failure]) -> list[str]:
    """Returns why scores are missing, each reason once, whatever times it names."""
    reasons = [f"not scored: {line_of(failure.message)}" for failure in failures]
    return list({without_times(reason): reason for reason in reasons}.values())


def _about(hop: HopView, steps: Sequence[RetrievalStep], failures: Sequence[Failure]) -> list[Text]:
    """Returns the lines about a hop: its query, its numbers, and what a reader has to know of these."""
    step = hop.step
    before = hop.find("udcg", "candidates") if step.decision and step.decision.dropped else None
    was = f" (was {_number(before, 'z.3f')})" if before else ""
    columns = (
        ("credit", hop.find("credit"), _SIGNED, ""),
        ("ΔSePer", hop.find("delta_seper"), _SIGNED, ""),
        ("UDCG", hop.find("udcg"), "z.3f", was),
        ("coverage", hop.find("coverage"), "z.2f", ""),
        ("selection", hop.find("delta_seper_selection"), _SIGNED, ""),
    )
    known = [
        (f"{title} {_number(one, form)}{more}", one) for title, one, form, more in columns if one is not None
    ]
    # Of scorers whose numbers have a place of their own, the page shows the others.
    known += named(hop.scores if not known else (one for one in hop.scores if one.scorer == "grades")).items()
    numbers = [text for text, _ in known]
    if any(one.reference_source == "answer" for _, one in known):
        numbers.append("(support)")
    outcome = "" if numbers and not hop.seen.empty else _outcome(step, scored=bool(hop.scores))
    lines = [
        Text.assemble(
            f"hop {hop.number}: ", (strip_control_characters(step.query) or "(no query was recorded)", "bold")
        ),
        Text("   ".join(filter(None, [_places(hop), outcome, *numbers]))),
    ]
    lines += [Text(remark) for remark in (*remarks_on_leads(step, steps), *remarks_on_worth(hop, steps))]
    reached, chosen = hop.find("proc"), hop.find("pct_proc")
    if reached and chosen:
        lines.append(Text(diagnose_selection(reached.value, chosen.value)))
    shortened = [
        (one.position, one.name, one.metadata.get(LEFT_OUT), one.metadata.get(CUT_TOKENS))
        for one in hop.scores
    ]
    remarks = [notice(step.metadata, len(step.passages)), *remarks_on_fit(shortened)]
    if advice := step.advice:
        said = f"advice: {advice.action}{'' if advice.calibrated else ' (uncalibrated)'}"
        remarks.append(": ".join(filter(None, [said, "; ".join(advice.reasons)])))
    remarks += [*remarks_on_coverage(hop), *_reasons(failures)]
    contested = hop.find("contested")
    if contested and contested.value > 0:
        remarks.append(f"contested: {contested.explanation}")
    if step.decision:
        remarks.append(would_drop([drop.position for drop in step.decision.would_drop]))
    return [*lines, *(Text(strip_control_characters(one), "yellow") for one in remarks if one)]


def _passages(hop: HopView) -> RenderableType:
    """Returns a row for each passage of a hop: those found, and those that the model read otherwise."""
    # Only here: a list of runs has no such table, and Rich's takes some 20 ms to load.
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    known = any(one.utility is not None for one in hop.passages)
    known_otherwise = judged(hop.scores)
    table = Table(box=SIMPLE_HEAD, expand=True, pad_edge=False)
    table.add_column("#", justify="right", min_width=2)
    table.add_column("passage", ratio=1, min_width=8, no_wrap=True)
    table.add_column("utility" if known else "judged", width=2 * BAR + 7, no_wrap=True)
    table.add_column("verdict", min_width=7, max_width=32)
    for one in hop.passages:
        shown = line_of(one.passage.text) or (f"({line_of(one.passage.id)})" if one.passage.id else "")
        worth = (
            Text(known_otherwise.get(one.rank, "not judged"), "dim")
            if one.utility is None
            else _utility_bar(one.utility, COLOURS[one.tone])
        )
        table.add_row(str(one.rank), Text(shown), worth, _verdict(one), style="" if one.read else "dim")
    return table


def _verdict(one: PassageView) -> Text:
    """Returns the verdict on a passage; of one that the model did not read only why, as the bar shows the rest."""
    if one.read:
        return Text(one.verdict.did, COLOURS[one.tone])
    return Text(
        strip_control_characters(one.verdict.fate.replace("dropped: utility ", "dropped: ")), "yellow"
    )


def _utility_bar(utility: float, colour: str) -> Text:
    """Returns a utility as a bar from the middle, to the left for harm, and as a number."""
    cells = min(BAR, round(abs(utility) * BAR))
    left, right = (cells, 0) if utility < 0 else (0, cells)
    sides = " " * (BAR - left), ("█" * left, colour), "│", ("█" * right, colour), " " * (BAR - right)
    return Text.assemble(*sides, f" {as_shown(utility):+z.2f}")


def _places(hop: HopView) -> str:
    """Returns K of a step, and how many passages were found or kept where these are fewer; "" where K is not known."""
    places = hop.seen.places
    if not places:
        return ""
    kept, found = len(hop.step.passages), hop.seen.candidates
    fewer = "" if kept == places else f", {kept} {'kept' if kept < found else 'found'}"
    return f"K = {places}{fewer}"


def _outcome(step: RetrievalStep, *, scored: bool) -> str:
    """Returns in words the state of a hop that has no scores of its own."""
    if step.error or step.status != "ok":
        return ": ".join(filter(None, [step.status, line_of(step.error or "")]))
    if not step.retrieved:
        return "nothing was found"
    if not step.passages and not step.decision:
        return "the model read none of them"
    return "" if scored else "not scored"


def judged(scores: Sequence[Score]) -> dict[int, str]:
    """Returns what is known of passages beside their utility, by position: the grade, else how many sub-questions the
    passage answers, else how well it fits the query; with references, how probably it brings the answer."""
    ratings: defaultdict[int, dict[int, bool]] = defaultdict(dict)
    grades: dict[int, str] = {}
    fits: dict[int, str] = {}
    brings: dict[int, str] = {}
    for score in scores:
        if score.position is None:
            continue
        if score.name == "answerability" and score.sub_question is not None:
            ratings[score.position][score.sub_question] = score.value >= ANSWERS
        elif score.name == "grade":
            grades[score.position] = f"grade {score.value:g}"
        elif score.name == "query_gain":
            fits[score.position] = f"fit {as_shown(score.value):+z.2f}"
        elif score.name == "brings_answer":
            brings[score.position] = f"answer {as_shown(score.value):.2f}"
    answered = {at: f"answers {sum(found.values())} of {len(found)}" for at, found in ratings.items()}
    return fits | answered | brings | grades


def _number(score: Score, form: str) -> str:
    """Returns a score as text, with its error where there is one."""
    error = f" ± {as_shown(score.stderr):.2f}" if score.stderr is not None and form == _SIGNED else ""
    return f"{as_shown(score.value, int(form[-2])):{form}}{error}"
