"""What the fields of a log mean: JSON as it is really written, clocks, numbers, words of status."""
