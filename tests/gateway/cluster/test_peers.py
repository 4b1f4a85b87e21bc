"""The gateways that share the rates of keys: from their Service's endpoints, and what they grant while their number changes."""

import asyncio
from typing import Any

from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.aio.client import ApiClient, Configuration

from sluice.auth.key_file import parse
from sluice.auth.rate_limits import RateLimits
from sluice.httpapi.errors import RateLimited
from sluice_gateway.cluster.peers import ready_gateways, watched_peers, zone_of
from tests.engine.server.auth.keys import entry, key_file
from tests.engine.server.auth.test_rate_limits import Clock
from tests.gateway.cluster.documents import endpoint
from tests.kube.test_reflector import ApiServer

MINUTES = 20  # between two changes of the number


def test_ready_pods_count_once_and_others_do_not() -> None:
    draining = {"ready": False, "serving": True, "terminating": True}
    slices: list[dict[str, Any]] = [
        {
            "endpoints": [
                endpoint("g1"),
                endpoint("g2", conditions={"ready": True}),
                endpoint("g3", conditions=draining),
            ]
        },
        {"endpoints": [endpoint("g1", "fd00::1"), {"addresses": ["10.0.0.9"]}], "addressType": "IPv6"},
        {"endpoints": None},
    ]
    assert ready_gateways(slices) == {"g1": "http://10.0.0.1:8081", "g2": "http://10.0.0.1:8081"}


def test_the_zone_is_that_of_the_own_endpoint() -> None:
    slices = [{"endpoints": [endpoint("g1") | {"zone": "a"}, endpoint("g2") | {"zone": "b"}, endpoint("g3")]}]
    assert [zone_of(pod, slices) for pod in ("g1", "g2", "g3", "g4")] == ["a", "b", "", ""]


def piece(version: int, *pods: str) -> dict[str, Any]:
    metadata = {"name": "gateway-x", "namespace": "ns", "resourceVersion": str(version)}
    return {"metadata": metadata, "endpoints": [endpoint(pod) for pod in pods]}


async def test_each_change_of_the_service_is_told_and_an_empty_service_changes_nothing() -> None:
    changes = [("g1",), (), ("g1", "g2", "g3"), ("g2", "g1", "g3"), ("g1", "g3")]
    events = [{"type": "MODIFIED", "object": piece(6 + at, *pods)} for at, pods in enumerate(changes)]
    server = ApiServer(pages=[(5, [piece(5, "g1", "g2")], None)], watches=[events])
    runner = web.ServerRunner(web.Server(server.answer), shutdown_timeout=0.1)  # type: ignore[arg-type]
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    told: asyncio.Queue[tuple[int, int]] = asyncio.Queue()
    async with ApiClient(configuration=Configuration(host=f"http://127.0.0.1:{runner.addresses[0][1]}")) as client:
        watching = watched_peers(
            client, "ns/gateway", lambda count, others: told.put_nowait((count, len(others))), "g2"
        )
        async with watching, asyncio.timeout(10):
            assert [await told.get() for _ in range(4)] == [(2, 1), (1, 1), (3, 2), (2, 2)]
        assert told.empty()
    await runner.cleanup()


@given(st.lists(st.integers(1, 6), min_size=2, max_size=4), st.integers(60, 600), st.integers(0, 100))
def test_while_gateways_come_and_go_they_grant_a_tenants_rate_within_a_tenth(
    counts: list[int], rate: int, seed: int
) -> None:
    (key,) = parse(key_file(entry("a", requestsPerMinute=rate)))
    clock = Clock()
    gateways: list[RateLimits] = []
    for count in counts:
        gateways = [*gateways[:count], *(RateLimits(clock) for _ in range(count - len(gateways)))]
        for one in gateways:
            one.share = 1.0 / count
        granted, asked = 0, 0
        for _ in range(MINUTES * 30):
            clock.now += 2.0
            for _ in range(rate // 20):  # half more than the rate, spread over the gateways as a Service does
                asked += 1
                try:
                    gateways[(asked + seed) % count].take(key, "requests", 1)
                    granted += 1
                except RateLimited:
                    pass
        assert abs(granted / (MINUTES * rate) - 1.0) <= 0.1
