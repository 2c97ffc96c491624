"""Engines behind HTTP: the client, the APIs of servers, and the detection of a server's features."""
