"""`python -m sluice`."""

from sluice.cli import main

main()
