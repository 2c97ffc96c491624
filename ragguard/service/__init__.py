"""The service behind the hooks: the queue to the store, the scorer's thread, and their orderly end."""
