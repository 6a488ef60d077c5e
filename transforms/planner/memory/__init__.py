"""The memory of a GPU and the one KV account of every engine."""
