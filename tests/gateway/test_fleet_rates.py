"""Several gateways grant a tenant's rate together as one gateway would, however its connections are spread over them."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from sluice import contract
from sluice.auth.key_file import ApiKey, parse
from sluice.auth.key_store import KeyStore
from sluice.auth.rate_limits import RateLimits
from sluice.auth.read_tokens import read_key
from sluice.httpapi.errors import RateLimited
from sluice_gateway.keys.fleet_rates import BadDocument, FleetRates
from sluice_gateway.keys.gatekeeper import KeyOptions
from sluice_gateway.replicas.read_access import ReadOptions
from sluice_gateway.server import Gateway
from tests.engine.server.auth.keys import bearer, entry, key_file
from tests.engine.server.auth.test_rate_limits import Clock
from tests.gateway.engines import CHAT, FakeEngine, gateway_over
from tests.gateway.test_fleet import chat

STEP = 0.1  # seconds between two looks at the clock
PERIOD = 5  # steps between two readings of a gateway
MINUTES = 10
ENTRIES = key_file(
    entry("often", requestsPerMinute=60), entry("rare", requestsPerMinute=6), entry("tokens", tokensPerMinute=60_000)
)
STORE = KeyStore(parse(ENTRIES))

Choice = Callable[[float, int, int], int]  # seconds since the start, number of the request, gateways → gateway
CHOICES: dict[str, Choice] = {
    "pinned to one": lambda now, number, count: 0,
    "even": lambda now, number, count: number % count,
    "nine of ten to one": lambda now, number, count: 0 if number % 10 else number // 10 % count,
    "another one each minute": lambda now, number, count: int(now // 60) % count,
    "another one each 3 s": lambda now, number, count: int(now // 3) % count,
}


def key_named(name: str) -> ApiKey:
    key = STORE.named(name)
    assert key is not None
    return key


class Gateways:
    """The rates of several gateways. Each reads all others at a time of its own."""

    def __init__(self, count: int) -> None:
        self.clock = Clock()
        self.rates = [RateLimits(self.clock, 1.0 / count) for _ in range(count)]
        self.fleet = [FleetRates(rates, STORE.named, self.clock) for rates in self.rates]
        self.reading = set(range(count)) if count > 1 else set[int]()
        self.steps = 0

    def pass_time(self) -> None:
        self.clock.now += STEP
        self.steps += 1
        for number in self.reading:
            if (self.steps + number) % PERIOD == 0:
                self.read(number)

    def read(self, number: int) -> None:
        one = self.fleet[number]
        one.learn([other.document() for other in self.fleet if other is not one])

    def granted(self, key: ApiKey, choose: Choice, offered: float, size: int) -> list[tuple[float, int]]:
        """When and how much is granted within MINUTES, while `offered` times the rate comes at random.

        A request of `size` tokens takes half of them at its admission; one of size 1 counts as a request.
        """
        draw, found, number = random.Random(1), list[tuple[float, int]](), 0
        limit = key.requests_per_minute or key.tokens_per_minute or 0
        expected = offered * limit / size / 60.0 * STEP
        for _ in range(round(MINUTES * 60 / STEP)):
            self.pass_time()
            for _ in range(int(expected) + (draw.random() < expected % 1.0)):
                number += 1
                rates = self.rates[choose(self.clock.now - 1000.0, number, len(self.rates))]
                if took(rates, key, size):
                    found.append((self.clock.now, size))
        return found


def took(rates: RateLimits, key: ApiKey, size: int) -> bool:
    try:
        rates.take(key, "requests" if size == 1 else "tokens", max(1, size // 2))
    except RateLimited:
        return False
    if size > 1:
        rates.charge(key, size // 2)
    return True


def most_in_a_minute(found: list[tuple[float, int]]) -> int:
    return max(sum(size for at, size in found if now - 60.0 < at <= now) for now, _ in found)


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize(("name", "size"), [("often", 1), ("rare", 1), ("tokens", 2_000), ("tokens", 20_000)])
def test_gateways_that_read_each_other_grant_what_one_would_within_a_tenth(
    choice: str, count: int, name: str, size: int
) -> None:
    key = key_named(name)
    for offered in (0.8, 1.5, 4.0):
        one = Gateways(1).granted(key, CHOICES["pinned to one"], offered, size)
        several = Gateways(count).granted(key, CHOICES[choice], offered, size)
        assert sum(each for _, each in several) == pytest.approx(sum(each for _, each in one), rel=0.1)
        assert most_in_a_minute(several) <= 1.1 * most_in_a_minute(one)


def test_gateways_that_do_not_read_each_other_grant_each_its_share() -> None:
    key = key_named("often")
    for choice, share in (("pinned to one", 0.25), ("even", 1.0)):
        gateways = Gateways(4)
        gateways.reading = set()
        granted = len(gateways.granted(key, CHOICES[choice], 4.0, 1))
        assert granted == pytest.approx(share * 60 * (MINUTES + 1), rel=0.02)


def test_a_gateway_that_starts_grants_no_second_burst() -> None:
    key, gateways = key_named("often"), Gateways(2)
    while took(gateways.rates[0], key, 1):
        gateways.read(0)
    gateways.rates.append(RateLimits(gateways.clock, 0.5))
    gateways.fleet[1] = FleetRates(gateways.rates[-1], STORE.named, gateways.clock)
    gateways.read(1)
    assert not took(gateways.rates[-1], key, 1)


def test_what_is_given_back_at_one_gateway_is_left_at_the_others() -> None:
    key, gateways = key_named("tokens"), Gateways(2)
    gateways.rates[0].take(key, "tokens", 30_000)
    gateways.read(1)
    assert gateways.fleet[1].document()["uses"] == []  # used elsewhere
    gateways.rates[0].charge(key, -30_000)
    gateways.read(1)
    gateways.rates[1].take(key, "tokens", 30_000)
    ((*_, used, left),) = gateways.fleet[1].document()["uses"]
    assert (used, left) == (30_000, 30_000)


def test_a_document_names_what_was_used_of_late_and_a_removed_key_is_forgotten() -> None:
    keys = dict.fromkeys(["often", "rare"], True)
    clock = Clock()
    rates = RateLimits(clock, 0.5)
    fleet = FleetRates(rates, lambda name: STORE.named(name) if name in keys else None, clock)
    rates.take(key_named("often"), "requests", 1)
    clock.now += 2.0
    rates.take(key_named("rare"), "requests", 1)
    assert [use[0] for use in fleet.document()["uses"]] == ["often", "rare"]
    clock.now += 2.0
    assert [use[0] for use in fleet.document()["uses"]] == ["rare"]
    del keys["rare"]
    fleet.learn([{"start": "x", "uses": [["rare", "requests", 5, 1], ["unknown", "requests", 5, 1]]}])
    assert fleet.document()["uses"] == []


@pytest.mark.parametrize(
    "document",
    [
        None, 5, [], {}, {"start": 5, "uses": []}, {"start": "x", "uses": 5}, {"start": "x", "uses": [["often", "requests", 5]]},
        {"start": "x", "uses": [["often", "hours", 5, 1]]}, {"start": "x", "uses": [["often", "requests", "5", 1]]},
        {"start": "x", "uses": [["often", "requests", float("nan"), 1]]}, {"start": "x", "uses": [["often", "requests", True, 1]]},
        {"start": "x", "uses": [[["often"], "requests", 5, 1]]}, {"start": "x", "uses": [["often", {}, 5, 1]]},
    ],
)  # fmt: skip
def test_a_wrong_document_changes_nothing(document: Any) -> None:
    gateways, key = Gateways(2), key_named("often")
    took(gateways.rates[0], key, 1)
    before = gateways.fleet[0].document()
    good = {"start": "y", "uses": [["often", "requests", 50, 1]]}
    with pytest.raises(BadDocument):
        gateways.fleet[0].learn([good, document])
    assert gateways.fleet[0].document() == before


@asynccontextmanager
async def two_gateways(folder: Path) -> AsyncIterator[list[Gateway]]:
    """Real gateways with one key file and one key of reads, each with the admin port of the other."""
    (folder / "keys.yaml").write_bytes(ENTRIES)
    (folder / "read").write_text(read_key(b"k" * 32))
    keys, reads = KeyOptions(folder / "keys.yaml", gateways=2), ReadOptions(folder / "read")
    async with AsyncExitStack() as stack:
        gateways = [
            await stack.enter_async_context(gateway_over(FakeEngine("r0"), keys=keys, reads=reads, admin_port=0))
            for _ in range(2)
        ]
        for one, other in zip(gateways, reversed(gateways), strict=True):
            one.shared_by(2, [other.admin_url])
        yield gateways


async def answers(gateway: Gateway, name: str, count: int) -> list[int]:
    found = []
    async with aiohttp.ClientSession(headers={"Authorization": bearer(name)}) as client:
        for _ in range(count):
            async with client.post(gateway.url + CHAT, json=chat("a")) as response:
                found.append(response.status)
    return found


async def test_a_client_of_one_gateway_gets_the_whole_rate_and_nothing_of_it_is_left_at_the_other(
    tmp_path: Path,
) -> None:
    async with two_gateways(tmp_path) as gateways:
        pinned, other = gateways
        found = list[int]()
        for _ in range(6):
            found += await answers(pinned, "rare", 1)
            await pinned.rates_of_others.read()
        assert found == [200] * 6  # alone it would grant three
        await other.rates_of_others.read()
        assert await answers(other, "rare", 2) == [429, 429]
        assert await answers(other, "often", 1) == [200]


async def test_headers_are_of_the_whole_rate_at_each_gateway(tmp_path: Path) -> None:
    async with two_gateways(tmp_path) as (one, other), aiohttp.ClientSession() as client:
        found = list[tuple[str, str]]()
        for gateway in (one, one, other):
            await gateway.rates_of_others.read()
            async with client.post(
                gateway.url + CHAT, json=chat("a"), headers={"Authorization": bearer("rare")}
            ) as got:
                found.append((got.headers["x-ratelimit-limit-requests"], got.headers["x-ratelimit-remaining-requests"]))
    assert found == [("6", "5"), ("6", "4"), ("6", "3")]


async def test_uses_are_told_to_gateways_only_and_without_them_each_grants_its_share(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with two_gateways(tmp_path) as (one, other):
        async with (
            aiohttp.ClientSession() as client,
            client.get(other.admin_url + contract.PATH_RATES) as response,
        ):
            assert response.status == 401
        (tmp_path / "read").unlink()
        for gateway in (one, other):
            gateway._read_tokens._read_at = None
        assert await answers(one, "rare", 1) == [200]
        for _ in range(3):
            await one.rates_of_others.read()
        assert await answers(one, "rare", 3) == [200, 200, 429]
    warnings = [line for line in caplog.messages if "each grants its share" in line]
    assert len(warnings) == 1
    assert "status 401" in warnings[0]
