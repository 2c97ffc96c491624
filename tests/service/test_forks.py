"""What a fork must not find locked."""

from pathlib import Path

import ragguard


def test_nothing_is_computed_once_under_a_lock_of_the_whole_class():
    """On Python 3.11 `functools.cached_property` holds one for all instances; a fork that happens meanwhile copies
    it locked, and the child's scorer waits for it without end."""
    files = Path(ragguard.__file__).parent.rglob("*.py")
    assert not [path.name for path in files if "cached_property\n" in path.read_text()]
