"""Advice in the loop of an agent: after each hop, within a number of hops, and without raising errors.

The run is found by context, as `ragguard.current_run()` finds it. Where no advice can be had, the loop goes on, and a
warning says why. Imports no framework.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ragguard.capture.anywhere import current_run
from ragguard.capture.open_runs import BUDGET_MS
from ragguard.capture.plain_steps import CurrentCall
from ragguard.capture.recorder import is_paused, paused
from ragguard.errors import AdviceError, InvalidInput
from ragguard.records import Advice
from ragguard.runtime.arguments import milliseconds, whole_number
from ragguard.runtime.async_twins import twin_of
from ragguard.runtime.faults import NOTICES, describe

MAX_HOPS = 6
"""How many hops an agent may make where nothing else is said."""
MAX_REPHRASES = 3
"""How many hops in a row may bring nothing for their query before an agent answers, where nothing else is said."""
_ENOUGH = "What was retrieved answers the question. Write the answer from it as text now; there is no further search."
_NO_MORE = (
    "No further search is possible. Write the answer as text now, from what was retrieved; say so if it does not "
    "hold the answer."
)
_IN_VAIN = "The last {hops} searches brought nothing for their queries. " + _NO_MORE
_REPHRASE = "The last search brought nothing for its query: search in other words."
_DISTRUST = (
    "Passages that were retrieved contradict each other or mislead: check them before relying on them."
)
_OPEN = "Not answered yet by what was retrieved:"
_NO_RUN = (
    "an agent asked for advice outside of a captured run, so it gets none and goes on searching, up to max_hops. "
    "Capture it (RagGuardCallback(rg) in its callbacks, or instrument(rg)), or call it inside `with rg.run(question)`"
)


@dataclass(frozen=True, slots=True)
class HopAdvice:
    """The choice of an agent after a hop."""

    enough: bool
    """True where it stops searching and answers."""
    note: str = ""
    """The text that its model is told before its next turn; empty where there is nothing to say."""
    advice: Advice | None = None
    """The advice behind it. None: none could be had, or none was needed since the agent had made all its hops."""


class LoopAdviser:
    """Asks for advice between the hops of agents, and never raises for what an engine or a run does.

    Args:
        max_hops: After how many hops an agent answers, whatever the advice; 1 or more. Searches that are made side by
            side are one hop.
        budget_ms: How many milliseconds advice may take. If that is not enough, the loop goes on.
        max_rephrases: After how many hops in a row that brought nothing for their query an agent answers; 1 or more.
        min_hops: The smallest number of hops of an agent: before, no advice is asked. From 1 to `max_hops`.
    """

    def __init__(
        self,
        max_hops: int = MAX_HOPS,
        budget_ms: float = BUDGET_MS,
        max_rephrases: int = MAX_REPHRASES,
        min_hops: int = 1,
    ) -> None:
        self.max_hops = whole_number("max_hops", max_hops, 1)
        self.min_hops = whole_number("min_hops", min_hops, 1)
        if self.min_hops > self.max_hops:
            raise InvalidInput("min_hops", min_hops, f"a number from 1 to max_hops, {max_hops}")
        self.max_rephrases = whole_number("max_rephrases", max_rephrases, 1)
        self.budget_ms = milliseconds("budget_ms", budget_ms)

    def after(self, hops: int) -> HopAdvice:
        """Returns what to do after so many hops, at most as late as the budget; never raises."""
        try:
            run = self._asked(hops)
            if isinstance(run, HopAdvice):
                return run
            with paused():  # what an engine of the user's own calls is no part of the run
                return self.choice(run.advise(self.budget_ms))
        except Exception as error:  # noqa: BLE001 - advice must never be the reason that an agent fails
            return _without(error)

    @twin_of(after)
    async def aafter(self, hops: int) -> HopAdvice:
        try:
            run = self._asked(hops)
            if isinstance(run, HopAdvice):
                return run
            with paused():
                return self.choice(await run.aadvise(self.budget_ms))
        except Exception as error:  # noqa: BLE001 - advice must never be the reason that an agent fails
            return _without(error)

    def _asked(self, hops: int) -> CurrentCall | HopAdvice:
        """Returns the run that is asked about, or what to do if none is: before `min_hops`, once all hops are made, and
        outside of any run, which is said once."""
        if hops >= self.max_hops:
            return HopAdvice(True, _NO_MORE)
        if hops < self.min_hops:
            return HopAdvice(False)
        run = current_run()
        if run is None and not is_paused():
            NOTICES.once("advice outside a run", _NO_RUN)
        return HopAdvice(False) if run is None else run

    def choice(self, advice: Advice) -> HopAdvice:
        """Returns what to do with advice, which ends a loop also where the latest hops brought nothing."""
        if advice.status != "judged":
            why = "; ".join(advice.reasons) or advice.status
            NOTICES.warn("advice not judged", f"an agent got no advice and goes on searching: {why}")
        in_vain = int(advice.numbers.get("turns_without_help", 0))
        if advice.action != "answer" and in_vain >= self.max_rephrases:
            NOTICES.warn(
                "advice max_rephrases",
                f"an agent answers after {in_vain} hops in a row that brought nothing for their query "
                f"(max_rephrases={self.max_rephrases})",
            )
            return HopAdvice(True, _IN_VAIN.format(hops=in_vain), advice)
        return HopAdvice(advice.action == "answer", note_of(advice), advice)


def note_of(advice: Advice) -> str:
    """Returns what a model is told of advice; empty where there is nothing to say."""
    if advice.action == "answer":
        return _ENOUGH
    if advice.status != "judged":
        return ""
    said = {"rephrase": [_REPHRASE], "distrust": [_DISTRUST]}.get(advice.action, [])
    if advice.open_sub_questions:
        said = [*said, "\n".join([_OPEN, *(f"- {asked}" for asked in advice.open_sub_questions)])]
    return "\n".join(said)


def search_tools_of(names: object) -> frozenset[str] | None:
    """Returns the names of the tools with which an agent searches; None where all of its tools do."""
    if names is None:
        return None
    if not isinstance(names, Collection) or not names or not all(isinstance(one, str) for one in names):
        raise InvalidInput("search_tools", names, "names of tools, one or more; None: all tools of the agent")
    return frozenset([names] if isinstance(names, str) else names)


def check_search_tools(search_tools: frozenset[str] | None, offered: Collection[str], hops: int) -> None:
    """Logs once where an agent is not offered all of the tools that are said to search. Raises InvalidInput where it is
    offered none of them, but others, and has not searched: no hop of it would ever count."""
    wanted = search_tools or frozenset()
    missing = sorted(wanted.difference(offered))
    if offered and not hops and wanted and wanted.isdisjoint(offered):
        allowed = f"names of tools that the agent has, which are {sorted(offered)}"
        raise InvalidInput("search_tools", missing, allowed)
    if missing:
        NOTICES.once(
            f"advice search_tools {missing}",
            f"an agent is not offered {missing} of search_tools; it is offered {sorted(offered)}. Calls of other tools "
            "than search_tools are no hops: they get no advice, and max_hops does not count them. (Logged once a "
            "process)",
        )


def note_calls_left_out() -> None:
    """Logs once that a model which was to answer has called a tool that it was not offered."""
    NOTICES.once(
        "advice calls without tools",
        "a model asked for a search in a turn in which it could only answer. The search is not made, and the text "
        "beside the call is the answer. (Logged once a process)",
    )


def _without(error: Exception) -> HopAdvice:
    why = str(error) if isinstance(error, AdviceError) else describe(error)
    NOTICES.once(
        f"advice {type(error).__name__}",
        f"an agent got no advice and goes on searching, up to max_hops: {why}. (Logged once a process)",
    )
    return HopAdvice(False)
