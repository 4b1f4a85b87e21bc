"""Embedding and scoring models: one vector per text."""
