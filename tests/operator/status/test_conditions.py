"""The table of conditions: facts in, verdicts out."""

from dataclasses import replace
from typing import Any

import pytest

from sluice_operator.api import LLMDeploymentSpec, parse
from sluice_operator.autoscaler.budget.values import BUDGET, BUDGET_INVALID, BudgetLimit
from sluice_operator.autoscaler.values import Decision, PodPhase, PodView
from sluice_operator.cluster.fleet import ObservedFleet, ObservedPod
from sluice_operator.cluster.pod_status import Problem
from sluice_operator.status.build import Update, build, by_type
from sluice_operator.status.conditions import RULES, conditions
from sluice_operator.status.decisions import append
from sluice_operator.status.events import Event, SentEvents, events_of
from sluice_operator.status.facts import Facts
from sluice_operator.status.problems import problem_of
from sluice_operator.status.rollout import Rollout
from tests.operator.fake_cluster import KEY, manifest

DONE = Rollout(written=True, observed=True, up_to_date=True)
NOW = "2026-11-21T09:00:00Z"


def spec(**changes: Any) -> LLMDeploymentSpec:
    return parse(manifest(**changes), strict=False).spec


def report(name: str, phase: PodPhase, problem: Problem | None = None, hash_: str = "v1") -> ObservedPod:
    return ObservedPod(view=PodView(name=name, phase=phase, since=0.0), problem=problem, template_hash=hash_)


def facts(*pods: ObservedPod, replicas: int = 1, **changes: Any) -> Facts:
    deployment = {"spec": {"replicas": replicas}, "status": {}}
    known = Facts(generation=2, spec=spec(), fleet=ObservedFleet(deployment, pods), rollout=DONE)
    return replace(known, **changes)


def states(given: Facts) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c["reason"]) for c in conditions(given, NOW)}


def rolling(**changes: Any) -> Rollout:
    return replace(DONE, up_to_date=False, **changes)


READY = report("a", "ready")
PULL = Problem("ImagePullFailed", "x:1: not there")
NEW = report("b", "loading", hash_="v2")
STUCK = report("b", "failed", PULL, "v2")
GPU = Problem("Unschedulable", "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")
DECIDED = Decision(replicas=1, desired=1, attainment=0.95, metrics="Fresh")
LIMITED = replace(DECIDED, budget=BudgetLimit(BUDGET, 1, 3, "3 are needed; the budget gives 1."))
NOTHING = replace(DECIDED, budget=BudgetLimit(BUDGET, 0, 1, "1 are needed; the budget gives 0."))
UNREADABLE = replace(DECIDED, budget=BudgetLimit(BUDGET_INVALID, 1, 1, "The annotation is wrong."))


