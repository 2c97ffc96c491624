"""`ragguard calibrate RUNS.jsonl`: chooses the threshold of the guard, or of advice, with a promise; fits UDCG."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, cast

import typer

from ragguard.advice import AdviceCalibration
from ragguard.cli.run_source import RunFiles, RunSource
from ragguard.cli.scoring_options import EngineAddress, JudgeAddress, PromptSetName, RelevanceForm
from ragguard.cli.terminal import LabelFile, refuse_together, say, work_status
from ragguard.cli.validate import scored_by_engine
from ragguard.client import RagGuard
from ragguard.errors import InvalidInput
from ragguard.guard import DistractorGuard
from ragguard.guard.calibration import Calibration, Order, examples_of
from ragguard.lab.labels.label_file import read_label_file, with_labels
from ragguard.lab.validation.dataset import read_dataset
from ragguard.lab.validation.udcg_fit import fit_udcg
from ragguard.metrics.distraction import RELEVANCES, Relevance
from ragguard.records import Run
from ragguard.runtime.arguments import check_output, one_of, share
from ragguard.text.plain import counted


def run(
    files: RunFiles,
    engine: EngineAddress = "auto",
    judge: JudgeAddress = None,
    prompts: PromptSetName = None,
    max_loss: Annotated[
        float | None,
        typer.Option(
            help="The share that may be lost: of gold passages by the guard (default 0.05), of right answers by "
            "stopping on advice (0.02)."
        ),
    ] = None,
    confidence: Annotated[
        float | None,
        typer.Option(
            help="The probability with which --max-loss holds for this calibration, such as 0.9. Without it the "
            "promise holds in expectation, and a single calibration may lose more."
        ),
    ] = None,
    order: Annotated[
        str,
        typer.Option(
            help="What the guard's threshold applies to: help (judge and reader together), or utility (as in the "
            "paper)."
        ),
    ] = "help",
    relevance: RelevanceForm = "probability",
    min_keep: Annotated[
        int, typer.Option(min=0, help="The least number of passages that the guard keeps.")
    ] = 1,
    what: Annotated[
        str,
        typer.Option(
            "--for", help="What is calibrated: guard, advice (when to stop searching) or udcg (its weights)."
        ),
    ] = "guard",
    labels: LabelFile = None,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="The file to write, for guard.use, rg.advice.use, Utility.fitted."),
    ] = Path("calibration.json"),
) -> None:
    """Choose the threshold below which the guard drops a passage, or from which advice says `answer`, with a promise.

    The guard's threshold is learnt from retrievals in which each candidate is known to be gold or not: by a grade (4
    and 5 are gold), by metadata (`"gold": true`), or by --labels of people. The threshold of advice is learnt from
    whole runs with references; an answer that a person called right counts as one. UDCG is fitted on runs with
    outcomes or references, or on rankings, as `ragguard validate` reads them.
    Exit code 0: written. 1: written, but some lines could not be read. 2: no calibration: too few examples, a wrong
    option, no such file, no engine.
    """
    if what not in ("guard", "advice", "udcg"):
        raise InvalidInput("--for", what, "guard, advice or udcg")
    one_of("--relevance", relevance, RELEVANCES)
    form = cast("Relevance", relevance)
    if what != "guard" and (min_keep, order) != (1, "help"):
        raise InvalidInput("--for", what, "no option of the guard (--order, --min-keep) beside it")
    check_output("--out", out)
    if what == "udcg":
        given = (
            ("--prompts", prompts),
            ("--labels", labels),
            ("--max-loss", max_loss),
            ("--confidence", confidence),
        )
        for option in given:
            refuse_together(option, ("--for udcg", True))
        say(asyncio.run(_fit_udcg(files, engine, judge, out, form)))
        return
    if max_loss is not None:
        share("--max-loss", max_loss)
    if confidence is not None:
        share("--confidence", confidence)
    source = RunSource(files, {})
    runs: Iterable[Run] = source.runs()
    if labels is not None:
        runs = with_labels(runs, read_label_file(labels))
    if what == "advice":
        with RagGuard(engine, judge=judge, prompts=prompts, store=None, scorers=()) as rg:
            advice = rg.advice.calibrate(runs, 0.02 if max_loss is None else max_loss, confidence)
        advice.save(out)
        say(_advice_sentence(advice, out))
    else:
        guard = DistractorGuard(engine, min_keep=min_keep, judge=judge, prompts=prompts, relevance=form)
        steps = [step for run in runs for step in run.steps]
        examples = examples_of(steps)
        if steps and not examples:
            say(
                "no retrieval says which of its candidates are gold: give its passages a grade of 1 to 5, or "
                '"gold": true or false in their metadata',
                error=True,
            )
        most = 0.05 if max_loss is None else max_loss
        found = guard.calibrate(examples, most, cast("Order", order), confidence)
        found.save(out)
        say(_sentence(found, len(steps) - len(examples), out))
    if source.rejected:
        say(f"{counted(source.rejected, 'line', ('was', 'were'))} rejected, see above", error=True)
        raise typer.Exit(1)


async def _fit_udcg(
    files: Sequence[str], engine: str, judge: str | None, out: Path, relevance: Relevance
) -> str:
    """Fits UDCG on the runs of the files, saves the fit, and returns what it is worth in words."""
    remarks: list[str] = []
    contexts = [one for file in files for one in read_dataset(file, remarks=remarks)]
    with work_status() as tell:
        scored = await scored_by_engine(contexts, files[0], engine, judge, (), tell, remarks, relevance)
    found = fit_udcg(scored, engine, judge or engine)
    found.save(out)
    theta = found.utility["theta"]
    by_place = f"weights by place for contexts of {theta['k']} places" if theta else "no weights by place"
    lines = [
        f"γ {found.utility['gamma']:.2f} instead of 1/3; {by_place}",
        f"learnt from {found.contexts:,} contexts of {found.questions:,} questions with different outcomes",
        "pairs of contexts of held-out questions in the right order, minus those in the wrong one (Somers' d):",
        f"  udcg as it is: {found.held_out['udcg'].value:.3f}",
    ]
    for name, gain in found.gains.items():
        verdict = "better" if gain.low > 0 else "worse" if gain.high < 0 else "no difference shown"
        difference = f"{gain.value:+.3f} ({gain.low:.3f} to {gain.high:.3f}): {verdict}"
        lines.append(f"  {name}: {found.held_out[name].value:.3f}, {difference}")
    use = f"written to {out}, for this engine and judge: Utility.fitted({str(out)!r})"
    return "\n".join([*lines, *remarks, use])


def _how_sure(confidence: float | None, low: float | None, high: float | None, over: float | None) -> str:
    """Returns in words in which sense a promise holds, and how its loss varies over calibrations."""
    if low is None or high is None or over is None:
        return "in expectation" if confidence is None else f"with confidence {confidence:g}"
    spread = f"nine of ten such calibrations lose {low:.1%} to {high:.1%}; {over:.0%} lose more than promised"
    if confidence is None:
        return f"in expectation: {spread} (--confidence 0.9 holds a single one to it)"
    return f"with confidence {confidence:g}: {spread}"


def _advice_sentence(found: AdviceCalibration, out: Path) -> str:
    never = " (no number reaches it, so advice never stops)" if found.threshold > 1 else ""
    return (
        f"threshold {found.threshold:.4f}{never}: stopping when advised costs at most {found.max_loss:g} of right "
        f"answers {_how_sure(found.confidence, found.loss_low, found.loss_high, found.over_limit)}\n"
        f"learnt from {counted(found.runs, 'run')} with references ({found.skipped:,} without were skipped)\n"
        f"on them it saves {found.steps_saved:.1%} of the steps, and costs {found.loss:.1%} of right answers\n"
        f"written to {out}, only for this engine and these prompts: rg.advice.use({str(out)!r})"
    )


def _sentence(found: Calibration, unlabelled: int, out: Path) -> str:
    others = f"; {unlabelled:,} without labels were left out" if unlabelled else ""
    keeps = "" if found.min_keep == 1 else f", min_keep={found.min_keep}"
    order = "the probability to help" if found.order == "help" else "utility"
    return (
        f"threshold {found.threshold:.4f} on {order}: at most {found.max_gold_loss:g} of gold passages are dropped "
        f"{_how_sure(found.confidence, found.gold_loss_low, found.gold_loss_high, found.over_limit)}\n"
        f"learnt from {found.examples:,} retrievals with gold passages ({found.skipped:,} without any were "
        f"skipped{others})\n"
        f"on them it drops {found.distractors_dropped:.1%} of the other passages, and {found.gold_loss:.1%} of gold; "
        f"{found.passages_kept:.1f} passages of a retrieval stay\n"
        f"written to {out}, for this engine, these prompts and min_keep {found.min_keep} alone: "
        f"DistractorGuard(engine{keeps}).use({str(out)!r})"
    )
