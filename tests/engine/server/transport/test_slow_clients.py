"""Clients that send or read slowly are bounded in time and memory, and delay no other client."""

import json
import resource
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from sluice import contract
from sluice.httpapi.connection_limits import RECEIVE_SECONDS, REJECTION_SECONDS
from tests.engine.server.transport.conftest import GOOD, SERVERS
from tests.engine.server.transport.test_http import error_of, head, status_of
from tests.engine.serving import CHAT, Served

CHOICES = 8  # samples of a client that does not read: many output bytes in few steps
DEAF_BYTES = 4096  # receive buffer of a client that does not read
MOST_HELD = 64 * 1024 * 1024  # memory limit of the server for one such client


def test_slow_headers_and_a_stalled_body_are_408_and_closed(request: pytest.FixtureRequest) -> None:
    """At the servers and at the gateways before them. All cases run concurrently, because each takes the full deadline, which
    leaves room for a late timer."""
    assert RECEIVE_SECONDS + REJECTION_SECONDS <= 27
    stalled = head(CHAT, "Content-Type: application/json", "Content-Length: 100") + b'{"model"'
    servers = [request.getfixturevalue(name) for name in SERVERS]
    begun = time.monotonic()
    with ExitStack() as stack:
        connections = []
        for server in servers:
            for data in (b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nX-", server.with_key(stalled)):
                connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
                stack.enter_context(connection).sendall(data)
                connections.append(connection)
        for connection in connections:
            received = b""
            while part := connection.recv(65536):
                received += part
            assert status_of(received) == 408
            error_of(received)
    assert time.monotonic() - begun < 30


def test_a_client_that_pauses_reading_delays_no_other_and_gets_all_events(served_with_keys: Served) -> None:
    """The output exceeds the kernel's buffers, so the server holds it, within a memory limit."""
    served = served_with_keys
    wordy = {**GOOD, "n": CHOICES, "logprobs": True, "top_logprobs": 20, "stream": True, "ignore_eos": True}
    sample = served.request("POST", CHAT, {**wordy, "max_tokens": 16}).body
    per_token = len(sample) // (CHOICES * 16) // 2  # half the bytes of an event, as a lower bound
    kernel = int(Path("/proc/sys/net/ipv4/tcp_wmem").read_text().split()[2]) + 2 * DEAF_BYTES
    needed = kernel // per_token
    tokens = needed // CHOICES * 3 // 2
    assert tokens < 2000, "the context is too short for so many bytes"
    alone = served.request("POST", CHAT, GOOD).json()["choices"]
    generated, memory = served.metric(contract.GENERATED_TOKENS), resident(served.process.pid)
    body = json.dumps({**wordy, "max_tokens": tokens}).encode()
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, DEAF_BYTES)
        deaf.settimeout(60)
        deaf.connect(("127.0.0.1", served.port))
        lines = ("Content-Type: application/json", "Connection: close", f"Content-Length: {len(body)}")
        deaf.sendall(served.with_key(head(CHAT, *lines) + body))
        served.wait(lambda: served.metric(contract.GENERATED_TOKENS) >= generated + needed)
        assert served.request("POST", CHAT, GOOD).json()["choices"] == alone
        assert resident(served.process.pid) < memory + MOST_HELD
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)  # the client starts to read
        received = b"".join(iter(lambda: deaf.recv(1 << 20), b""))
    assert len(received) > kernel
    assert b"data: [DONE]" in received[-100:]
    assert received.count(b'"finish_reason":"length"') == CHOICES
    served.wait(lambda: served.blocks()["held"] == 0)


def resident(pid: int) -> int:
    """Returns the resident memory of a process in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