@pytest.mark.parametrize(
    ("given", "kind", "status", "reason"),
    [
        (facts(), "Ready", "False", "Starting"),
        (facts(READY), "Ready", "True", "Serving"),
        (facts(READY), "Available", "True", "ReplicasReady"),
        (facts(READY), "Progressing", "False", "Settled"),
        (facts(READY, decision=LIMITED), "ScalingActive", "True", BUDGET),
        (facts(READY, decision=LIMITED), "Ready", "True", "Serving"),
        (facts(READY, decision=UNREADABLE), "ScalingActive", "True", BUDGET_INVALID),
        (facts(READY, decision=LIMITED, spec=spec(scaling={"mode": "Off"})), "ScalingActive", "False", "ScalingOff"),
        (facts(replicas=0, decision=NOTHING), "Ready", "False", BUDGET),
        (facts(READY), "ModelLoaded", "True", "Loaded"),
        (facts(report("a", "loading")), "ModelLoaded", "False", "Loading"),
        (facts(report("a", "loading")), "Progressing", "True", "ReplicasStarting"),
        (facts(READY, report("b", "draining")), "Progressing", "True", "Draining"),
        (facts(replicas=0), "Ready", "False", "NoReplicas"),
        (facts(replicas=0, spec=spec(scaling={"minReplicas": 0})), "Ready", "False", "Asleep"),
        (facts(report("a", "failed", PULL)), "Ready", "False", "ImagePullFailed"),
        (facts(report("a", "unschedulable", GPU)), "Ready", "False", "Unschedulable"),
        (facts(READY, report("b", "unschedulable", GPU), replicas=2), "Ready", "True", "Serving"),
        (facts(READY, report("b", "unschedulable", GPU), replicas=2), "Progressing", "False", "Unschedulable"),
        (facts(READY, STUCK, rollout=rolling()), "Progressing", "False", "RolloutStalled"),
        (facts(READY, STUCK, rollout=rolling()), "Ready", "False", "RolloutStalled"),
        (facts(READY, STUCK, rollout=rolling()), "Available", "True", "ReplicasReady"),
        (facts(READY, STUCK, rollout=rolling()), "ModelLoaded", "Unknown", "RollingOut"),
        (facts(READY, rollout=rolling(deadline_exceeded=True)), "Ready", "False", "RolloutStalled"),
        (facts(READY, rollout=replace(DONE, deadline_exceeded=True)), "Ready", "True", "Serving"),
        (facts(READY, rollout=rolling()), "Ready", "False", "RollingOut"),
        (facts(READY, rollout=rolling()), "Available", "True", "ReplicasReady"),
        (facts(READY, rollout=rolling()), "Progressing", "True", "RollingOut"),
        (facts(READY, rollout=replace(DONE, observed=False)), "Ready", "False", "RollingOut"),
        (facts(READY, rollout=replace(DONE, observed=False)), "Progressing", "True", "RollingOut"),
        (facts(READY, replicas=2), "Ready", "True", "Serving"),
        (facts(READY, rollout=rolling(replica_failure="exceeded quota")), "Ready", "False", "RolloutStalled"),
        (facts(READY, NEW, rollout=rolling(replica_failure="exceeded quota")), "Ready", "False", "PodsRefused"),
        (facts(rollout=rolling(replica_failure="exceeded quota")), "Ready", "False", "PodsRefused"),
        (facts(READY, replicas=2, rollout=replace(DONE, replica_failure="exceeded quota")), "Ready", "True", "Serving"),
        (facts(report("a", "failed", Problem("ModelNotFound", "no /m"))), "ModelLoaded", "False", "ModelNotFound"),
        (facts(READY, spec=None, parse_errors=("spec.model is required",)), "Ready", "False", "InvalidSpec"),
        (facts(READY, spec=None, parse_errors=("spec.model is required",)), "Available", "True", "ReplicasReady"),
        (facts(READY, spec=None, parse_errors=("spec.model is required",)), "ModelLoaded", "True", "Loaded"),
        (facts(READY, write_error="forbidden"), "Ready", "False", "WriteRefused"),
        (facts(READY, write_error="forbidden"), "Available", "True", "ReplicasReady"),
        (facts(READY, conflict="Service x is not ours"), "Ready", "False", "Conflict"),
        (facts(spec=None, parse_errors=("spec.model is required",)), "Ready", "False", "InvalidSpec"),
        (facts(conflict="Service x is not ours"), "Ready", "False", "Conflict"),
        (facts(conflict="Service x is not ours"), "ScalingActive", "False", "Conflict"),
        (facts(spec=spec(paused=True)), "Paused", "True", "PausedBySpec"),
        (facts(spec=spec(paused=True)), "Ready", "False", "Paused"),
        (facts(READY, spec=spec(paused=True)), "Ready", "True", "Serving"),
        (facts(READY, spec=spec(paused=True), rollout=replace(DONE, written=False)), "Ready", "False", "Paused"),
        (facts(READY, spec=spec(paused=True), rollout=replace(DONE, written=False)), "Progressing", "False", "Paused"),
        (facts(), "Paused", "False", "NotPaused"),
        (facts(spec=spec(scaling={"mode": "External"})), "ScalingActive", "False", "ExternalScaler"),
        (facts(spec=spec(scaling={"mode": "Advise"})), "ScalingActive", "False", "AdviseOnly"),
        (facts(spec=spec(scaling={"mode": "Off"})), "ScalingActive", "False", "ScalingOff"),
        (facts(external_writer="'kubectl' changed it"), "ScalingActive", "True", "OtherWriter"),
        (facts(decision=DECIDED), "SLOMet", "False", "Missed"),
        (facts(decision=replace(DECIDED, attainment=0.995)), "SLOMet", "True", "Met"),
        (facts(decision=replace(DECIDED, attainment=None)), "SLOMet", "Unknown", "NoTraffic"),
        (facts(decision=DECIDED), "MetricsAvailable", "True", "Fresh"),
        (facts(decision=replace(DECIDED, metrics="Stale")), "MetricsAvailable", "False", "MetricsStale"),
        (facts(decision=replace(DECIDED, metrics="NoPods")), "MetricsAvailable", "Unknown", "NoPods"),
        (facts(), "MetricsAvailable", "Unknown", "NotObserved"),
        (facts(), "AdmissionActive", "True", "Auto"),
        (facts(spec=spec(admission={"mode": "Fixed"})), "AdmissionActive", "True", "Fixed"),
        (facts(spec=spec(admission={"mode": "Off"})), "AdmissionActive", "False", "AdmissionOff"),
        (facts(spec=spec(paused=True)), "AdmissionActive", "False", "Paused"),
        (facts(spec=None, parse_errors=("spec.model is required",)), "AdmissionActive", "False", "InvalidSpec"),
        (facts(conflict="Service x is not ours"), "AdmissionActive", "False", "Conflict"),
        (facts(READY, limit_errors=("pod a did not answer",)), "AdmissionActive", "False", "LimitsNotSet"),
        (
            facts(READY, write_error="no right", limit_errors=("pod a: 401",)),
            "AdmissionActive",
            "False",
            "LimitsNotSet",
        ),
        (facts(READY, write_error="no right"), "AdmissionActive", "True", "Auto"),
    ],
)
def test_each_condition_has_the_state_of_its_first_applicable_rule(
    given: Facts, kind: str, status: str, reason: str
) -> None:
    assert states(given)[kind] == (status, reason)


