"""Runs the command `ragguard` as `python -m ragguard`."""

from ragguard.cli import main

main()
