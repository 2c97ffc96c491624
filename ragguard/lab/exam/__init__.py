"""The whole examination of a model; its short form, and what a record means for scores, are in `ragguard.scorers`."""
