"""The scorers by name, and the levels of effort that choose among them: the one table of what a run can be scored by.

Settings, options of commands, their help texts, the settings page and the planner's costs are made of it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from ragguard.errors import InvalidInput, UnknownName, did_you_mean
from ragguard.metrics.distraction import Relevance
from ragguard.scorers.answer_words import AnswerWords
from ragguard.scorers.answers import Answers
from ragguard.scorers.belief import Belief
from ragguard.scorers.contested import Contested
from ragguard.scorers.coverage import Coverage
from ragguard.scorers.grades import Grades
from ragguard.scorers.passage_belief import PassageBelief
from ragguard.scorers.random_baseline import RandomBaseline
from ragguard.scorers.scorer import Scorer
from ragguard.scorers.utility import QueryFit, Utility
from ragguard.scorers.view import Caps

FAMILIES: Mapping[str, tuple[Callable[[], Scorer], ...]] = {
    "belief": (Belief,),
    "likelihood": (partial(Belief, by="likelihood"), QueryFit, PassageBelief, AnswerWords),
    "utility": (Utility,),
    "coverage": (Coverage, Contested, Answers),
    "grades": (Grades,),
    "random": (RandomBaseline,),
    "words": (AnswerWords,),
}
"""The scorers behind each name that `scorers=` takes."""
OURS = (
    Belief, QueryFit, PassageBelief, RandomBaseline, Utility, Coverage, Contested, Answers, AnswerWords, Grades,
)  # fmt: skip
"""ragguard's own scorers, which complete their results themselves."""
Effort = Literal["low", "medium", "high"]


@dataclass(frozen=True, slots=True)
class Level:
    """The scorers and caps of one effort."""

    asks: str
    """The questions that it puts, in few words."""
    gives: str
    """The meaning of its scores, as the settings page shows it."""
    scorers: tuple[str | Scorer, ...]
    caps: Caps


LEVELS: Mapping[Effort, Level] = {
    "low": Level(
        "likelihood",
        "how much likelier each hop and each passage makes the right answer, and how well a passage fits its query",
        ("likelihood",), Caps(prompt_tokens=20_000),
    ),
    "medium": Level(
        "belief as far as needed, utility",
        "belief, by likelihood, and by answers only if that is not enough (ΔSePer, likelihood); utility of each "
        "passage, UDCG",
        (Belief(by="auto", credit=1), "utility"), Caps(prompt_tokens=40_000),
    ),
    "high": Level(
        "belief from samples, credit, utility, coverage",
        "belief from ten answers in each context, with credit over hops; utility, UDCG; coverage of sub-questions, "
        "contradictions, verdicts on the answer",
        ("belief", "utility", "coverage"), Caps(),
    ),
}  # fmt: skip
"""The level of each effort, the cheapest first."""
DEFAULT: Effort = "high"
"""The effort of whoever names none, with any engine but `smol`."""
DEFAULT_OF_SMOL: Effort = "low"
"""The same with `smol`, whose labels cannot judge."""
USUAL = LEVELS[DEFAULT].scorers


def _is_sync(score: Callable[..., Any]) -> bool:
    """Returns whether a function or method was written without `async`."""
    score = inspect.unwrap(score)
    return inspect.isroutine(score) and not inspect.iscoroutinefunction(score)


def scorers_of(given: Sequence[str | Scorer], relevance: Relevance) -> tuple[Scorer, ...]:
    """Returns the scorers that are named or given, with the form of relevance of those that are named; raises
    InvalidInput for what is no scorer, and for one that is given twice."""
    scorers: list[Scorer] = []
    for item in given:
        if isinstance(item, str):
            if item not in FAMILIES:
                raise UnknownName("scorers", item, did_you_mean(item, FAMILIES) + ", ".join(FAMILIES))
            made = [make() for make in FAMILIES[item]]
            scorers += [
                replace(scorer, relevance=relevance) if isinstance(scorer, Utility) else scorer
                for scorer in made
            ]
        elif isinstance(item, type) or not isinstance(item, Scorer) or _is_sync(item.score):
            allowed = "an object with `name`, `version` and `async def score(view, ask)`"
            raise InvalidInput("scorers", item, f"one of {', '.join(FAMILIES)}, or {allowed}")
        else:
            scorers.append(item)
    judged = any(isinstance(scorer, Answers) for scorer in scorers)
    words = [scorer for scorer in scorers if isinstance(scorer, AnswerWords)][:1]
    others = [scorer for scorer in scorers if not isinstance(scorer, AnswerWords)]
    scorers = [*(replace(scorer, verdict=scorer.verdict and not judged) for scorer in words), *others]
    names = [scorer.name for scorer in scorers]
    if len(set(names)) < len(names):
        raise InvalidInput("scorers", names, "each scorer once")
    return tuple(scorers)
