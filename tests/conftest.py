"""What every room's tests may share: the tiny trained model, a server of it, and how property tests choose examples.

`make test` tries the same examples each time, so that who repeats a run sees what was seen; `HYPOTHESIS_PROFILE=search
make test` looks for new ones.
"""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from sluice_engine import tiny
from tests.engine.server.auth.keys import entry, key_file, key_of
from tests.engine.serving import Served, serving

SLOW = (HealthCheck.too_slow,)  # a busy machine is no failure
settings.register_profile("repeatable", derandomize=True, deadline=None, suppress_health_check=SLOW)
settings.register_profile("search", deadline=None, suppress_health_check=SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    """A command that runs in the test's own process configures the root logger: later tests must not notice."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(scope="session")
def tiny_model() -> Path:
    """Folder of the tiny model (float32). Trained once per machine, then taken from the user's cache; never write to it."""
    return tiny.ensure()


@pytest.fixture(scope="session")
def served_without_keys(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One real `sluice serve` of the tiny model for every test that only sends requests. Leave it as you found it."""
    with serving(tiny_model, tmp_path_factory.mktemp("served") / "log") as server:
        yield server


@pytest.fixture(scope="session")
def served(served_without_keys: Served) -> Served:
    """The server of most tests; a module overrides it to send its requests to another one too."""
    return served_without_keys


@pytest.fixture(scope="session")
def served_with_keys(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """As `served`, with API keys; requests carry the key of one tenant, whose rates are too high to matter."""
    folder = tmp_path_factory.mktemp("served-with-keys")
    file = folder / "keys.yaml"
    file.write_bytes(key_file(entry("tests", requestsPerMinute=10**9, tokensPerMinute=10**9), entry("others")))
    with serving(tiny_model, folder / "log", "--api-keys-file", str(file)) as server:
        server.key = key_of("tests")
        yield server
