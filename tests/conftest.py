"""What every room's tests may share: the tiny trained model."""

from pathlib import Path

import pytest

from sluice_engine import tiny


@pytest.fixture(scope="session")
def tiny_model() -> Path:
    """Folder of the tiny model (float32). Trained once per machine, then taken from the user's cache; never write to it."""
    return tiny.ensure()
