"""The model as its config.json says it: layers, parameters, weights."""
