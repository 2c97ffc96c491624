"""Texts: answers, addresses with credentials, secrets, terminals."""
