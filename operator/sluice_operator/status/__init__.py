"""Computes the status of a resource by pure functions: fields, conditions and Events."""
