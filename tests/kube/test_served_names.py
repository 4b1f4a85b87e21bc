"""Two resources that change their served names for one another, on a real API server: none is left in conflict."""

import json
import time
import urllib.error
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from sluice import contract
from sluice_operator.cluster.client import Key, Object
from sluice_operator.cluster.kinds import path
from tests.kube.api_server import ApiServer, NoApiServer, controllers
from tests.kube.specs import BASE
from tests.kube.world import World, document, in_worlds

# Kubernetes' garbage collector, which starts meanwhile and looks for kinds again every 30 s, deletes the old ones' children.
SECONDS: Final = 100.0


def named(served: str) -> Object:
    return BASE | {"model": BASE["model"] | {"servedName": served}}


async def two_of_them(world: World) -> str:
    """Resources that serve "one" and "two"; the path of their collection."""
    await world.create(named("one"))
    where = path(contract.KIND, world.namespace)
    await world.send("POST", where, document(named("two"), "second"))
    return where


def test_a_swap_of_served_names_is_refused_and_both_serve_as_before(crd: ApiServer) -> None:
    async def story(make: Callable[[], World]) -> None:
        world = make()
        where = await two_of_them(world)
        operator = await world.settle()
        for resource, served in (("chat", "two"), ("second", "one")):
            live = await world.child(contract.KIND, resource)
            with pytest.raises(urllib.error.HTTPError) as refused:
                await world.send("PUT", f"{where}/{resource}", live | {"spec": named(served)})
            assert "model.servedName must not change" in json.loads(refused.value.read())["message"]
        for resource in ("chat", "second"):
            await operator.reconcile(Key(world.namespace, resource))
            assert (await world.condition("Ready", resource))["reason"] == "Starting"

    in_worlds(crd, story)


@pytest.mark.parametrize("order", [("chat", "second"), ("second", "chat")])
def test_a_swap_by_deletion_and_creation_leaves_no_conflict(
    crd: ApiServer, tmp_path: Path, order: tuple[str, str]
) -> None:
    """As `kubectl replace --force` does it: the first is made anew while the second still has the name."""

    async def story(make: Callable[[], World]) -> None:
        world = make()
        where = await two_of_them(world)
        operator = await world.settle()
        await operator.reconcile(Key(world.namespace, "second"))
        swapped = {"chat": named("two"), "second": named("one")}
        for resource in order:
            await world.send("DELETE", f"{where}/{resource}")
            await world.send("POST", where, document(swapped[resource], resource))
            for each in ("chat", "second"):
                await operator.reconcile(Key(world.namespace, each))
        end = time.monotonic() + SECONDS
        found: list[str] = []
        while found != ["Starting", "Starting"] and time.monotonic() < end:
            for each in ("chat", "second"):
                await operator.reconcile(Key(world.namespace, each))
            found = [(await world.condition("Ready", each))["reason"] for each in ("chat", "second")]
        assert found == ["Starting", "Starting"]

    try:
        with controllers(crd, tmp_path, "garbage-collector-controller"):
            in_worlds(crd, story)
    except NoApiServer as error:
        pytest.skip(str(error))
