"""One module per log format with logic of its own: decoded records in, canonical rows out."""
