"""Tests the cause of a failed run: the reader is asked again without the misleading passage, or with the missing one.
If its answer is then right, the cause is confirmed.

The reader is the engine, which stands in for the model of the application; so it is asked about the passages as they
were, too. If it is right with these, nothing can be tested with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ragguard.engines.base import Engine
from ragguard.engines.prompts import PromptSet, load_prompts
from ragguard.errors import InvalidInput
from ragguard.facts.run_facts import GOLD
from ragguard.facts.run_view import RunView
from ragguard.records import Run
from ragguard.scorers.asker import DEMANDED, Models, ask_at_once
from ragguard.scorers.probes import greedy, read_line
from ragguard.text.statements.phrases import findable, mentions
from ragguard.text.statements.verdict import right_by_words

_TAKEN_OUT = ("misled", "overturned", "contested")
_PUT_IN = ("not_found", "missing_hop", "dropped", "nothing_read")


@dataclass(frozen=True, slots=True)
class CounterTest:
    """The answers of the reader before and after one change of what it reads."""

    cause: str
    change: str
    """The change in words."""
    before: str
    after: str
    was_right: bool
    is_right: bool

    @property
    def confirmed(self) -> bool:
        """True if the change turned a wrong answer into a right one."""
        return self.is_right and not self.was_right

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        if self.was_right:
            return (
                f"Not tested: with the passages as they were this reader is right (“{self.before}”); ask the model of "
                "the application (--engine)."
            )
        turned = f"the answer turns from “{self.before}” to “{self.after}”"
        if self.confirmed:
            return f"Confirmed, {self.cause}: {self.change}, {turned}."
        stays = "stays" if self.after == self.before else "becomes"
        return f"Not confirmed, {self.cause}: {self.change}, the answer {stays} “{self.after}”."


async def counter_test(
    view: RunView, engine: Engine, *, put_in: str | None = None, prompts: PromptSet | None = None
) -> CounterTest:
    """Asks the reader about a run with and without what its cause lays the failure to.

    Args:
        view: The run with its scores.
        engine: The reader.
        put_in: A passage that is put in for a cause that says one is missing; None: the passages of the run that were
            not read and state the reference, else the graded ones of its pool.
        prompts: The prompt set; None: the engine's own.

    Raises InvalidInput if the run has no reference, or a cause that no passage decides, or no passage is known.
    """
    run, cause = view.run, view.explanation.cause
    references = [reference for reference in run.references or () if reference.strip()]
    if not references:
        raise InvalidInput(
            "the run", "no reference", "a run with references, by which an answer is right or wrong"
        )
    read = [
        passage.passage.text
        for hop in view.hops
        for passage in hop.passages
        if passage.read and passage.passage.text.strip()
    ]
    if cause in _TAKEN_OUT:
        gone = {view.hops[hop - 1].passages[rank - 1].passage.text for hop, rank in view.explanation.sources}
        changed = [text for text in read if text not in gone]
        places = ", ".join(f"{hop}.{rank}" for hop, rank in sorted(view.explanation.sources))
        change = f"without passage{'' if len(view.explanation.sources) == 1 else 's'} {places}"
    elif cause in _PUT_IN:
        added = [put_in] if put_in else _missing(run, view, references)
        if not added:
            allowed = "a passage that states the reference: name one (--put-in), or give the run its `pool`"
            raise InvalidInput(
                "the run", f"{cause}, and no passage is known that states the reference", allowed
            )
        changed = [*read, *added]
        change = f"with {'the passage' if len(added) == 1 else f'{len(added)} passages'} that was missing"
    else:
        allowed = f"a run with one of the causes {', '.join((*_TAKEN_OUT, *_PUT_IN))}"
        raise InvalidInput("the run", cause or "no cause", allowed)
    known = prompts or load_prompts((await engine.info()).prompts)
    asked = [greedy(known, run.question, [*dict.fromkeys(texts)]) for texts in (read, changed)]
    before, after = map(read_line, await ask_at_once(Models(engine, engine, priority=DEMANDED), asked))
    was_right, is_right = (
        right_by_words(answer, references, run.question) is True for answer in (before, after)
    )
    return CounterTest(cause, change, before, after, was_right=was_right, is_right=is_right)


def _missing(run: Run, view: RunView, references: Sequence[str]) -> list[str]:
    """Returns the passages that state a reference and were not read: those that were retrieved, else gold of the
    pool."""
    phrases = findable(references)

    def stating(texts: Iterable[str]) -> list[str]:
        return [*dict.fromkeys(text for text in texts if mentions(text, phrases))]

    unread = stating(one.passage.text for hop in view.hops for one in hop.passages if not one.read)
    gold = [one.text for one in run.pool or () if one.grade is None or one.grade >= GOLD]
    read = {one.passage.text for hop in view.hops for one in hop.passages if one.read}
    # A missing hop is put in whole: its gold need not state the reference.
    whole = [text for text in gold if text not in read]
    return unread or (whole if view.explanation.cause == "missing_hop" else stating(whole) or whole)
