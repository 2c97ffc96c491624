"""Parts that the whole package uses and that know nothing of it: notices, threads, the clock, event loops."""
