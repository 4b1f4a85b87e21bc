"""What a pod's own JSON says."""

from typing import Any

import pytest

from sluice_operator.decide.values import PodPhase
from sluice_operator.exposition import parse
from sluice_operator.pods import cold_start, deletion_cost, phase_of, stamp
from tests.operator.books import exposition, pod

PENDING: dict[str, Any] = {"phase": "Pending"}


def waiting(reason: str, message: str = "", **container: Any) -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    return {"phase": "Pending", "containerStatuses": [{"image": "engine:1", "state": state} | container]}


def ended(message: str = "", reason: str = "Error", code: int = 1) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "message": message}}


@pytest.mark.parametrize(
    ("status", "phase", "reason"),
    [
        (PENDING | {"conditions": [{"type": "PodScheduled", "status": "True"}]}, "pulling", None),
        (waiting("ContainerCreating"), "pulling", None),
        (waiting("ErrImagePull", "no such host"), "failed", "ImagePullFailed"),
        (waiting("ImagePullBackOff", "back-off"), "failed", "ImagePullFailed"),
        (waiting("CreateContainerConfigError", 'secret "hf" not found'), "failed", "SecretNotFound"),
        (waiting("CreateContainerConfigError", "runAsNonRoot"), "failed", "PodConfigInvalid"),
        ({"containerStatuses": [{"state": {"running": {}}}]}, "loading", None),
        ({"containerStatuses": [{"state": ended(code=3)}]}, "failed", "EngineCrashed"),
        (waiting("CrashLoopBackOff", lastState=ended(reason="OOMKilled")), "failed", "InsufficientMemory"),
        (
            waiting("CrashLoopBackOff", lastState=ended('{"reason": "ModelNotFound", "message": "no /models/x"}')),
            "failed",
            "ModelNotFound",
        ),
        (waiting("CrashLoopBackOff", lastState=ended('{"reason": "MadeUp"}')), "failed", "EngineCrashed"),
        (waiting("CrashLoopBackOff", lastState=ended("Traceback")), "failed", "EngineCrashed"),
        ({"containerStatuses": [{"state": {"running": {}}, "lastState": ended()}]}, "loading", None),
        ({"phase": "Failed", "reason": "Evicted", "message": "disk"}, "failed", "Evicted"),
    ],
)
def test_phase_and_trouble(status: dict[str, Any], phase: PodPhase, reason: str | None) -> None:
    found, trouble = phase_of(pod("a", ready=False, **status))
    assert (found, trouble and trouble.reason) == (phase, reason)


def test_the_schedulers_own_words_are_kept() -> None:
    words = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
    item = pod("a", ready=False, phase="Pending", conditions=[condition])
    item["spec"] = {}
    phase, trouble = phase_of(item)
    assert phase == "unschedulable" and trouble is not None and trouble.message == words


def test_a_pod_that_nobody_has_looked_at_is_being_scheduled() -> None:
    item = pod("a", ready=False, phase="Pending")
    item["spec"] = {}
    assert phase_of(item) == ("scheduling", None)


def test_a_pod_that_leaves_drains_whatever_else_it_says() -> None:
    item = pod("a")
    item["metadata"]["deletionTimestamp"] = "2026-11-21T08:00:00Z"
    assert phase_of(item)[0] == "draining"


def test_a_cold_start_adds_up_from_the_pods_own_stamps() -> None:
    text = exposition() + 'sluice_load_phase_seconds{phase="warm"} 2\n'
    start = cold_start(pod("a"), parse(text))
    assert start is not None
    assert (start.schedule, start.pull, start.load, start.warm, start.total) == (1, 2, 5, 2, 10)


def test_a_restarted_pod_measures_no_cold_start() -> None:
    item = pod("a")
    item["status"]["containerStatuses"][0]["restartCount"] = 1
    assert cold_start(item, None) is None


@pytest.mark.parametrize("seconds", [None, 5.0])
def test_readiness_that_came_back_after_hours_is_no_cold_start(seconds: float | None) -> None:
    item = pod("a")
    item["status"]["conditions"][1]["lastTransitionTime"] = "2026-11-21T11:00:00Z"
    text = exposition() + ("" if seconds is None else f'sluice_load_phase_seconds{{phase="load"}} {seconds}\n')
    assert cold_start(item, parse(text)) is None
    assert cold_start(item, None) is None


def test_a_start_that_loads_for_minutes_is_measured_once_the_engine_accounts_for_it() -> None:
    item = pod("a")
    item["status"]["conditions"][1]["lastTransitionTime"] = "2026-11-21T08:05:00Z"
    assert cold_start(item, None) is None
    start = cold_start(item, parse(exposition() + 'sluice_load_phase_seconds{phase="load"} 270\n'))
    assert start is not None and start.total == 300


@pytest.mark.parametrize("text", [None, 3, "yesterday", "2026-11-21T08:00:00"])
def test_what_is_no_stamp_is_none(text: Any) -> None:
    assert stamp(text) is None


@pytest.mark.parametrize(("text", "cost"), [("-3", -3), ("7", 7), ("many", None), ("", None)])
def test_the_deletion_cost_is_read_where_it_is_a_number(text: str, cost: int | None) -> None:
    item = pod("a")
    item["metadata"]["annotations"] = {"controller.kubernetes.io/pod-deletion-cost": text}
    assert deletion_cost(item) == cost
