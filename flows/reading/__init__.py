"""Bytes to lines to batches of decoded records."""
