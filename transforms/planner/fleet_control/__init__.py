"""Fleets that grow and shrink with their load."""
