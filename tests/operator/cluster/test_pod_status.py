"""What a pod's own JSON says."""

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_operator.autoscaler.values import ColdStart, PodPhase
from sluice_operator.cluster.client import Object
from sluice_operator.cluster.pod_status import cold_start, deletion_cost, phase_of, stamp, start_of
from sluice_operator.engines.exposition import parse
from tests.operator.fake_cluster import exposition, pod

PENDING: dict[str, Any] = {"phase": "Pending"}


def waiting(reason: str, message: str = "", **container: Any) -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    return {
        "phase": "Pending",
        "containerStatuses": [{"name": "engine", "image": "engine:1", "state": state} | container],
    }


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
        ({"containerStatuses": [{"name": "engine", "state": {"running": {}}}]}, "loading", None),
        ({"containerStatuses": [{"name": "engine", "state": ended(code=3)}]}, "failed", "EngineCrashed"),
        (waiting("CrashLoopBackOff", lastState=ended(reason="OOMKilled")), "failed", "InsufficientMemory"),
        (
            waiting("CrashLoopBackOff", lastState=ended('{"reason": "ModelNotFound", "message": "no /models/x"}')),
            "failed",
            "ModelNotFound",
        ),
        (waiting("CrashLoopBackOff", lastState=ended('{"reason": "MadeUp"}')), "failed", "EngineCrashed"),
        (waiting("CrashLoopBackOff", lastState=ended("Traceback")), "failed", "EngineCrashed"),
        ({"containerStatuses": [{"name": "engine", "state": {"running": {}}, "lastState": ended()}]}, "loading", None),
        ({"phase": "Failed", "reason": "Evicted", "message": "disk"}, "failed", "Evicted"),
    ],
)
def test_phase_and_problem_of_a_pod(status: dict[str, Any], phase: PodPhase, reason: str | None) -> None:
    found, problem = phase_of(pod("a", ready=False, **status))
    assert (found, problem and problem.reason) == (phase, reason)


def test_the_message_of_the_scheduler_is_quoted() -> None:
    words = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
    item = pod("a", ready=False, phase="Pending", conditions=[condition])
    item["spec"] = {}
    phase, problem = phase_of(item)
    assert phase == "unschedulable" and problem is not None and problem.message == words


def test_a_pod_without_status_is_being_scheduled() -> None:
    item = pod("a", ready=False, phase="Pending")
    item["spec"] = {}
    assert phase_of(item) == ("scheduling", None)


def test_a_pod_being_deleted_is_draining_whatever_its_conditions() -> None:
    item = pod("a")
    item["metadata"]["deletionTimestamp"] = "2026-11-21T08:00:00Z"
    assert phase_of(item)[0] == "draining"


def test_a_cold_start_is_the_sum_of_the_phases_in_the_pods_timestamps() -> None:
    text = exposition() + 'sluice_load_phase_seconds{phase="warm"} 2\n'
    start = cold_start(pod("a"), parse(text))
    assert start is not None
    assert (start.schedule, start.pull, start.load, start.warm, start.total) == (1, 2, 5, 2, 10)


def clocks_apart(control_plane: int, node: int) -> Object:
    """The pod where the API server's clock, and its node's, are ahead by so many seconds."""
    item = pod("a")
    status = item["status"]
    stamps = [
        (item["metadata"], "creationTimestamp", control_plane),
        (status["conditions"][0], "lastTransitionTime", control_plane),
        (status, "startTime", node),
        (status["containerStatuses"][0]["state"]["running"], "startedAt", node),
        (status["conditions"][1], "lastTransitionTime", node),
    ]
    for holder, key, ahead in stamps:
        moved = datetime.fromisoformat(holder[key]) + timedelta(seconds=ahead)
        holder[key] = moved.strftime("%Y-%m-%dT%H:%M:%SZ")
    return item


@given(st.integers(-600, 600), st.integers(-600, 600))
def test_a_cold_start_is_the_same_however_far_the_nodes_and_the_api_servers_clock_are_apart(
    control_plane: int, node: int
) -> None:
    text = exposition() + 'sluice_load_phase_seconds{phase="warm"} 2\n'
    assert cold_start(clocks_apart(control_plane, node), parse(text)) == ColdStart(1, 2, 5, 2, 10)


