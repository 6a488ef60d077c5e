"""Every side effect: disk, DuckDB connections, Prefect, terminal."""

import gc

gc.set_threshold(100_000, 20, 100)
"""Imports and rows make many objects that stay; looking for rings among them every 700 was a sixth of `kvledger kv`."""
