"""Bad input over HTTP returns an error in OpenAI's format and does not affect other clients."""

import asyncio
import json
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from sluice import contract
from sluice_gateway import Backend, Gateway
from tests.engine.serving import Served

CHAT = "/v1/chat/completions"
GOOD = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2, "temperature": 0}
TYPE = {"Content-Type": "application/json"}
CHOICES = 8  # samples of a client that does not read: many output bytes in few steps
DEAF_BYTES = 4096  # receive buffer of a client that does not read
MOST_HELD = 64 * 1024 * 1024  # memory limit of the server for one such client


@pytest.fixture(autouse=True, scope="module")
def _unharmed(served: Served) -> Iterator[None]:
    yield
    assert served.request("POST", CHAT, GOOD).status == 200  # the server still serves
    served.wait(lambda: served.blocks()["held"] == 0)


def head(path: str, *lines: str, method: str = "POST", host: str = "localhost") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: {host}", *lines, "", ""]).encode("latin-1")


def status_of(response: bytes) -> int:
    return int(response.split(b" ", 2)[1])


def error_of(response: bytes) -> dict[str, object]:
    error = json.loads(response.partition(b"\r\n\r\n")[2])["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return dict(error)


@pytest.mark.parametrize(
    "request_bytes",
    [
        head(CHAT, "X-Long: " + "a" * 9000),
        head(CHAT, *(f"X-{index}: 1" for index in range(200))),
        head("/" + "a" * 10_000, method="GET"),
        head(CHAT, "Content-Length: 2", "Transfer-Encoding: chunked", *[""]) + b"{}",
        head(CHAT, "Content-Length: 2", "Content-Length: 3") + b"{}",
        head(CHAT, "Content-Length: -1"),
        head(CHAT, "Content-Length: x"),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64,
        b"GET /v1/models HTTP/1.1\r\nConnection: close\r\n\r\n",
        head("/v1/models", "Connection: close", method="GET", host="a/b?c"),
        head("/v1/models", "Connection: close", method="GET", host="evil.example"),
        head("/v1/models", "Host: localhost", method="GET"),
        b"nonsense\r\n\r\n",
    ],
    ids=lambda value: repr(value[:30]),
)
def test_malformed_http_is_400_in_openais_shape(served: Served, request_bytes: bytes) -> None:
    response = served.raw(request_bytes)
    assert status_of(response) == 400
    error_of(response)


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{}", {}, 415),
        (b"{}", {"Content-Type": "text/plain"}, 415),
        (b"{}", {"Content-Type": "application/x-www-form-urlencoded"}, 415),
        (b"{}", {"Content-Type": "application/json; charset=utf-16"}, 415),
        (b"\x1f\x8b broken", {**TYPE, "Content-Encoding": "gzip"}, 415),
        (b"{}", {**TYPE, "Content-Encoding": "identity"}, 415),
        (b"", TYPE, 400),
        (b"[" * 100_000, TYPE, 400),
        (b'{"model": "tiny", "x": NaN}', TYPE, 400),
        (b"x" * (8 * 1024 * 1024 + 1), TYPE, 413),
        (json.dumps({**GOOD, "model": "../../etc"}).encode(), TYPE, 404),
        (json.dumps({**GOOD, "n": 10**9}).encode(), TYPE, 400),
        (json.dumps({**GOOD, "logit_bias": {str(index): 1 for index in range(100_000)}}).encode(), TYPE, 400),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_bad_body_gets_its_status(served: Served, body: bytes, headers: dict[str, str], status: int) -> None:
    answer = served.request("POST", CHAT, body, headers)
    assert answer.status == status
    assert answer.error["message"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", CHAT, 405),
        ("DELETE", "/v1/models", 405),
        ("POST", "/v1/models", 405),
        ("GET", "//v1/models", 404),
        ("GET", "/v1/models/", 404),
        ("POST", CHAT + "/", 404),
        ("GET", "/v1/%6dodels", 404),
        ("GET", "/v1/models/%2e%2e", 404),
        ("GET", "/v1/models/../../metrics", 404),
        ("GET", "/metrics", 404),
        ("PATCH", "/limits", 404),
        ("GET", "/", 404),
    ],
)
def test_unknown_paths_and_methods_are_rejected_in_json(served: Served, method: str, path: str, status: int) -> None:
    answer = served.request(method, path, b"{}" if method == "POST" else None)
    assert answer.status == status
    assert answer.error["message"]


@pytest.mark.parametrize("given", ["x" * 200, "two words", "sémantique", "a;b", ""])
def test_an_invalid_request_id_is_replaced(served: Served, given: str) -> None:
    raw = served.raw(head("/v1/models", f"x-request-id: {given}", "Connection: close", method="GET"))
    line = next(line for line in raw.split(b"\r\n") if line.lower().startswith(b"x-request-id:"))
    assert given.encode("latin-1") not in line or not given
    assert len(line) < 60


def test_errors_carry_the_clients_request_id(served: Served) -> None:
    answer = served.request("POST", CHAT, b"{", {**TYPE, "x-request-id": "abc-123"})
    assert answer.headers["x-request-id"] == "abc-123"


