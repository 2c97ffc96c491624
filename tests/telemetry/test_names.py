"""Every name that telemetry uses is said once and explained."""

from ragguard.telemetry import names


def test_no_name_is_said_twice_and_every_one_has_a_meaning():
    every = [name for group in names.ATTRIBUTES.values() for name in group]
    assert len(every) == len(set(every))
    for name in every:
        assert name.meaning
        assert name.carriers
