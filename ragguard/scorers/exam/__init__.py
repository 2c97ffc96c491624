"""The examination of a model: cases of ordinary English, what a model made of them, and what that means for scoring."""
