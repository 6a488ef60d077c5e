"""What sits in the KV cache, second by second, and for how long."""
