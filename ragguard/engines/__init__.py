"""Engines: what gives probabilities. The names below are loaded when they are first used."""
