"""Reports of scored runs: in a terminal, as a page, as a comparison."""
