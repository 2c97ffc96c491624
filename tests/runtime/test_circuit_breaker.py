"""The circuit breaker: opens after failures in a row, lets one call at a time try again, closes with a success."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clock import Clock

from ragguard.errors import CircuitOpen, EngineUnreachable
from ragguard.runtime import circuit_breaker
from ragguard.runtime.circuit_breaker import CircuitBreaker, RetrySchedule

PAUSES = RetrySchedule(first=10.0, longest=40.0, jitter=(1.0, 1.0))


def fail(breaker: CircuitBreaker, why: str = "gone") -> bool:
    return breaker.failed(breaker.enter(), why, EngineUnreachable(why))


def test_breaker_opens_after_consecutive_failures_and_names_the_cause(breaker_clock):
    breaker = CircuitBreaker(3, PAUSES)
    assert [fail(breaker), fail(breaker)] == [False, False]
    breaker.succeeded()
    assert [fail(breaker, f"fault {n}") for n in range(3)] == [False, False, True]
    with pytest.raises(CircuitOpen, match=r"3 times in a row; it is tried again in 10.0 s. .*: fault 2"):
        breaker.enter()
    assert breaker.is_open
    assert 9.9 < breaker.pause <= 10.0


def test_pauses_grow_with_each_failed_try_and_begin_anew_after_a_success(breaker_clock):
    breaker, pauses = CircuitBreaker(1, PAUSES), []
    for _ in range(4):
        fail(breaker)
        pauses.append(round(breaker.pause))
        breaker_clock.now += pauses[-1] + 1
    breaker.succeeded()
    assert (breaker.is_open, breaker.pause) == (False, 0.0)
    fail(breaker)
    assert [*pauses, round(breaker.pause)] == [10, 20, 40, 40, 10]


def test_calls_of_one_cause_that_were_under_way_together_are_one_failure(breaker_clock):
    breaker, shared = CircuitBreaker(2, PAUSES), EngineUnreachable("gone")
    together = [breaker.enter() for _ in range(9)]
    assert not any(breaker.failed(attempt, "gone", shared) for attempt in together)
    assert breaker.failed(breaker.enter(), "gone", shared)


@given(
    st.integers(1, 4), st.lists(st.sampled_from(["enter", "fail", "succeed", "leave", "wait"]), max_size=60)
)
def test_whatever_happens_one_call_at_a_time_tries_an_open_circuit(after, steps):
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(circuit_breaker, "monotonic", clock)
        breaker, calls, probes, failures = CircuitBreaker(after, PAUSES), [], [], 0
        for step in steps:
            if step == "wait":
                clock.now += 15.0
            elif step == "enter":
                was_open, pause = breaker.is_open, breaker.pause
                try:
                    attempt = breaker.enter()
                except CircuitOpen:
                    assert was_open
                    assert pause > 0 or probes
                else:
                    assert not was_open or (pause == 0 and not probes)
                    (probes if was_open else calls).append(attempt)
            elif probes or calls:
                kind = probes or calls
                attempt = kind.pop()
                if step == "succeed":
                    breaker.succeeded()
                    calls, probes, failures = calls + probes, [], 0
                    assert not breaker.is_open
                elif step == "leave":
                    breaker.left(attempt)
                else:
                    failures += 1
                    was_open = breaker.is_open
                    opened = breaker.failed(attempt, "gone", EngineUnreachable())
                    assert opened is (kind is probes or (not was_open and failures >= after))
                    assert breaker.is_open is (was_open or opened)


seconds = st.floats(0.001, 1e4)


@given(seconds, seconds, st.integers(1, 2000), st.floats(0, 1), st.floats(1, 2))
def test_a_wait_lies_within_the_jitter_of_the_doubled_first_one(first, longest, failures, low, high):
    wait = RetrySchedule(first=first, longest=longest, jitter=(low, high)).wait(failures)
    full = min(longest, first * 2.0 ** min(failures - 1, 60))
    assert full * low <= wait <= full * high


@given(st.integers(1, 50))
def test_after_the_last_attempt_there_is_no_wait(attempts):
    schedule = RetrySchedule(attempts)
    assert [schedule.after(number) is None for number in range(1, attempts + 3)] == [
        number >= attempts for number in range(1, attempts + 3)
    ]


def test_failures_in_a_row_beside_answers_open_nothing(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("ragguard.runtime.circuit_breaker.monotonic", lambda: now[0])
    breaker = CircuitBreaker(3, RetrySchedule(), silence=1.0)
    breaker.succeeded()
    for _ in range(9):
        now[0] += 0.1
        breaker.failed(breaker.enter(), "500", EngineUnreachable("500"))
        assert not breaker.is_open
    now[0] += 0.2
    breaker.failed(breaker.enter(), "500", EngineUnreachable("later"))
    assert breaker.is_open
