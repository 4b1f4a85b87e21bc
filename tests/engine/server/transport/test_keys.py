"""API keys over HTTP: exactly one valid key per request, and nothing that a client sends changes its tenant."""

import json
import socket

import pytest

from sluice import contract
from tests.engine.server.auth.keys import bearer, key_of
from tests.engine.server.transport.conftest import GOOD
from tests.engine.server.transport.test_http import TYPE, error_of, head, status_of
from tests.engine.serving import CHAT, Served


def test_keys_that_are_not_verified_share_one_cache(served_without_keys: Served) -> None:
    question = " ".join(f"word{number}" for number in range(60))
    asked = {**GOOD, "messages": [{"role": "user", "content": question}]}

    def cached(key: str) -> int:
        answer = served_without_keys.request("POST", CHAT, asked, TYPE | {"Authorization": f"Bearer {key}"})
        return int(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])

    assert cached("one") == 0
    assert cached("two") >= 16 and cached("one") >= 16


def test_without_a_key_file_any_key_is_accepted(served_without_keys: Served) -> None:
    body = json.dumps(GOOD).encode()
    request = head(CHAT, "Content-Type: application/json", "Connection: close", f"Content-Length: {len(body)}")
    with socket.create_connection(("127.0.0.1", served_without_keys.port), timeout=60) as connection:
        connection.sendall(request[:-2] + b"Authorization: Bearer \xff\xfe\r\n\r\n" + body)
        assert status_of(connection.recv(65536)) == 200


@pytest.mark.parametrize("path", ["/v1/models", f"{CHAT}?api_key=key-of-tests", f"{CHAT}?key=key-of-tests"])
@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["Authorization: Bearer wrong"],
        ["Authorization: Bearer \xff\xfe"],
        ["Authorization: key-of-tests"],
        ["Authorization: Basic key-of-tests"],
        ["X-Api-Key: wrong"],
        ["Authorization: Bearer key-of-tests"] * 2,
        ["Authorization: Bearer key-of-tests", "Authorization: Bearer wrong"],
    ],
    ids=lambda value: repr(value),
)
def test_without_exactly_one_valid_key_is_401(served_with_keys: Served, path: str, lines: list[str]) -> None:
    method = "GET" if path == "/v1/models" else "POST"
    with socket.create_connection(("127.0.0.1", served_with_keys.port), timeout=60) as connection:
        connection.sendall(head(path, *lines, "Connection: close", "Content-Length: 0", method=method))
        response = b"".join(iter(lambda: connection.recv(65536), b""))
    assert status_of(response) == 401
    assert b"www-authenticate: bearer" in response.lower()
    assert error_of(response)["code"] == "invalid_api_key"


def test_the_header_of_anthropics_clients_is_a_key_where_they_send_it(served_with_keys: Served) -> None:
    mine, name = {"X-Api-Key": key_of("tests")}, served_with_keys.key
    served_with_keys.key = None
    try:
        for path in (contract.PATH_MODELS, f"{contract.PATH_MODELS}/tiny"):
            for method in ("GET", "HEAD"):
                assert served_with_keys.request(method, path, headers=mine).status == 200
        assert served_with_keys.request("POST", CHAT, GOOD, TYPE | mine).status == 401
    finally:
        served_with_keys.key = name


def test_the_same_prompt_of_another_tenant_is_no_cache_hit(served_with_keys: Served) -> None:
    question = " ".join(f"tenant{number}" for number in range(60))
    asked = {**GOOD, "messages": [{"role": "user", "content": question}], "user": "others"}

    def cached(tenant: str) -> int:
        answer = served_with_keys.request("POST", CHAT, asked, TYPE | {"Authorization": bearer(tenant)})
        return int(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])

    assert [cached("tests"), cached("others")] == [0, 0]
    assert cached("tests") >= 16 and cached("others") >= 16


def test_probes_and_metrics_need_no_key(served_with_keys: Served) -> None:
    for path in (contract.PATH_LIVEZ, contract.PATH_READYZ, contract.PATH_METRICS, contract.PATH_LIMITS):
        assert served_with_keys.admin("GET", path).status == 200
