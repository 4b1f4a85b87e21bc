"""The status over many passes: what the schema knows, written as rarely as it should be."""

import copy
import json
from dataclasses import replace

from sluice_operator.api import LLMDeploymentStatus
from sluice_operator.api.crd import structural_schema
from sluice_operator.reconcile.reconcile import reconcile
from tests.operator.books import (
    KEY,
    Clock,
    Engines,
    deployed,
    exposition,
    manifest,
    operator,
    pod,
    settle,
    world_with,
)


async def test_the_status_is_one_the_schema_knows() -> None:
    world = world_with()
    world.pods = [pod("a")]
    await settle(world)
    LLMDeploymentStatus.model_validate_json(json.dumps(world.status))


async def test_numbers_move_at_most_every_thirty_seconds() -> None:
    world, engines, clock = world_with(), Engines(), Clock()
    world.pods = [pod("a")]
    context = operator(world, engines, clock)
    changes = 0
    for step in range(24):
        engines.text = exposition(kv_block_seconds_total=2.0 * step * step)
        before = world.status.get("kvOccupancyPercent")
        await reconcile(KEY, context)
        changes += before != world.status.get("kvOccupancyPercent")
        clock.now += 5
    assert 2 <= changes <= 5


async def test_what_the_schemas_defaults_fill_in_is_no_change() -> None:
    world = world_with()
    await settle(world)
    known = structural_schema(LLMDeploymentStatus)["properties"]
    filled = {name: value["default"] for name, value in known.items() if "default" in value}
    assert {**filled, **world.status} == world.status


async def test_a_large_fleet_whose_starts_come_one_by_one_writes_them_with_the_numbers() -> None:
    world, clock = world_with(manifest(scaling={"minReplicas": 24, "maxReplicas": 24})), Clock()
    context, changes = operator(world, clock=clock), 0
    text = exposition() + 'sluice_load_phase_seconds{phase="load"} 7\n'
    context = replace(context, scraper=Engines(text))
    for number in range(24):
        world.pods = [*world.pods, pod(f"chat-{number}")]
        before = world.status.get("coldStarts")
        await reconcile(KEY, context)
        changes += before != world.status.get("coldStarts")
        clock.now += 5
    assert 2 <= changes <= 5
    assert len(world.status["coldStarts"]) == 16


async def test_a_readiness_that_blinks_makes_no_cold_start_for_whoever_looks() -> None:
    world, clock = deployed(world_with(), pod("a")), Clock()
    context = operator(world, clock=clock)
    await reconcile(KEY, context)
    learned = world.status["coldStarts"]
    assert [entry["total"] for entry in learned] == [10.0]
    ready = world.pods[0]["status"]["conditions"][1]
    for status in ("False", "True"):
        ready.update(status=status, lastTransitionTime="2026-11-21T11:00:00Z")
        clock.now += 60
        await reconcile(KEY, context)
    assert world.status["coldStarts"] == learned
    world.pods.append(copy.deepcopy(world.pods[0]))
    world.pods[1]["metadata"]["name"] = "b"  # whose start its predecessor did not know
    await reconcile(KEY, operator(world, clock=clock))
    assert world.status["coldStarts"] == learned
