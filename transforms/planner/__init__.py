"""KV memory, step time, residency, KV·time and sizing."""