def test_the_download_is_a_phase_of_its_own() -> None:
    text = exposition() + 'sluice_load_phase_seconds{phase="fetch"} 4\nsluice_load_phase_seconds{phase="warm"} 2\n'
    start = cold_start(pod("a"), parse(text))
    assert start is not None
    assert (start.fetch, start.load, start.warm) == (4, 1, 2)
    assert start.total == start.schedule + start.pull + start.fetch + start.load + start.warm


@pytest.mark.parametrize("stamps", ["scheduled", "started", "ready"])
@pytest.mark.parametrize(("back", "measured"), [(1, True), (600, False)])
def test_a_clock_that_was_set_back_meanwhile_measures_no_cold_start(stamps: str, back: int, measured: bool) -> None:
    item = pod("a")
    status = item["status"]
    holder, key, before = {
        "scheduled": (status["conditions"][0], "lastTransitionTime", "2026-11-21T08:00:00Z"),
        "started": (status["containerStatuses"][0]["state"]["running"], "startedAt", "2026-11-21T08:00:01Z"),
        "ready": (status["conditions"][1], "lastTransitionTime", "2026-11-21T08:00:03Z"),
    }[stamps]
    holder[key] = (datetime.fromisoformat(before) - timedelta(seconds=back)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert (cold_start(item, None) is not None) == measured


@pytest.mark.parametrize("gone", ["startTime", "conditions", "containerStatuses"])
def test_a_pod_without_a_stamp_measures_no_cold_start(gone: str) -> None:
    item = pod("a")
    if gone == "conditions":
        del item["status"]["conditions"][0]
    else:
        del item["status"][gone]
    assert cold_start(item, None) is None


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
def test_an_invalid_timestamp_is_none(text: Any) -> None:
    assert stamp(text) is None


@pytest.mark.parametrize(
    ("text", "cost"), [("-3", -3), ("7", 7), ("many", None), ("", None), ("--3", None), ("9" * 5000, None)]
)
def test_the_deletion_cost_is_read_where_it_is_a_number(text: str, cost: int | None) -> None:
    item = pod("a")
    item["metadata"]["annotations"] = {"controller.kubernetes.io/pod-deletion-cost": text}
    assert deletion_cost(item) == cost


SIDECAR: dict[str, Any] = {
    "name": "a-proxy",  # the API server sorts statuses by name: before the engine's
    "restartCount": 7,
    "state": {"running": {"startedAt": "2026-11-21T07:00:00Z"}},
    "lastState": ended(reason="OOMKilled"),
}


@pytest.mark.parametrize("status", [waiting("ErrImagePull", "no such host"), waiting("ContainerCreating")])
def test_an_injected_sidecar_does_not_stand_for_the_engine(status: dict[str, Any]) -> None:
    alone = phase_of(pod("a", ready=False, **status))
    beside = status | {"containerStatuses": [SIDECAR, *status["containerStatuses"]]}
    assert phase_of(pod("a", ready=False, **beside)) == alone


def test_a_sidecars_restarts_are_none_of_the_engines_start() -> None:
    item = pod("a")
    item["status"]["containerStatuses"].insert(0, SIDECAR)
    assert cold_start(item, None) == cold_start(pod("a"), None) is not None
    assert start_of(item) == start_of(pod("a"))


def crashed(message: str) -> Object:
    return pod("a", ready=False, **waiting("CrashLoopBackOff", lastState=ended(message)))


@pytest.mark.parametrize(
    "message",
    [
        "[" * 100_000,
        '{"reason":' * 1000,
        '{"reason": ["ModelNotFound"], "message": "x"}',
        '{"reason": {"a": 1}}',
        '{"reason": "ModelNotFound", "message": ' + "[" * 900 + "]" * 900 + "}",
        "9" * 4000,
    ],
    ids=["deep list", "deep mapping", "list for a reason", "mapping for a reason", "deep message", "number"],
)
def test_any_termination_message_is_a_crash_and_raises_no_error(message: str) -> None:
    phase, problem = phase_of(crashed(message))
    assert phase == "failed" and problem is not None and len(problem.message) < 1200


@given(st.text(st.characters(), max_size=50))
def test_termination_messages_are_printable_and_valid_utf_8(words: str) -> None:
    said = json.dumps({"reason": "ModelNotFound", "message": words + "\ud800\x00\x1b[31m"})
    problem = phase_of(crashed(said))[1]
    assert problem is not None and problem.reason == "ModelNotFound"
    assert problem.message.isprintable() and problem.message.encode()
