"""The settings of a RagGuard: checked when they are made, plain data, and all that the service derives from them."""

import inspect
import pickle
from dataclasses import fields
from datetime import timedelta

import pytest
from support.scripted_pipeline import ListSink

from ragguard import RagGuard
from ragguard.errors import InvalidInput
from ragguard.scorers.settings import ScoringSettings
from ragguard.service.configuration import Configuration


def test_settings_are_plain_data():
    """They cross to another process as they are; a table of references does, too."""
    settings = Configuration(
        scoring=ScoringSettings(scorers=["utility"], budget={"tokens": 10_000}),
        store=None,
        references={"Who founded it?": "Ada Berg"},
        retention=timedelta(days=1),
    )
    copy = pickle.loads(pickle.dumps(settings))
    assert copy == settings
    assert copy.find_references("who  founded IT?") == ["Ada Berg"]
    assert copy.kept_seconds == 86_400
    with pytest.raises(AttributeError):
        copy.queue_size = 3


@pytest.mark.parametrize(("policy", "seconds"), [("drop_oldest", 0.0), ("block(2.5)", 2.5)])
def test_the_overflow_policy_decides_how_long_a_thread_waits(policy, seconds):
    settings = Configuration(store=None, queue_size=10, on_overflow=policy)
    assert (settings.queue_events, settings.block_seconds) == (640, seconds)


@pytest.mark.parametrize(
    ("more", "scored"),
    [({}, False), ({"sinks": [ListSink()]}, True), ({"otlp": "http://localhost:4318"}, True)],
    ids=["nobody hears of it", "sink", "spans"],
)
def test_ended_runs_wait_for_the_scorer_where_somebody_hears_of_them(more, scored):
    assert Configuration(scoring=ScoringSettings(scorers=()), **more).scored == scored
    assert Configuration(**more).scored


@pytest.mark.parametrize(
    "wrong",
    [
        {"queue_size": 0}, {"queue_bytes": 1.5}, {"concurrency": True}, {"on_overflow": "block"}, {"score_rate": 1.1},
        {"exit_timeout": -1}, {"run_ttl": 0}, {"sinks": ListSink()}, {"sinks": [object()]}, {"redact": "x"},
        {"references": 3}, {"references": {3: "x"}}, {"retention": 0}, {"retention": 1e12},
    ],
    ids=lambda wrong: " ".join(wrong),
)  # fmt: skip
def test_a_wrong_setting_is_named(wrong):
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        Configuration(**wrong)


def test_every_argument_of_rag_guard_is_a_setting_with_the_same_default():
    arguments = inspect.signature(RagGuard).parameters
    settings = {
        field.name: field.default
        for settings in (ScoringSettings, Configuration)
        for field in fields(settings)
    }
    assert {name: argument.default for name, argument in arguments.items()}.items() <= settings.items()
    assert settings.keys() - arguments.keys() == {"scoring", "retry", "tick_seconds", "events_a_run"}
