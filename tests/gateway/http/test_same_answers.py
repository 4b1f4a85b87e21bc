"""What is wrong or odd about a request gets the same answer from an engine and through a gateway, over real sockets.

The same are: status, type, param and code of the error, the headers that help a client, whether the connection goes on, and
how many requests the bytes are. Without keys, and with them.
"""

import json
from collections.abc import Iterator

import pytest

from sluice import contract
from tests.engine.server.auth.keys import bearer
from tests.engine.serving import Served
from tests.gateway.http.exchange import Outcome, exchange
from tests.gateway.http.requests import BODY, GOOD, JSON, LIMIT, RAW, fields, head, posted

PAIRS = {"no keys": ("served_without_keys", "gateway_without_keys"), "keys": ("served_with_keys", "gateway_with_keys")}


@pytest.fixture(scope="module", params=PAIRS)
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[Served, Served]]:
    """An engine, and the gateway before it. After all requests both serve, and the engine holds nothing."""
    engine, gateway = (request.getfixturevalue(name) for name in PAIRS[request.param])
    yield engine, gateway
    for server in (engine, gateway):
        assert server.request("POST", contract.PATH_CHAT_COMPLETIONS, GOOD).status == 200
    engine.wait(lambda: engine.blocks()["held"] == 0)
    assert "Traceback" not in gateway.log.read_text() + engine.log.read_text()


@pytest.mark.parametrize("kind", RAW)
def test_an_engine_and_a_gateway_answer_alike(pair: tuple[Served, Served], kind: str) -> None:
    engine, gateway = pair
    found = dict[str, tuple[Outcome, Outcome]]()
    for name, sent in RAW[kind]().items():
        outcomes = exchange(engine, sent), exchange(gateway, sent)
        if outcomes[0] != outcomes[1] or not outcomes[0].replies:
            found[name] = outcomes
    assert found == {}


def test_what_is_wrong_with_a_field_is_the_engines_400(pair: tuple[Served, Served]) -> None:
    for name, sent in fields().items():
        (reply, *_) = exchange(pair[1], sent).replies
        assert (reply.status, reply.error[0]) == (400, "invalid_request_error"), name


def test_a_catastrophic_pattern_is_an_ordinary_one(pair: tuple[Served, Served]) -> None:
    for name, sent in RAW["patterns"]().items():
        assert [exchange(server, sent).replies[0].status for server in pair] == [200, 200], name


def test_no_hidden_request_is_answered(pair: tuple[Served, Served]) -> None:
    """The bytes of a body that is framed in two ways are never taken for a request."""
    for name, sent in RAW["framings"]().items():
        for server in pair:
            outcome = exchange(server, sent)
            assert len(outcome.replies) == 1 or outcome.replies[0].status in (200, 400)
            if outcome.replies[0].error[2:] == (None,):  # malformed: nothing behind it is read
                assert len(outcome.replies) == 1, name


def test_a_refused_request_with_an_unread_body_announces_the_end_of_its_connection(pair: tuple[Served, Served]) -> None:
    for sent, status in (
        (head(JSON, f"Content-Length: {LIMIT + 1}"), 413),
        (head(JSON, "Content-Length: 1000", path="/v1/none"), 404),
    ):
        for server in pair:
            outcome = exchange(server, sent)
            assert [reply.status for reply in outcome.replies] == [status]
            assert outcome.closes


def test_a_wrong_key_is_refused_whatever_the_size_of_the_body(
    served_with_keys: Served, gateway_with_keys: Served
) -> None:
    wrong = b"POST /v1/chat/completions HTTP/1.1\r\nAuthorization: Bearer wrong\r\n"
    for size in (2, 600_000, LIMIT + 1):
        sent = wrong + posted(BODY + b" " * (size - len(BODY))).partition(b"\r\n")[2]
        first, second = (exchange(server, sent, key=None) for server in (served_with_keys, gateway_with_keys))
        assert first == second
        assert [reply.status for reply in first.replies][:1] == [401]


def test_headers_that_only_a_gateway_may_set_are_not_passed_on(
    served_with_keys: Served, gateway_with_keys: Served
) -> None:
    """A forged attempt would not count as an arrival, a forged tenant would share a cache, a forged token would pass."""
    engine, gateway = served_with_keys, gateway_with_keys
    words = " ".join(f"forged{number}" for number in range(60))
    asked = GOOD | {"messages": [{"role": "user", "content": words}]}
    forged = {
        contract.HEADER_ATTEMPT: "2",
        contract.HEADER_TENANT: "tests",
        contract.HEADER_PRIORITY: "100",
        contract.HEADER_GATEWAY_TOKEN: "guess",
        contract.HEADER_WAITED_MS: "60000",
        contract.HEADER_PROMPT_TAG: "1",
    }
    kind = {"Content-Type": "application/json"}

    def cached(tenant: str, **headers: str) -> int:
        answer = gateway.request(
            "POST", contract.PATH_CHAT_COMPLETIONS, asked, kind | headers | {"Authorization": bearer(tenant)}
        )
        assert answer.status == 200
        return int(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])

    arrived = engine.metric(contract.REQUESTS_ARRIVED)
    assert cached("tests") == 0
    assert cached("others", **forged) == 0  # not the cache of `tests`
    assert cached("others", **forged) >= 16
    assert engine.metric(contract.REQUESTS_ARRIVED) == arrived + 3
    direct = engine.request("POST", contract.PATH_CHAT_COMPLETIONS, asked, kind | forged)
    assert (direct.status, direct.error["code"]) == (401, "invalid_gateway_token")


def test_what_needs_no_key_at_an_engine_needs_none_at_a_gateway(
    served_with_keys: Served, gateway_with_keys: Served
) -> None:
    for path, status in (
        (contract.PATH_HEALTH, 200),
        (contract.PATH_VERSION, 200),
        (contract.PATH_OPENAPI, 200),
        (contract.PATH_MODELS, 401),
    ):
        sent = head(method="GET", path=path)
        outcomes = [exchange(server, sent, key=None) for server in (served_with_keys, gateway_with_keys)]
        assert outcomes[0] == outcomes[1]
        assert outcomes[0].replies[0].status == status


def test_the_model_in_the_list_is_found_by_its_name_in_any_spelling(pair: tuple[Served, Served]) -> None:
    for server in pair:
        for name in ("tiny", "%74iny"):
            assert json.loads(server.request("GET", f"/v1/models/{name}").body)["id"] == "tiny"
