"""The rows on models that cannot be fetched or do not fit, on a real API server.

A real engine process is the pod's for the first, and reads a hub of the test; for the second an operator's pass reads it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from sluice_operator.autoscaler.values import Bounds, EngineSample
from sluice_operator.cluster.client import Endpoint, Object
from sluice_operator.engines.client import HttpScraper
from sluice_operator.model_check import HubReader, ModelChecks
from tests.engine.server.test_model_fetch import URI, environment
from tests.engine.serving import Served, answers, poll, start
from tests.hub_server import HubServer
from tests.kube.api_server import ApiServer
from tests.kube.specs import BASE
from tests.kube.test_acceptance_pods import STARTED, address_of, look, over_http, owned_by_deployment, run
from tests.kube.world import World, in_worlds

SPEC: Object = BASE | {"model": {"uri": URI}, "scaling": {"minReplicas": 1, "maxReplicas": 1}}
LOADING: Object = STARTED | {"ready": False}
pytestmark = pytest.mark.timeout(400)  # the engine doubles the wait between two attempts
PATIENCE = 120.0  # seconds for the engine to start or to try again, on a busy machine


def on_accelerator(gibibytes: int) -> Object:
    """A spec whose node selector fixes the memory of its accelerator."""
    selector = {"nvidia.com/gpu.memory": str(gibibytes * 1024)}
    return SPEC | {"engine": {"accelerator": {"count": 1}, "template": {"nodeSelector": selector}}}


class AtItsPort(HttpScraper):
    """Calls the engine at the admin port that it has on this machine."""

    def __init__(self, served: Served) -> None:
        super().__init__(timeout=10.0)
        self._served = served

    def _at(self, endpoint: Endpoint) -> Endpoint:
        return replace(endpoint, host="127.0.0.1", port=self._served.admin_port)

    async def scrape(self, endpoint: Endpoint) -> EngineSample:
        """Scrape one sample."""
        return await super().scrape(self._at(endpoint))

    async def patch_limits(
        self, endpoint: Endpoint, token: str, bounds: Bounds | None, retry_after: float, ttl: float = 0.0
    ) -> None:
        """Set the limits."""
        await super().patch_limits(self._at(endpoint), token, bounds, retry_after, ttl)


def problem(served: Served) -> str:
    """The reason that the engine reports; empty without one."""
    if not answers(served, "/readyz", 503):
        return ""
    body: dict[str, Any] = orjson.loads(served.admin("GET", "/readyz").body)
    return str((body.get("problem") or {}).get("reason", ""))


def test_row_a_model_that_cannot_be_fetched_is_the_reason_with_a_next_step_until_it_is_mended(
    crd: ApiServer, tiny_model: Path, tmp_path: Path
) -> None:
    files = {path.name: path.read_bytes() for path in tiny_model.iterdir() if path.is_file()}

    async def story(make: Callable[[], World]) -> None:
        world = make()
        with HubServer(files) as hub:
            hub.token = "secret"
            options = ("--fetch-errors", "retry", "--cache", str(tmp_path / "cache"))
            served = start(URI, tmp_path / "log", *options, env=environment(hub.url, tmp_path))
            try:
                await world.create(SPEC)
                async with AtItsPort(served) as scraper:
                    operator = over_http(world, scraper)
                    await world.settle(operator, 2)
                    owner = await owned_by_deployment(world, "v1")
                    await run(world, owner, "chat-1", address_of(1), LOADING)

                    async def told(reason: str) -> str:
                        await asyncio.to_thread(poll, lambda: problem(served) == reason, PATIENCE, served.log)
                        await look(world, operator, (1, 1, 0))
                        ready = await world.condition("Ready")
                        assert (ready["status"], ready["reason"]) == ("False", reason)
                        return str(ready["message"])

                    await told("SecretNotFound")
                    (tmp_path / "token").write_text("another")
                    assert "does not give access" in await told("ModelAccessDenied")
                    (tmp_path / "token").write_text("secret")
                    hub.refusal = (404, {"X-Error-Code": "RepoNotFound"})
                    assert "Check the name" in await told("ModelNotFound")
                    hub.refusal = (404, {"X-Error-Code": "RevisionNotFound"})
                    assert "Name one of its branches" in await told("RevisionNotFound")
                    hub.refusal = (403, {"X-Error-Code": "GatedRepo"})
                    assert "Accept its terms" in await told("ModelAccessDenied")
                    hub.refusal = None
                    await asyncio.to_thread(poll, lambda: answers(served, "/readyz", 200), PATIENCE, served.log)
                    await run(world, owner, "chat-1", address_of(1), STARTED)
                    await look(world, operator, (1, 1, 1))
                    assert (await world.condition("Ready"))["status"] == "True"
            finally:
                served.process.kill()
                served.process.wait(60)

    in_worlds(crd, story)


def test_row_weights_larger_than_the_accelerator_are_reported_with_numbers_and_get_no_pod_until_a_larger_one_is_selected(
    crd: ApiServer, tiny_model: Path
) -> None:
    files = {path.name: path.read_bytes() for path in tiny_model.iterdir() if path.is_file()}

    async def story(make: Callable[[], World]) -> None:
        world = make()
        with HubServer(files) as hub:
            hub.claimed_size = 64 * 2**30
            await world.create(on_accelerator(15))
            operator = world.operator(hub_endpoint=hub.url)
            checks = ModelChecks(HubReader(hub.url), clock=world.clock)
            operator.context = replace(operator.context, models=checks)
            await world.settle(operator)
            ready = await world.condition("Ready")
            assert (ready["status"], ready["reason"]) == ("False", "InsufficientMemory")
            assert "of weights" in ready["message"] and "15 GiB" in ready["message"]
            assert await world.reader.get("Deployment", world.namespace, "chat") is None
            await world.replace(on_accelerator(160))
            await world.settle(operator)
            assert (await world.condition("Ready"))["reason"] != "InsufficientMemory"
            assert (await world.child("Deployment", "chat"))["spec"]["replicas"] == 1
            await checks.close()

    in_worlds(crd, story)
