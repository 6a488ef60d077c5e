"""Pure computation: no IO, no clock, no unseeded randomness."""
