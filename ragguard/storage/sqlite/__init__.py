"""The store: one SQLite file, and the rows in it."""
