"""A trace through one engine in virtual time, and what is read from it."""
