"""The HTTP service: takes traces and runs of applications in any language, scores them, and answers their questions."""
