"""The sample: two weeks of made-up gateway traffic, shaped on published facts, the same bytes for the same seed."""
