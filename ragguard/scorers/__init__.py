"""Scorers ask models about a run and turn the answers into scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragguard.runtime import lazy

if TYPE_CHECKING:
    from ragguard.facts.steps import StepView as StepView
    from ragguard.scorers.belief import Belief as Belief
    from ragguard.scorers.contested import Contested as Contested
    from ragguard.scorers.coverage import Coverage as Coverage
    from ragguard.scorers.grades import Grades as Grades
    from ragguard.scorers.passage_belief import PassageBelief as PassageBelief
    from ragguard.scorers.plan import Plan as Plan
    from ragguard.scorers.question import Ask as Ask
    from ragguard.scorers.question import EntailQuestion as EntailQuestion
    from ragguard.scorers.question import LabelQuestion as LabelQuestion
    from ragguard.scorers.question import SampleQuestion as SampleQuestion
    from ragguard.scorers.random_baseline import RandomBaseline as RandomBaseline
    from ragguard.scorers.scorer import Scorer as Scorer
    from ragguard.scorers.utility import Utility as Utility
    from ragguard.scorers.view import Caps as Caps
    from ragguard.scorers.view import View as View

_HOMES = {
    "Ask": "ragguard.scorers.question",
    "Belief": "ragguard.scorers.belief",
    "Caps": "ragguard.scorers.view",
    "Contested": "ragguard.scorers.contested",
    "Coverage": "ragguard.scorers.coverage",
    "EntailQuestion": "ragguard.scorers.question",
    "Grades": "ragguard.scorers.grades",
    "LabelQuestion": "ragguard.scorers.question",
    "PassageBelief": "ragguard.scorers.passage_belief",
    "Plan": "ragguard.scorers.plan",
    "RandomBaseline": "ragguard.scorers.random_baseline",
    "SampleQuestion": "ragguard.scorers.question",
    "Scorer": "ragguard.scorers.scorer",
    "StepView": "ragguard.facts.steps",
    "Utility": "ragguard.scorers.utility",
    "View": "ragguard.scorers.view",
}
"""The module in which each name is defined, by the name."""

__all__ = list(_HOMES)
__getattr__, __dir__ = lazy(__name__, _HOMES)
