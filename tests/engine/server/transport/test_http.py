"""Bad input over HTTP returns an error in OpenAI's format and does not affect other clients."""

import json
import socket

import pytest

from tests.engine.server.transport.conftest import GOOD
from tests.engine.serving import CHAT, Served

TYPE = {"Content-Type": "application/json"}
pytestmark = pytest.mark.usefixtures("unharmed")


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
        connection.sendall(served.with_key(head(CHAT, *lines)))
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")


def test_expect_continue_of_http_1_0_gets_the_final_response_alone(served: Served) -> None:
    body = json.dumps(GOOD).encode()
    lines = ("Content-Type: application/json", f"Content-Length: {len(body)}", "Expect: 100-continue")
    response = served.raw(head(CHAT, *lines).replace(b"HTTP/1.1", b"HTTP/1.0") + body)
    assert response.startswith(b"HTTP/1.0 200") and b"100 Continue" not in response


@pytest.mark.parametrize("base", ["", "/v1/v1", "/openai/deployments/tiny"])
def test_an_unknown_path_is_answered_with_what_base_urls_end_in(served: Served, base: str) -> None:
    answer = served.request("POST", f"{base}/chat/completions?api-version=2024-10-21", GOOD)
    assert (answer.status, answer.error["code"]) == (404, "not_found")
    assert "The base URL of an OpenAI client ends in /v1, once" in answer.error["message"]


def test_a_hundred_simultaneous_disconnects_free_all_blocks(served: Served) -> None:
    body = json.dumps({**GOOD, "max_tokens": 1000, "stream": True, "ignore_eos": True}).encode()
    request = served.with_key(head(CHAT, "Content-Type: application/json", f"Content-Length: {len(body)}") + body)
    connections = [socket.create_connection(("127.0.0.1", served.port), timeout=60) for _ in range(100)]
    for index, connection in enumerate(connections):
        connection.sendall(request)
        if index % 3 == 0:  # before the first token, in prefill, mid-stream
            connection.recv(1)
        connection.close()
    served.wait(lambda: served.admin("GET", "/state").json()["server"]["in_flight"] == 0)
    served.wait(lambda: served.blocks()["held"] == 0)


def test_millions_of_token_ids_are_rejected_before_each_is_checked(served: Served) -> None:
    body = b'{"model": "tiny", "prompt": [' + b"1," * 3_000_000 + b"1]}"
    answer = served.request("POST", "/v1/completions", body, TYPE)
    assert answer.status == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert "3000001" in answer.json()["error"]["message"]


def test_a_web_page_cannot_drain_a_local_server(served: Served) -> None:
    assert served.admin("POST", "/drain", b"", {"Origin": "http://evil.example"}).status == 401
    assert served.admin("GET", "/readyz").status == 200


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/v1/models/tiny", "/openapi.json"])
def test_head_is_answered_as_get_without_the_body(served: Served, path: str) -> None:
    whole, head_only = (served.request(method, path) for method in ("GET", "HEAD"))
    assert (whole.status, head_only.status) == (200, 200)
    assert head_only.body == b""
    assert head_only.headers.get("content-length", "0") == str(len(whole.body))
    assert served.request("HEAD", CHAT).status == 405