def test_a_request_rejected_by_another_replica_is_served_and_no_second_arrival(served: Served) -> None:
    """The gateway retries: port 1 is closed, and the first replica is full."""

    async def full(request: web.Request) -> web.Response:
        await request.read()
        return web.json_response({}, status=503)

    async def asked() -> list[int]:
        app = web.Application()
        app.router.add_post(CHAT, full)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        ports = (1, runner.addresses[0][1], served.port)
        backends = [Backend(f"r{port}", "127.0.0.1", port) for port in ports]
        try:
            async with Gateway(lambda: backends, port=0) as gateway, aiohttp.ClientSession() as client:
                found = []
                for _ in ports:
                    async with client.post(gateway.url + CHAT, json=GOOD) as response:
                        found.append(response.status)
                return found
        finally:
            await runner.cleanup()

    arrived, done = served.metric(contract.REQUESTS_ARRIVED), served.metric(contract.REQUESTS, outcome="length")
    shadowed = served.metric(contract.SHADOW_REQUESTS)
    assert asyncio.run(asked()) == [200, 200, 200]
    assert served.metric(contract.REQUESTS, outcome="length") == done + 3
    assert served.metric(contract.REQUESTS_ARRIVED) == arrived + 1  # only the one with its first attempt here
    assert served.metric(contract.SHADOW_REQUESTS) == shadowed + 1


def test_a_body_in_a_hundred_thousand_chunks_is_read(served: Served) -> None:
    body = json.dumps({**GOOD, "messages": [{"role": "user", "content": " " * 100_000}]}).encode()
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    lines = ("Content-Type: application/json", "Transfer-Encoding: chunked", "Connection: close")
    response = served.raw(head(CHAT, *lines) + chunks)  # must arrive within the receive deadline, else 408
    assert status_of(response) == 400  # only because it exceeds the context


def test_a_broken_chunk_is_400(served: Served) -> None:
    lines = ("Content-Type: application/json", "Transfer-Encoding: chunked")
    assert status_of(served.raw(head(CHAT, *lines) + b"zz\r\n{}\r\n")) == 400


def test_expect_continue_is_answered(served: Served) -> None:
    body = json.dumps(GOOD).encode()
    lines = (
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Expect: 100-continue",
        "Connection: close",
    )
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as connection:
        connection.sendall(head(CHAT, *lines))
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")


def test_slow_headers_and_a_stalled_body_are_408_and_closed(served: Served) -> None:
    """Both cases run concurrently, because each takes the full deadline."""
    begun = time.monotonic()
    with (
        socket.create_connection(("127.0.0.1", served.port), timeout=60) as slow_head,
        socket.create_connection(("127.0.0.1", served.port), timeout=60) as stalled_body,
    ):
        slow_head.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nX-")
        stalled_body.sendall(head(CHAT, "Content-Type: application/json", "Content-Length: 100") + b'{"model"')
        for connection in (slow_head, stalled_body):
            received = b""
            while part := connection.recv(65536):
                received += part
            assert status_of(received) == 408
            error_of(received)
    assert time.monotonic() - begun < 45


def test_a_hundred_simultaneous_disconnects_free_all_blocks(served: Served) -> None:
    body = json.dumps({**GOOD, "max_tokens": 1000, "stream": True, "ignore_eos": True}).encode()
    request = head(CHAT, "Content-Type: application/json", f"Content-Length: {len(body)}") + body
    connections = [socket.create_connection(("127.0.0.1", served.port), timeout=60) for _ in range(100)]
    for index, connection in enumerate(connections):
        connection.sendall(request)
        if index % 3 == 0:  # before the first token, in prefill, mid-stream
            connection.recv(1)
        connection.close()
    served.wait(lambda: served.admin("GET", "/state").json()["server"]["in_flight"] == 0)
    served.wait(lambda: served.blocks()["held"] == 0)


def test_a_client_that_pauses_reading_delays_no_other_and_gets_all_events(served: Served) -> None:
    """The output exceeds the kernel's buffers, so the server holds it, within a memory limit."""
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
        deaf.sendall(head(CHAT, *lines) + body)
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


def test_millions_of_token_ids_are_rejected_before_each_is_checked(served: Served) -> None:
    body = b'{"model": "tiny", "prompt": [' + b"1," * 3_000_000 + b"1]}"
    answer = served.request("POST", "/v1/completions", body, TYPE)
    assert answer.status == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert "3000001" in answer.json()["error"]["message"]


def test_keys_that_are_not_verified_share_one_cache(served: Served) -> None:
    question = " ".join(f"word{number}" for number in range(60))
    asked = {**GOOD, "messages": [{"role": "user", "content": question}]}

    def cached(key: str) -> int:
        answer = served.request("POST", CHAT, asked, TYPE | {"Authorization": f"Bearer {key}"})
        return int(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])

    assert cached("one") == 0
    assert cached("two") >= 16 and cached("one") >= 16


def test_a_non_text_key_is_accepted_as_a_key(served: Served) -> None:
    body = json.dumps(GOOD).encode()
    request = head(CHAT, "Content-Type: application/json", "Connection: close", f"Content-Length: {len(body)}")
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as connection:
        connection.sendall(request[:-2] + b"Authorization: Bearer \xff\xfe\r\n\r\n" + body)
        assert status_of(connection.recv(65536)) == 200


def test_a_web_page_cannot_drain_a_local_server(served: Served) -> None:
    assert served.admin("POST", "/drain", b"", {"Origin": "http://evil.example"}).status == 401
    assert served.admin("GET", "/readyz").status == 200
