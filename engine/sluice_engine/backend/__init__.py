"""Executes a plan on a model: batches of tensors in, one token or one vector per request out."""
