"""The story's witness: an answer that breaks off is no answer, and a watch that ends says why."""

import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from e2e.framework import cluster as story
from e2e.framework.cluster import Cluster, CommandFailed, Recorder, TimedOut, run

BROKEN_OFF = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nsluice_requests_running 4"
NOT_AS_EXPECTED = b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{"items": 5}'
CUT_OFF = b'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{"items": ['
NOT_NOW = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
NOTHING_THERE = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"

# A kubectl that fails so often with these words, and then says how often it was run, or fails with the others.
KUBECTL = """#!/bin/sh
echo >> "$0.runs"
runs=$(wc -l < "$0.runs")
if [ "$runs" -le {failing} ]; then echo '{words}' >&2; exit 1; fi
if [ -n '{then}' ]; then echo '{then}' >&2; exit 1; fi
echo "$runs"
"""


class Server(socketserver.ThreadingTCPServer):
    """An API server that gives every request the same bytes, after what it says `first` to one each."""

    daemon_threads = True
    answer = b""
    first: tuple[bytes, ...] = ()


class Answering(socketserver.StreamRequestHandler):
    """Reads a request's head, sends the server's bytes, hangs up."""

    server: Server

    def handle(self) -> None:
        while self.rfile.readline().strip():
            pass
        answer, self.server.first = (*self.server.first, self.server.answer)[0], self.server.first[1:]
        self.wfile.write(answer)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(story, "PAUSE", 0.0)


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


def test_a_pods_end_is_timed_from_the_last_look_before_its_deletion(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter([0.0, 0.0, 10.0, 20.0, 32.0])  # the start takes two
    monkeypatch.setattr(story, "time", SimpleNamespace(monotonic=lambda: next(now)))
    recorder = Recorder(cluster_behind(server), "chat")
    stays: dict[str, Any] = {"metadata": {"name": "a"}}
    leaves: dict[str, Any] = {"metadata": {"name": "b"}}
    recorder._note_departures([stays, leaves])
    recorder._note_departures([stays, {"metadata": {"name": "b", "deletionTimestamp": "2026-01-01T00:00:00Z"}}])
    assert recorder.gone == {}
    recorder._note_departures([stays])
    assert recorder.gone == {"b": 22.0}


def test_an_object_is_asked_for_until_the_server_says_what_it_is(server: Server) -> None:
    server.first, server.answer = (NOT_NOW, BROKEN_OFF, CUT_OFF, b""), NOT_AS_EXPECTED
    assert cluster_behind(server).get("/api") == {"items": 5}
    assert not server.first


def test_only_a_server_that_says_so_has_no_such_object(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.answer = NOTHING_THERE
    assert cluster_behind(server).get("/api") is None
    server.answer = NOT_NOW
    monkeypatch.setattr(story, "PATIENCE", 0.0)
    with pytest.raises(TimedOut, match="503"):
        cluster_behind(server).get("/api")


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path / "kubectl"


def scripted(kubectl: Path, failing: int, words: str, then: str = "") -> None:
    kubectl.write_text(KUBECTL.format(failing=failing, words=words, then=then))
    kubectl.chmod(0o755)


@pytest.mark.parametrize(
    "words",
    [
        "Unable to connect to the server: net/http: TLS handshake timeout",
        "The connection to the server 127.0.0.1:6443 was refused - did you specify the right host or port?",
        'error: Get "https://127.0.0.1:6443/api": dial tcp 127.0.0.1:6443: connect: connection refused',
        "Error from server: etcdserver: request timed out",
        "Error from server: error dialing backend: EOF",
        "Error from server (Conflict): the object has been modified; please apply your changes to the latest version",
    ],
)
def test_a_kubectl_that_met_a_passing_trouble_is_run_again(kubectl: Path, words: str) -> None:
    scripted(kubectl, 2, words)
    assert run("kubectl", "get", "pods") == "3\n"


@pytest.mark.parametrize(
    ("command", "words"),
    [("get", 'namespaces "a" not found'), ("exec", "error dialing backend: EOF")],
)
def test_what_is_refused_and_what_may_have_run_is_not_run_again(kubectl: Path, command: str, words: str) -> None:
    scripted(kubectl, 1, words)
    with pytest.raises(CommandFailed, match=words):
        run("kubectl", command)
    assert run("kubectl", command) == "2\n"


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("delete", 'Error from server (NotFound): pods "a" not found'),
        ("create", 'Error from server (AlreadyExists): namespaces "a" already exists'),
    ],
)
def test_a_write_that_was_done_when_its_answer_was_lost_is_no_failure(kubectl: Path, verb: str, words: str) -> None:
    scripted(kubectl, 1, "error: unexpected EOF", then=words)
    assert run("kubectl", verb, "it") == ""
    with pytest.raises(CommandFailed, match="Error from server"):  # nothing was lost before that
        run("kubectl", verb, "it")
