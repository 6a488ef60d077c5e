"""Every side effect: disk, DuckDB connections, Prefect, terminal."""
