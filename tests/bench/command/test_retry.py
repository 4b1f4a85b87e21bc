"""The retry schedule equals the official client's: compared with its code, and pinned where that code is private."""

import random
from collections.abc import Iterator
from types import SimpleNamespace

import anthropic
import openai
import pytest
from multidict import CIMultiDict

from sluice import contract
from sluice.bench import retry


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    with openai.OpenAI(api_key="none", base_url="http://127.0.0.1:1") as made:
        yield made


@pytest.mark.parametrize("status", [200, 400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 504])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Retry-After": "3"},
        {"Retry-After": "500"},
        {"retry-after-ms": "20"},
        {"x-should-retry": "true"},
        {"x-should-retry": "false"},
        {"Retry-After": "soon"},
        {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"},
    ],
)
def test_it_tries_again_where_the_official_client_does(
    client: openai.OpenAI, status: int, headers: dict[str, str]
) -> None:
    response = SimpleNamespace(status_code=status, headers=CIMultiDict(headers))
    assert retry.should_retry(status, CIMultiDict(headers)) == client._should_retry(response)  # type: ignore[arg-type]


def test_back_off_doubles_from_half_a_second_to_eight_with_a_quarter_of_jitter() -> None:
    rng = random.Random(0)
    for attempt, longest in enumerate((0.5, 1.0, 2.0, 4.0, 8.0, 8.0)):
        delays = [retry.delay(attempt, None, rng) for _ in range(200)]
        assert longest * 0.75 <= min(delays) < max(delays) <= longest


def test_the_server_may_ask_for_milliseconds_seconds_or_a_date() -> None:
    rng = random.Random(0)
    assert retry.delay(0, CIMultiDict({"Retry-After-Ms": "20", "Retry-After": "9"}), rng) == 0.02
    assert retry.delay(0, CIMultiDict({"retry-after": "1.5"}), rng) == 1.5
    assert retry.retry_after(CIMultiDict({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"})) < 0  # type: ignore[operator]


@pytest.mark.parametrize("value", ["-1", "0", "121", "nan", "inf", "soon", ""])
def test_a_useless_retry_after_falls_back_to_back_off(value: str) -> None:
    assert 0.375 <= retry.delay(0, CIMultiDict({"retry-after": value}), random.Random(0)) <= 0.5


def test_official_clients_give_up_after_the_retries_of_the_contract_and_count_them_in_its_header(
    client: openai.OpenAI,
) -> None:
    assert contract.CLIENT_RETRIES == openai.DEFAULT_MAX_RETRIES == anthropic.DEFAULT_MAX_RETRIES
    options = openai._models.FinalRequestOptions(method="post", url="/chat/completions")
    with anthropic.Anthropic(api_key="none", base_url="http://127.0.0.1:1") as other:
        built = anthropic._models.FinalRequestOptions(method="post", url="/v1/messages")
        for taken in range(3):
            assert client._build_request(options, retries_taken=taken).headers[contract.HEADER_RETRY_COUNT] == str(
                taken
            )
            assert other._build_request(built, retries_taken=taken).headers[contract.HEADER_RETRY_COUNT] == str(taken)
