"""The server of faults in front of a real API server."""

import gc
import socket
import warnings
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from tests.kube.api_server import TOKEN, ApiServer
from tests.kube.operators.faulty_server import FaultyServer, faulty

SERVERS = 10
CLIENTS = 40


def ask_and_leave(wire: FaultyServer) -> None:
    """Clients ask at once and leave; the first answer is awaited, so that some requests are on their way and some not."""
    url = urlsplit(yaml.safe_load(wire.kubeconfig.read_text())["clusters"][0]["cluster"]["server"])
    request = f"GET /api/v1/namespaces?watch=1 HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    with ExitStack() as open_:
        address = (str(url.hostname), int(url.port or 0))
        clients = [open_.enter_context(socket.create_connection(address)) for _ in range(CLIENTS)]
        for each in clients:
            each.sendall(request.encode())
        clients[0].recv(1)


def test_clients_that_leave_at_any_moment_leave_no_connection_open(crd: ApiServer, tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True, action="always") as found:
        for each in range(SERVERS):
            with faulty(crd, tmp_path / str(each)) as wire:
                ask_and_leave(wire)
            assert wire.asked
        gc.collect()
    assert not [str(each.message) for each in found if issubclass(each.category, ResourceWarning)]
