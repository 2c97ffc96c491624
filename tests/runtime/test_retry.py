"""The retry schedule: waits double up to a bound, within the jitter, and end."""

from hypothesis import given
from hypothesis import strategies as st

from ragguard.runtime.retry_schedule import RetrySchedule

seconds = st.floats(0.001, 1e4)


@given(seconds, seconds, st.integers(1, 2000), st.floats(0, 1), st.floats(1, 2))
def test_a_wait_lies_within_the_jitter_of_the_doubled_first_one(first, longest, failures, low, high):
    wait = RetrySchedule(first=first, longest=longest, jitter=(low, high)).wait(failures)
    full = min(longest, first * 2.0 ** min(failures - 1, 60))
    assert full * low <= wait <= full * high


@given(seconds, seconds)
def test_without_jitter_waits_never_shrink(first, longest):
    schedule = RetrySchedule(first=first, longest=longest, jitter=(1.0, 1.0))
    waits = [schedule.wait(failures) for failures in range(1, 100)]
    assert waits == sorted(waits)
    assert waits[-1] == longest


@given(st.integers(1, 50))
def test_after_the_last_attempt_there_is_no_wait(attempts):
    schedule = RetrySchedule(attempts)
    assert [schedule.after(number) is None for number in range(1, attempts + 3)] == [
        number >= attempts for number in range(1, attempts + 3)
    ]
