"""Data sets on a disk become contexts. One file a format; `dataset.py` says which one a path holds."""
