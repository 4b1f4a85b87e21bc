"""`python -m sluice`."""

from sluice.cli import app

app()
