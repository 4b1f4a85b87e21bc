"""Render: pure builders of child objects, one file per kind."""