@pytest.mark.parametrize(
    ("scaling", "desired", "step"),
    [
        ({"mode": "Auto"}, 2, "see status.decisions for what the operator does"),
        ({"mode": "Auto", "maxReplicas": 2}, 2, "raise spec.scaling.maxReplicas or relax spec.slo"),
        ({"mode": "Advise"}, 2, "see status.decisions for the advice, which the operator does not apply"),
        ({"mode": "External"}, 9, "raise spec.replicas or relax spec.slo"),
        ({"mode": "Off"}, 1, "scale the Deployment or relax spec.slo"),
    ],
)
def test_a_missed_slo_names_the_step_that_helps_in_this_mode(scaling: Any, desired: int, step: str) -> None:
    given = facts(READY, spec=spec(scaling={"maxReplicas": 4} | scaling), decision=replace(DECIDED, desired=desired))
    missed = next(entry for entry in conditions(given, NOW) if entry["type"] == "SLOMet")
    assert missed["message"].endswith(f": {step}.")


def test_a_quota_that_leaves_no_room_for_the_next_pod_says_how_a_rollout_goes_on() -> None:
    words = 'pods "chat-x" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=1'
    full = facts(READY, rollout=rolling(replica_failure=words))
    (message,) = (each["message"] for each in conditions(full, NOW) if each["type"] == "Ready")
    assert words in message and "Raise the quota, or set spec.rollout.maxSurge to 0" in message
    without_surge = replace(full, spec=spec(rollout={"maxSurge": 0, "maxUnavailable": 1}))
    (message,) = (each["message"] for each in conditions(without_surge, NOW) if each["type"] == "Ready")
    assert "maxSurge" not in message and "Raise the quota, change the policy" in message


PATCHED = "PATCH /{}/namespaces/ns/{}: 422 {} "


@pytest.mark.parametrize(
    ("found", "step"),
    [
        ({"write_error": "POST /api/v1/namespaces/ns/services: 403 denied"}, "Grant the operator this permission"),
        (
            {
                "write_error": PATCHED.format("apis/apps/v1", "deployments/chat", 'Deployment.apps "chat"')
                + 'is invalid: spec.template.spec.containers[0].env[3].name: Invalid value: "x": no'
            },
            "Correct the field of spec.engine",
        ),
        (
            {
                "write_error": PATCHED.format("api/v1", "configmaps/chat-targets", 'ConfigMap "chat-targets"')
                + "is invalid: data: Forbidden: field is immutable when `immutable` is set"
            },
            "Delete that object",
        ),
        ({"rollout": rolling(replica_failure="no PriorityClass with name a was found")}, "Create the PriorityClass"),
        ({"rollout": rolling(replica_failure='pod rejected: RuntimeClass "a" not found')}, "Create the RuntimeClass"),
        (
            {"rollout": rolling(replica_failure="minimum memory usage per Container is 4Gi, but request is 1Gi")},
            "Raise spec.engine.resources",
        ),
        ({"rollout": rolling(replica_failure="maximum cpu usage per Container is 1")}, "lower the requests"),
    ],
)
def test_the_next_step_is_one_that_the_words_of_the_api_server_ask_for(found: dict[str, Any], step: str) -> None:
    (message,) = (each["message"] for each in conditions(facts(**found), NOW) if each["type"] == "Ready")
    assert step in message and (step.startswith("Grant") or "permission" not in message)


def test_replicas_that_do_not_start_beside_others_are_counted_and_are_an_event() -> None:
    partial = facts(READY, replicas=2, rollout=replace(DONE, replica_failure="exceeded quota"))
    found = conditions(partial, NOW)
    assert next(each["message"] for each in found if each["type"] == "Ready") == "1 of 2 pods are ready."
    assert [event.reason for event in events_of(partial, found) if event.warning] == ["PodsRefused"]


