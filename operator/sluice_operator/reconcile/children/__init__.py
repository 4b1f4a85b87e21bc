"""Writes the children of a resource."""
