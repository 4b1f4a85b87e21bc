"""An API server to which every command of a test connects."""

from collections.abc import Iterator

import pytest

from sluice_kube import api
from tests.cluster.api_server import ApiServer, running


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    with running() as found:
        monkeypatch.setattr(api, "connect", found.connect)
        yield found
