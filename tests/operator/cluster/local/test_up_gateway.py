"""The gateway of `sluice up` has the queue and the keys for all replicas, as a gateway in a cluster has."""

import asyncio
from pathlib import Path

import aiohttp

from sluice import contract
from sluice_engine.tiny import ensure
from tests.engine.server.auth.keys import bearer, entry, key_file
from tests.operator.cluster.local.up_process import YAML, run_up, sluice_up, written

REQUESTS, PLACES = 48, 8  # maxNumSeqs of YAML
BODY = {"model": "chat", "prompt": "A replica is", "max_tokens": 64, "ignore_eos": True}


async def most_waiting(admin: str, until: "asyncio.Future[list[int]]") -> int:
    """The longest queue that the engine shows meanwhile."""
    most = 0
    async with aiohttp.ClientSession() as client:
        while not until.done():
            async with client.get(admin + contract.PATH_LOAD) as response:
                most = max(most, (await response.json())["waiting"])
    return most


async def arrived(client: aiohttp.ClientSession, admin: str) -> int:
    """The requests that the engine has had."""
    async with client.get(admin + contract.PATH_METRICS) as response:
        lines = (await response.text()).splitlines()
    return int(float(next(line.split()[-1] for line in lines if line.startswith(contract.REQUESTS_ARRIVED))))


async def test_requests_beyond_what_runs_wait_in_the_gateway(tmp_path: Path) -> None:
    async with sluice_up(written(tmp_path, YAML.format(uri=ensure().as_uri()))) as up:
        url = (await up.until(event="started"))["url"]
        [replica] = (await up.until(ready=1))["pods"]

        async with aiohttp.ClientSession() as client:

            async def status() -> int:
                async with client.post(url + contract.PATH_COMPLETIONS, json=BODY) as response:
                    await response.read()
                    return response.status

            answered = asyncio.gather(*(status() for _ in range(REQUESTS)))
            waiting = await most_waiting(replica["admin"], answered)
            assert await answered == [200] * REQUESTS
        assert waiting < PLACES, "the engine's own queue took what the gateway's is for"


async def test_its_gateway_verifies_keys_before_a_replica_is_started_and_its_engines_take_its_word(
    tmp_path: Path,
) -> None:
    keys = tmp_path / "keys.yaml"
    keys.write_bytes(key_file(entry("first"), entry("team", requestsPerMinute=1)))
    text = YAML.format(uri=ensure().as_uri()) + "  scaling: {minReplicas: 0}\n"
    async with sluice_up(written(tmp_path, text), "--api-keys-file", str(keys)) as up:
        url = (await up.until(event="started"))["url"]

        async with aiohttp.ClientSession() as client:

            async def status(headers: dict[str, str]) -> int:
                async with client.post(url + contract.PATH_COMPLETIONS, json=BODY, headers=headers) as response:
                    await response.read()
                    return response.status

            assert await status({}) == 401
            assert not up.pids()
            # The start of a replica may take minutes, in which a rate allows further requests: another key asks for it.
            assert await status({"Authorization": bearer("first")}) == 200
            assert [await status({"Authorization": bearer("team")}) for _ in range(2)] == [200, 429]


async def test_its_gateway_routes_by_the_policy_and_the_session_header_of_the_file(tmp_path: Path) -> None:
    routing = "  scaling: {minReplicas: 2, maxReplicas: 2}\n  routing: {policy: RoundRobin, sessionHeader: x-chat}\n"
    async with sluice_up(written(tmp_path, YAML.format(uri=ensure().as_uri()) + routing)) as up:
        url = (await up.until(event="started"))["url"]
        replicas = [pod["admin"] for pod in (await up.until(ready=2))["pods"]]

        async with aiohttp.ClientSession() as client:

            async def computed(**headers: str) -> list[int]:
                """How many of four requests of one prompt each replica gets: by its cached prefix, one would get all."""
                before = [await arrived(client, admin) for admin in replicas]
                for _ in range(4):
                    async with client.post(url + contract.PATH_COMPLETIONS, json=BODY, headers=headers) as response:
                        assert response.status == 200
                        await response.read()
                return [await arrived(client, admin) - old for admin, old in zip(replicas, before, strict=True)]

            assert await computed() == [2, 2]
            assert sorted(await computed(**{"x-chat": "mine"})) == [0, 4]


def test_a_key_file_that_cannot_be_used_ends_it_with_a_sentence(tmp_path: Path) -> None:
    keys = tmp_path / "keys.yaml"
    keys.write_text("team: secret")
    ended = run_up(written(tmp_path, YAML.format(uri=ensure().as_uri())), "--port", "0", "--api-keys-file", str(keys))
    assert ended.returncode == 2
    [sentence] = ended.stderr.splitlines()
    assert sentence.startswith(f"--api-keys-file: {keys}") and "secret" not in sentence
