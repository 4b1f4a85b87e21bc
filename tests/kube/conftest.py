"""One real API server for all tests of a session that ask for it."""

import shutil
from collections.abc import Iterator

import pytest

from tests.kube.api_server import ApiServer, NoApiServer, running
from tests.kube.helm import Helm, apply_crd, remove_crd, wait_until


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """An API server without Sluice's CRD; skips where its programs are not installed."""
    try:
        with running(tmp_path_factory.mktemp("api_server")) as server:
            yield server
    except NoApiServer as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def crd(api_server: ApiServer) -> Iterator[ApiServer]:
    """The API server with the CRD."""
    apply_crd(api_server)
    wait_until(lambda: api_server.get("/apis/sluice.dev/v1alpha1/llmdeployments") is not None)
    yield api_server
    remove_crd(api_server)


@pytest.fixture(scope="session")
def helm(api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm against that API server; skips where it is not installed."""
    program = shutil.which("helm")
    if program is None:
        pytest.skip("helm is not installed")
    return Helm(api_server, program, tmp_path_factory.mktemp("home"))
