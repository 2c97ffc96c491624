"""Sinks: where scores go."""
