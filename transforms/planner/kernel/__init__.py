"""The engine in virtual time, compiled by numba: the only room that imports it."""
