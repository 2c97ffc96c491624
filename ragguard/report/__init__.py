"""Reports: what scored runs say, for a terminal, a page, a comparison."""
