"""The window: grows while answers come soon, halves once where they come late, and never below one request."""

import pytest

from ragguard.runtime import limiter
from ragguard.runtime.limiter import LEAST, WorkWindow


class Clock:
    """A clock that a test sets."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(limiter, "time", clock)
    return clock


async def work(given: WorkWindow, clock: Clock, tokens: int, seconds: float) -> None:
    """Fills the window and answers after some seconds."""
    began = clock.now
    place = await given.enter(tokens, 0, None)
    clock.now += seconds
    given.answered(tokens, began, 120)
    place.leave()


async def test_it_doubles_until_an_answer_is_late_and_then_grows_by_one_request_a_round(clock):
    given = WorkWindow(1000)
    for size in (2000, 4000, 8000):
        await work(given, clock, given.size, 20)
        assert given.size == size
    await work(given, clock, 8000, 61)
    assert given.size == 4000
    await work(given, clock, 4000, 20)
    assert given.size == 4000 + LEAST
    await work(given, clock, given.size, 40)  # neither soon nor late
    assert given.size == 4000 + LEAST


async def test_a_fast_engine_is_given_two_seconds_of_its_pace(clock):
    given = WorkWindow(1000)
    await work(given, clock, 1000, 0.03125)
    assert given.size == 64_000


async def test_what_was_given_before_it_halved_does_not_halve_it_again(clock):
    given, began = WorkWindow(8000), clock.now
    clock.now += 120
    for _ in range(20):
        given.late(began)
    assert given.size == 4000
    clock.now += 1
    for _ in range(20):
        given.late(clock.now)
        clock.now += 1
    assert given.size == LEAST


async def test_little_work_says_nothing_about_more(clock):
    given = WorkWindow(1000)
    for _ in range(50):
        await work(given, clock, 250, 20)
    assert given.size == 1000
