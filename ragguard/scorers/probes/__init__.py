"""Probes: questions to an engine about a passage or an answer, and how the answers are read."""
