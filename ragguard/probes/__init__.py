"""Probes: one question put to an engine about a passage or an answer, and how its answer is read. One file each."""
