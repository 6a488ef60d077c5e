"""From demands to GPU counts: the rows of a plan."""
