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
from tests.gateway.http.front import gateway_before

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
def key_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A key file of two tenants, of which `tests` has rates too high to matter, and the file of a gateway's token."""
    folder = tmp_path_factory.mktemp("keys")
    keys, token = folder / "keys.yaml", folder / "token"
    keys.write_bytes(key_file(entry("tests", requestsPerMinute=10**9, tokensPerMinute=10**9), entry("others")))
    token.write_text("token-of-the-gateway")
    return str(keys), str(token)


@pytest.fixture(scope="session")
def served_with_keys(
    tiny_model: Path, key_files: tuple[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """As `served`, with API keys; requests carry the key of the tenant `tests`. It takes tenants from its gateway."""
    log, (keys, token) = tmp_path_factory.mktemp("served-with-keys") / "log", key_files
    with serving(tiny_model, log, "--api-keys-file", keys, "--gateway-token-file", token) as server:
        server.key = key_of("tests")
        yield server


@pytest.fixture(scope="session")
def gateway_without_keys(served_without_keys: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A real `sluice gateway` before that server; its admin port is the server's."""
    with gateway_before(served_without_keys, tmp_path_factory.mktemp("gateway") / "log") as gateway:
        yield gateway


@pytest.fixture(scope="session")
def gateway_with_keys(
    served_with_keys: Served, key_files: tuple[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """The same before the server with API keys: it verifies them, and tells the server the tenant."""
    log, (keys, token) = tmp_path_factory.mktemp("gateway-with-keys") / "log", key_files
    options = ("--api-keys-file", keys, "--engine-token-file", token)
    with gateway_before(served_with_keys, log, *options) as gateway:
        yield gateway
