"""What to do with a session's KV while its tools run."""
