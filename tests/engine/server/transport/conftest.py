"""Each row of bad HTTP input applies to a server without API keys, to one with them, and to a gateway before either."""

from collections.abc import Iterator

import pytest

from tests.engine.serving import CHAT, Served

SERVERS = ("served_without_keys", "served_with_keys", "gateway_without_keys", "gateway_with_keys")
GOOD = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2, "temperature": 0}


@pytest.fixture(scope="module", params=SERVERS)
def served(request: pytest.FixtureRequest) -> Served:
    """The server, in turn without and with keys, and the gateway before it."""
    server: Served = request.getfixturevalue(request.param)
    return server


@pytest.fixture(scope="module", params=SERVERS[:2])
def engine(request: pytest.FixtureRequest) -> Served:
    """The server, in turn without and with keys."""
    server: Served = request.getfixturevalue(request.param)
    return server


@pytest.fixture(scope="module")
def unharmed(served: Served) -> Iterator[None]:
    """After all rows the server still serves, and holds nothing."""
    yield
    assert served.request("POST", CHAT, GOOD).status == 200
    served.wait(lambda: served.blocks()["held"] == 0)
