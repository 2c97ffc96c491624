"""Run files, score files, and folders of scored parts."""
