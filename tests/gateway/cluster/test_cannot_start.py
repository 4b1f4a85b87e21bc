"""Models that can get no replica: their requests are told why at once, instead of being held."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import sluice_operator
from sluice import contract
from sluice_gateway.cluster.cannot_start import OF_POD, OF_SPEC, cannot_start
from sluice_gateway.cluster.directory import Directory
from sluice_operator.status.problems import CRASH_REASONS
from tests.gateway.cluster.documents import by_name, deployment
from tests.gateway.cluster.test_cluster_gateway import Known, lines_of, serving
from tests.gateway.engines import CHAT


def failing(reason: str, *, replicas: int = 1, checked: str = "NoReadyReplica", **changes: Any) -> dict[str, Any]:
    """An LLMDeployment whose operator has found a problem."""
    ready = {"type": "Ready", "status": "False", "reason": reason, "observedGeneration": 3} | changes
    available = {"type": "Available", "status": "False", "reason": checked, "observedGeneration": 3}
    document = deployment("chat") | {"status": {"replicas": replicas, "conditions": [ready, available]}}
    document["metadata"]["generation"] = 3
    return document


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (failing("ImagePullFailed"), "ImagePullFailed"),
        (failing(contract.REASON_ENGINE_CRASHED), contract.REASON_ENGINE_CRASHED),
        (failing("Unschedulable"), "Unschedulable"),
        (failing("NoReplicas", replicas=0), "NoReplicas"),
        (failing("InvalidSpec", replicas=0), "InvalidSpec"),
        (failing("Asleep", replicas=0), ""),
        (failing("Starting"), ""),
        (failing("Fetching"), ""),
        (failing(contract.REASON_SOURCE_UNREACHABLE), ""),  # the engine tries again by itself
        (failing("ImagePullFailed", replicas=0), ""),  # the next pod may have another fate
        (failing("Asleep", replicas=0, checked=contract.REASON_MODEL_NOT_FOUND), contract.REASON_MODEL_NOT_FOUND),
        (failing("ImagePullFailed", observedGeneration=2), ""),  # the spec has changed since
        (failing("ImagePullFailed", status="True"), ""),
        (deployment("chat"), ""),
    ],
)
def test_which_models_cannot_start(document: dict[str, Any], reason: str) -> None:
    assert cannot_start(document) == reason


def test_the_reasons_are_those_that_the_operator_writes() -> None:
    assert CRASH_REASONS <= OF_POD
    root = Path(sluice_operator.__file__).parent
    written = "".join(path.read_text() for folder in ("status", "cluster") for path in (root / folder).rglob("*.py"))
    from_engine = {getattr(contract, name) for name in dir(contract) if name.startswith("REASON_")}
    assert {reason for reason in OF_POD | OF_SPEC if f'"{reason}"' not in written} <= from_engine


def test_a_pod_without_a_node_is_given_the_time_in_which_a_cluster_autoscaler_adds_one() -> None:
    now = 1000.0
    directory = Directory(lambda: now)
    directory.set_deployments("", by_name(failing("Unschedulable")))
    assert directory.cannot_start("chat") == ""
    now = 1299.0
    directory.set_deployments("", by_name(failing("Unschedulable")))  # another change of the resource
    assert directory.cannot_start("chat") == ""
    now = 1300.0
    assert directory.cannot_start("chat") == "Unschedulable"
    directory.set_deployments("", by_name(failing("Starting")))
    assert directory.cannot_start("chat") == ""
    assert directory.cannot_start("none") == ""


async def test_a_request_for_a_model_that_cannot_start_is_told_why_at_once_and_wakes_nothing() -> None:
    directory = Known("search")
    directory.set_deployments("", by_name(failing("ImagePullFailed", message="registry.example/secret:1")))
    async with serving(directory) as (gateway, client), client.get(gateway.admin_url + contract.PATH_HELD) as feed:
        async with client.post(gateway.url + CHAT, json={"model": "chat"}) as response:
            text = await response.text()
        error = json.loads(text)["error"]
        assert (response.status, error["code"]) == (503, "cannot_start")
        assert "ImagePullFailed" in error["message"]
        assert "registry" not in text
        assert int(response.headers["Retry-After"]) == 60
        assert json.loads(await feed.content.readline()) == {}
        async with client.get(gateway.admin_url + "/metrics") as response:
            assert contract.GATEWAY_REJECTIONS + '{reason="cannot_start"} 1.0' in await response.text()


async def test_held_requests_are_released_once_their_model_cannot_start() -> None:
    directory = Known("chat")
    async with serving(directory) as (gateway, client), client.get(gateway.admin_url + contract.PATH_HELD) as feed:
        asked = [asyncio.create_task(client.post(gateway.url + CHAT, json={"model": "chat"})) for _ in range(5)]
        async with asyncio.timeout(20):
            while json.loads(await feed.content.readline()) != {"ns/chat": 5}:
                pass
        directory.set_deployments("", by_name(failing(contract.REASON_INSUFFICIENT_MEMORY)))
        for one in await asyncio.gather(*asked):
            async with one:
                assert (one.status, (await one.json())["error"]["code"]) == (503, "cannot_start")
        await lines_of(feed, {})
        await directory.add("chat")  # a replica that is there is used, whatever the status is
        await gateway.scraper.scrape()
        async with client.post(gateway.url + CHAT, json={"model": "chat"}) as response:
            assert response.status == 200
