"""Which Pythons of a machine the tests run on."""

from __future__ import annotations

import sys

from support.interpreters import interpreters


def test_interpreters_that_start_are_found_each_version_once(tmp_path):
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "python3.11").symlink_to(sys.executable)
    shim = tmp_path / "first" / "python3.99"
    shim.write_text("#!/bin/sh\necho 'python3.99: command not found' >&2\nexit 127\n")
    shim.chmod(0o755)
    (tmp_path / "first" / "python3.11-config").write_text("")
    where = [tmp_path / "missing", tmp_path / "first", tmp_path / "second"]
    assert interpreters(where) == [(sys.version_info[:3], tmp_path / "first" / "python3.11")]


def test_versions_that_are_not_supported_are_left_out(tmp_path):
    old = tmp_path / "python3.10"
    old.write_text("#!/bin/sh\necho 3 10 13 1\n")
    old.chmod(0o755)
    assert interpreters([tmp_path]) == []
