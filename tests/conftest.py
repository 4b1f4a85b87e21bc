"""What every room's tests may share: the tiny trained model, and a server of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice_engine import tiny
from tests.engine.serving import Served, serving


@pytest.fixture(scope="session")
def tiny_model() -> Path:
    """Folder of the tiny model (float32). Trained once per machine, then taken from the user's cache; never write to it."""
    return tiny.ensure()


@pytest.fixture(scope="session")
def served(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One real `sluice serve` of the tiny model for every test that only sends requests. Leave it as you found it."""
    with serving(tiny_model, tmp_path_factory.mktemp("served") / "log") as server:
        yield server
