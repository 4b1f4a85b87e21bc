"""A schedule in an unknown time zone: only that schedule is ignored, and a condition names it."""

from typing import Any

import pytest

from sluice_operator.api import InvalidResource, parse
from tests.operator.fake_cluster import KEY, Clock, cluster_with, manifest, operator

ALWAYS = {"cron": "* * * * *", "durationSeconds": 3600}
ATLANTIS = ALWAYS | {"timezone": "Europe/Atlantis", "minReplicas": 4}
BERLIN = ALWAYS | {"timezone": "Europe/Berlin", "minReplicas": 2}


def asked(mode: str = "Auto", *schedules: dict[str, Any]) -> dict[str, Any]:
    return {"scaling": {"mode": mode, "minReplicas": 1, "maxReplicas": 4, "schedules": list(schedules)}}


@pytest.mark.parametrize("mode", ["Auto", "Advise"])
async def test_only_the_invalid_schedule_is_ignored_and_a_condition_and_an_event_name_it(mode: str) -> None:
    cluster, clock = cluster_with(manifest(**asked(mode, ATLANTIS, BERLIN))), Clock()
    reconciler = operator(cluster, clock=clock)
    await reconciler.reconcile(KEY)
    assert cluster.deployment["spec"]["replicas"] == 2  # Berlin's, and not the four of Atlantis
    assert cluster.condition("Ready")["reason"] == "Starting"
    active = cluster.condition("ScalingActive")
    assert (active["status"], active["reason"]) == ("True" if mode == "Auto" else "False", "ScheduleIgnored")
    assert "spec.scaling.schedules[0].timezone" in active["message"] and "Europe/Atlantis" in active["message"]
    assert "Berlin, not" in active["message"] and "schedules[1]" not in active["message"]
    clock.now += 5
    await reconciler.reconcile(KEY)
    assert [(reason, warning) for reason, _, warning in cluster.events if reason == "ScheduleIgnored"] == [
        ("ScheduleIgnored", True)
    ]


async def test_a_change_of_the_rest_of_the_spec_goes_through() -> None:
    cluster, clock = cluster_with(manifest(**asked("Auto", ATLANTIS))), Clock()
    reconciler = operator(cluster, clock=clock)
    await reconciler.reconcile(KEY)
    before = cluster.deployment["spec"]["template"]
    cluster.edit(model={"uri": "pvc://models/other"}, **asked("Auto", ATLANTIS))
    await reconciler.reconcile(KEY)
    assert cluster.deployment["spec"]["template"] != before
    cluster.edit(**asked("Auto", BERLIN))
    await reconciler.reconcile(KEY)
    assert cluster.condition("ScalingActive")["reason"] == "Auto"


@pytest.mark.parametrize("mode", ["External", "Off"])
async def test_where_schedules_are_not_read_their_zones_are_no_matter(mode: str) -> None:
    cluster = cluster_with(manifest(**asked(mode, ATLANTIS)))
    await operator(cluster).reconcile(KEY)
    assert cluster.condition("ScalingActive")["reason"] != "ScheduleIgnored"


def test_a_file_that_a_person_wrote_is_refused() -> None:
    with pytest.raises(InvalidResource, match=r"schedules\[0\].timezone must be a time zone .* not Europe/Atlantis"):
        parse(manifest(**asked("Auto", ATLANTIS)))
    assert parse(manifest(**asked("Auto", ATLANTIS)), strict=False).spec.scaling.schedules


@pytest.mark.parametrize("name", ["Europe", "right", "A" * 64, "a//b"])
async def test_no_name_of_a_zone_breaks_a_pass(name: str) -> None:
    cluster = cluster_with(manifest(**asked("Auto", ALWAYS | {"timezone": name, "minReplicas": 3})))
    await operator(cluster).reconcile(KEY)
    assert cluster.condition("ScalingActive")["reason"] == "ScheduleIgnored"
    assert cluster.deployment["spec"]["replicas"] == 1
