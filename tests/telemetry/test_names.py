"""Every name that telemetry uses is said once and explained."""

from ragguard.telemetry import names


def test_names_are_unique_and_have_meanings_and_carriers():
    every = [name for group in names.ATTRIBUTES.values() for name in group]
    assert len(every) == len(set(every))
    for name in every:
        assert name.meaning
        assert name.carriers
