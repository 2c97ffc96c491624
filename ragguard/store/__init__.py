"""What was captured and what was said of it, on disk: the store, its file formats, its import and export."""
