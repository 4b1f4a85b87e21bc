"""Tokens of reads on a real API server: the Secrets that the operator makes, and what its proxy of a pod passes on."""

import asyncio
import base64
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sluice import contract
from sluice.auth.read_tokens import RELEASE, read_key, read_token
from sluice.cluster.reader import Reader
from sluice_gateway.replicas.read_access import ReadOptions
from sluice_kube.api import collection
from sluice_kube.errors import ClusterError
from sluice_operator.cluster.client import Object
from sluice_operator.gateways.watch import reading
from sluice_operator.metrics import OperatorMetrics
from sluice_operator.reconcile.children.admin_token import make_key, share_reads
from sluice_operator.runtime.health import Health
from sluice_operator.runtime.read_access import release_token
from tests.gateway.cluster.test_cluster_gateway import Known, serving
from tests.kube.api_server import ApiServer
from tests.kube.specs import BASE
from tests.kube.world import worlds
from tests.operator.fake_cluster import KEY_OF_OPERATOR


def decoded(secret: Object) -> dict[str, str]:
    return {entry: base64.b64decode(value).decode() for entry, value in secret["data"].items()}


def own_address() -> str:
    """An address of this machine that an API server proxies to, which are all but loopback. Skips without a route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has no address but loopback")
        return str(probe.getsockname()[0])


@asynccontextmanager
async def listening(token: str) -> AsyncIterator[int]:
    """A port with metrics that need the token."""
    with socket.socket() as free:
        free.bind(("0.0.0.0", 0))
        port = free.getsockname()[1]
    health = Health(lambda: "", OperatorMetrics(), read_token=lambda: token)
    await health.start(port)
    try:
        yield port
    finally:
        await health.close()


def test_the_operator_makes_the_secrets_that_the_pods_and_the_release_read_with(crd: ApiServer) -> None:
    async def story() -> None:
        async with worlds(crd) as make:
            world = make()
            await world.create(BASE)
            await world.settle(world.operator(metrics_auth="token"), passes=2)
            deployment = await world.child("Deployment", "chat")
            (name,) = (
                volume["secret"]["secretName"]
                for volume in deployment["spec"]["template"]["spec"]["volumes"]
                if volume["name"] == contract.READ_VOLUME
            )
            uid = (await world.child(contract.KIND, "chat"))["metadata"]["uid"]
            secret = await world.child("Secret", name)
            assert decoded(secret) == {"token": read_token(read_key(KEY_OF_OPERATOR), uid)} and secret["immutable"]
            for key in (KEY_OF_OPERATOR, KEY_OF_OPERATOR, make_key()):  # a release, its next leader, and another key
                await share_reads(world.client, world.namespace, "release", key)
                of_reads = read_key(key)
                expected = {"key": of_reads, "token": read_token(of_reads, RELEASE)}
                assert decoded(await world.child("Secret", "release")) == expected

    asyncio.run(story())


def test_a_gateway_with_the_secret_of_the_release_tells_the_operator_what_it_holds(
    crd: ApiServer, tmp_path: Path
) -> None:
    async def story() -> None:
        path = tmp_path / contract.READ_KEY
        async with worlds(crd) as make, serving(Known("chat"), reads=ReadOptions(path)) as (gateway, _):
            world, url = make(), gateway.admin_url + contract.PATH_HELD
            await world.create(BASE)
            async with reading(release_token(KEY_OF_OPERATOR)) as session, session.get(url) as response:
                assert response.status == 401
            await share_reads(world.client, world.namespace, "release", KEY_OF_OPERATOR)
            path.write_text(decoded(await world.child("Secret", "release"))[contract.READ_KEY])  # as the kubelet does
        async with (
            serving(Known("chat"), reads=ReadOptions(path)) as (gateway, _),
            reading(release_token(KEY_OF_OPERATOR)) as session,
            session.get(gateway.admin_url + contract.PATH_HELD) as response,
        ):
            assert response.status == 200

    asyncio.run(story())


def test_the_proxy_of_a_pod_passes_the_token_on_in_its_own_header_and_not_as_authorization(crd: ApiServer) -> None:
    async def story() -> None:
        address, token = own_address(), read_token(read_key(KEY_OF_OPERATOR), RELEASE)
        async with worlds(crd) as make, listening(token) as port:
            world = make()
            await world.create(BASE)
            container = {"name": "engine", "image": "engine:1"}
            spec = {"containers": [container], "nodeName": "n", "automountServiceAccountToken": False}
            pods = collection("v1", "pods", world.namespace)
            made = await world.send("POST", pods, {"metadata": {"name": "chat-1"}, "spec": spec})
            status = {"podIP": address, "podIPs": [{"ip": address}], "phase": "Running"}
            await world.send("PUT", f"{pods}/chat-1/status", made | {"status": status})
            reader, metrics = Reader(world.client._dynamic.client), f"{pods}/chat-1:{port}/proxy/metrics"
            assert contract.OPERATOR_LEADER in await reader.text(metrics, read_token=token)
            with pytest.raises(ClusterError) as refused:  # the client's own Authorization does not reach the pod
                await reader.text(metrics)
            assert refused.value.status == 401

    asyncio.run(story())
