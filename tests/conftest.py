"""What every room's tests may share: the tiny trained model, a server of it, and how property tests choose examples.

`make test` tries the same examples each time, so that who repeats a run sees what was seen; `HYPOTHESIS_PROFILE=search
make test` looks for new ones.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from sluice_engine import tiny
from tests.engine.serving import Served, serving

SLOW = (HealthCheck.too_slow,)  # a busy machine is no failure
settings.register_profile("repeatable", derandomize=True, deadline=None, suppress_health_check=SLOW)
settings.register_profile("search", deadline=None, suppress_health_check=SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.fixture(scope="session")
def tiny_model() -> Path:
    """Folder of the tiny model (float32). Trained once per machine, then taken from the user's cache; never write to it."""
    return tiny.ensure()


@pytest.fixture(scope="session")
def served(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One real `sluice serve` of the tiny model for every test that only sends requests. Leave it as you found it."""
    with serving(tiny_model, tmp_path_factory.mktemp("served") / "log") as server:
        yield server
