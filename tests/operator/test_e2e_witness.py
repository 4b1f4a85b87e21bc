"""The story's witness: an answer that breaks off is no answer, and a watch that ends says why."""

import socketserver
import threading
from collections.abc import Iterator

import pytest

from e2e.cluster import Cluster, Recorder

BROKEN_OFF = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nsluice_requests_running 4"
NOT_AS_EXPECTED = b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{"items": 5}'


class Server(socketserver.ThreadingTCPServer):
    """An API server that gives every request the same bytes."""

    daemon_threads = True
    answer = b""


class Answering(socketserver.StreamRequestHandler):
    """Reads a request's head, sends the server's bytes, hangs up."""

    server: Server

    def handle(self) -> None:
        while self.rfile.readline().strip():
            pass
        self.wfile.write(self.server.answer)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield server
        server.shutdown()


def cluster_behind(server: Server) -> Cluster:
    return Cluster("somewhere", f"http://127.0.0.1:{server.server_address[1]}")


def test_an_answer_that_breaks_off_in_the_middle_counts_as_none(server: Server) -> None:
    server.answer = BROKEN_OFF
    assert cluster_behind(server).text("/metrics") is None
    assert cluster_behind(server).metrics("chat-0") == {}


def test_what_ended_the_watch_is_raised_where_its_values_are_asked_for(server: Server) -> None:
    server.answer = NOT_AS_EXPECTED
    recorder = Recorder(cluster_behind(server), "chat")
    recorder.start()
    recorder.join(timeout=30)
    with pytest.raises(RuntimeError, match="the recorder of chat broke"):
        recorder.values("leaving ")
