"""Does a metric predict the answer? The papers' experiments, on a world with known truth or on one's own data."""
