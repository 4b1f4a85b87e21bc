"""One real API server for all tests of a session that ask for it."""

from collections.abc import Iterator

import pytest

from tests.kube.api_server import ApiServer, NoApiServer, running


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """An API server without Sluice's CRD; skips where its programs are not installed."""
    try:
        with running(tmp_path_factory.mktemp("api_server")) as server:
            yield server
    except NoApiServer as error:
        pytest.skip(str(error))
