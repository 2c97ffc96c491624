"""Engines that judge and do not read: what answers typed questions with a probability for each option."""