def test_every_condition_is_set_in_the_first_pass_with_a_sentence() -> None:
    listed = conditions(facts(), NOW)
    assert [c["type"] for c in listed] == [kind for kind, _ in RULES]
    assert all(c["message"].endswith(".") and c["observedGeneration"] == 2 for c in listed)


def test_a_transition_time_stays_while_the_status_stays() -> None:
    first = conditions(facts(), NOW)
    later = conditions(facts(previous=by_type({"conditions": first})), "2026-11-21T10:00:00Z")
    assert {c["lastTransitionTime"] for c in later} == {NOW}
    turned = conditions(facts(READY, previous=by_type({"conditions": first})), "2026-11-21T10:00:00Z")
    assert by_type({"conditions": turned})["Ready"]["lastTransitionTime"] == "2026-11-21T10:00:00Z"


def test_a_crash_stays_the_reason_until_a_successor_is_ready_or_the_spec_changes() -> None:
    crashed = conditions(facts(report("a", "failed", Problem("ModelNotFound", "no /m"))), NOW)
    before = by_type({"conditions": crashed})
    loading = facts(report("b", "loading"), previous=before)
    assert states(loading)["Ready"] == ("False", "ModelNotFound")
    assert states(replace(loading, generation=3))["Ready"] == ("False", "Starting")
    assert problem_of(facts(READY, previous=before)) is None


def test_a_changed_condition_is_one_event() -> None:
    given = facts(report("a", "unschedulable", GPU))
    events = events_of(given, conditions(given, NOW))
    assert [(event.reason, event.warning) for event in events] == [("Unschedulable", True)]
    sent, state = SentEvents().unsent(events, 0.0)
    assert sent == events
    assert state.unsent(events, 30.0)[0] == ()
    assert state.unsent(events, 700.0)[0] == events


def test_the_stored_events_are_bounded() -> None:
    _, state = SentEvents().unsent((Event("X", str(n)) for n in range(1000)), 0.0)
    assert len(state.times) == 100


def entry(kind: str, reason: str, before: int, to: int) -> dict[str, Any]:
    return {"kind": kind, "reason": reason, "from": before, "to": to}


def test_limit_changes_do_not_displace_replica_decisions() -> None:
    listed = [entry("replicas", "Queue", 1, 2)]
    for limit in range(40, 10, -1):
        listed = append(listed, [entry("admission", "InterTokenLatency", limit, limit - 1)])
    assert listed == [entry("replicas", "Queue", 1, 2), entry("admission", "InterTokenLatency", 11, 10)]


def test_ten_decisions_are_kept() -> None:
    listed = append([], [entry("replicas", "Queue", n, n + 1) for n in range(25)])
    assert [each["to"] for each in listed] == list(range(16, 26))


def test_repeated_rejections_do_not_displace_replica_decisions() -> None:
    listed = [entry("replicas", "Queue", 1, 2)]
    for limit in range(40, 10, -1):
        listed = append(listed, [entry("admission", "Refusing", limit, limit)])
        listed = append(listed, [entry("admission", "InterTokenLatency", limit, limit - 1)])
    assert [each["reason"] for each in listed if each["reason"] != "InterTokenLatency"] == ["Queue", "Refusing"]
    listed = append(listed, [entry("replicas", "Queue", 2, 3), entry("admission", "Refusing", 8, 8)])
    assert [each["reason"] for each in listed].count("Refusing") == 2


def test_rejections_with_other_numbers_are_no_new_event() -> None:
    events = (Event("RequestsRefused", "3 requests refused"), Event("RequestsRefused", "7 requests refused"))
    assert len(SentEvents().unsent(events, 0.0)[0]) == 1


def test_the_numbers_of_a_budget_that_binds_are_written_as_rarely_as_measurements() -> None:
    """They change with every scrape, and each write wakes all watchers."""

    def limited(sentence: str) -> Decision:
        return replace(DECIDED, budget=BudgetLimit(BUDGET, 1, 3, sentence))

    def message(status: dict[str, Any]) -> str:
        return str(by_type(status)["ScalingActive"]["message"])

    first = build(KEY, facts(READY, decision=limited("One more is worth 2.")), {}, Update(NOW))
    later = facts(READY, decision=limited("One more is worth 3."), previous=by_type(first))
    assert message(build(KEY, later, first, Update(NOW, measurements_due=False))) == "One more is worth 2."
    assert message(build(KEY, later, first, Update(NOW))) == "One more is worth 3."
