"""Probes: questions to an engine about a passage or an answer, one kind in each file, and how the answers are read."""
