"""Keeps captured runs and their scores on disk: the store, its file formats, import and export."""
