"""Engines behind HTTP: the client, what servers speak, and what a server is."""
