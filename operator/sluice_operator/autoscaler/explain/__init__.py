"""Explanations: each decision as a sentence with its numbers."""
