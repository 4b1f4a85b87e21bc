"""Applies the Deployment of a resource and, while a new pod template is on trial, the canary's Deployment beside it.

The state is stored before each action. A pass that is interrupted anywhere is followed by one that does the same again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from sluice_operator import render
from sluice_operator.api import Rollout
from sluice_operator.canary import CanaryPod, CanaryState, Counts, Shares, Trial, advance, shares
from sluice_operator.cluster.client import Object
from sluice_operator.cluster.fleet import ObservedFleet, ObservedPod, replicas_of
from sluice_operator.cluster.pod_status import condition
from sluice_operator.reconcile.context import Context, Target
from sluice_operator.reconcile.saved_estimates import SavedEstimates, save_canary
from sluice_operator.render import names
from sluice_operator.revisions.record import with_revision
from sluice_operator.revisions.values import Choice, held
from sluice_operator.status.facts import Facts
from sluice_operator.status.rollout import fingerprint_of, rollout_of

_PROBLEM_PHASES: Final = ("failed", "unschedulable")  # a pod that loads may still fetch its model


@dataclass(frozen=True, slots=True)
class CanaryProgress:
    """The canary's state and what is stored of it; after a pass, also its weight and the stable Deployment as applied."""

    canary: CanaryState
    saved: SavedEstimates
    weight_percent: int = 0
    deployment: Object = field(default_factory=dict)


async def apply_deployments(
    target: Target, facts: Facts, deployment: Object, before: CanaryProgress, context: Context
) -> CanaryProgress:
    """Apply the `deployment` of the chosen pod template, at once or by a canary.

    Raises ClusterError, ForeignObject, OwnerDeleted.
    """
    rollout, owner, fleet, choice = target.resource.spec.rollout, target.document, facts.fleet, facts.choice
    trial = trial_of(fleet, deployment)
    settings = None if _applies_at_once(choice) else rollout.canary
    canary = advance(settings, before.canary, trial, context.wall().timestamp())
    saved = await save_canary(target, before.saved, canary, context)
    part = Shares(trial.replicas, 0, 0)
    if settings is not None and canary.has_pods:
        part = shares(settings, canary, trial, surges=rollout.max_surge > 0)
        # The Service first: pods that no Service of a canary has get their share of the requests like all others.
        await context.cluster.apply(render.canary_service(target.resource, part.weight_percent), owner=owner)
        made = render.canary_deployment(deployment, target.resource, part.canary)
        await context.cluster.apply(made, owner=owner)
    elif canary.exists and await _remove(target, fleet, context):
        canary = replace(canary, exists=False)
        saved = await save_canary(target, saved, canary, context)
    if canary.holds_stable and choice is not None and choice.serving is not None:
        deployment = with_revision(deployment, held(choice, choice.serving))
    if part.canary and "replicas" in deployment["spec"]:
        deployment = render.shared(deployment, trial.replicas, part.stable)
    applied = await context.cluster.apply(deployment, owner=owner)
    return CanaryProgress(canary, saved, part.weight_percent, applied)


def fetched_model(rollout: Rollout, choice: Choice | None) -> Mapping[str, str] | None:
    """The uri and revision of the model that restarting pods fetch: those of the pods that serve while a canary is tried."""
    if choice is None:
        return None
    tried = rollout.canary is not None and not choice.is_kept and not _applies_at_once(choice)
    record = choice.serving if tried and choice.serving is not None else choice.record
    return record.applied.fetched


def _applies_at_once(choice: Choice | None) -> bool:
    """True for a change that is no new spec of the user: a way back, an upgrade that the policy allows, or a new key."""
    if choice is not None and (choice.takes_key or choice.record.is_rekeyed):
        return True
    if choice is None or choice.is_kept:
        return False
    applied = choice.record.applied
    return applied.ready or applied.is_upgrade or choice.failure is not None


def restored_canary(saved: CanaryState, document: Object) -> CanaryState:
    """The stored state. Where it has been lost, children of a canary may have been left behind."""
    asked = ((document.get("spec") or {}).get("rollout") or {}).get("canary")
    return replace(saved, exists=True) if asked and saved == CanaryState() else saved


def trial_of(fleet: ObservedFleet, deployment: Object) -> Trial:
    """What is observed of both revisions; `deployment` is rendered from the spec, for the whole count of replicas."""
    live, replicas = fleet.deployment, deployment["spec"].get("replicas")
    count = (replicas_of(live) or 0) if replicas is None else int(replicas)
    stable, wanted = [pod for pod in fleet.pods if not pod.canary_revision], fingerprint_of(deployment)
    ready, rollout = sum(pod.view.phase == "ready" for pod in stable), rollout_of(live, None, None)
    return Trial(
        wanted=wanted,
        applied="" if live is None else fingerprint_of(live) or "unknown",
        replicas=count,
        stable_ready=ready,
        pods=tuple(_pod(pod) for pod in fleet.pods if pod.canary_revision == wanted and pod.view.phase != "draining"),
        is_late=condition(fleet.canary or {}, "Progressing").get("reason") == "ProgressDeadlineExceeded",
        is_rolled_out=rollout.up_to_date and ready >= count,
        lacks_nodes=any(pod.view.phase == "unschedulable" for pod in stable),
    )


def _pod(pod: ObservedPod) -> CanaryPod:
    view, sample = pod.view, pod.view.sample
    problem = pod.problem if view.phase in _PROBLEM_PHASES else None
    return CanaryPod(
        name=view.name,
        ready=view.phase == "ready",
        totals=None
        if sample is None
        else Counts(sample.finished_total, sample.failed_total, sample.slo_met_total, sample.slo_missed_total),
        problem=None if problem is None else (problem.reason, problem.message),
        loads=bool(pod.progress or pod.loaded),
    )


async def _remove(target: Target, fleet: ObservedFleet, context: Context) -> bool:
    """Take the canary's weight, then its pods, and when they are gone its Deployment and Service; True once nothing is left."""
    cluster, owner, where = context.cluster, target.document, (target.key.namespace, names.canary(target.key.name))
    owned = await cluster.child("Service", *where, owner) is not None
    if fleet.canary is not None:
        if owned:
            await cluster.apply(render.canary_service(target.resource, 0), owner=owner)
        if replicas_of(fleet.canary):
            # Pods of a deleted Deployment wait for the garbage collector, which can be minutes late, and no pass sees them.
            await cluster.apply(render.without_pods(fleet.canary), owner=owner)
            return False
    if any(pod.canary_revision and pod.view.phase != "draining" for pod in fleet.pods):
        return False
    if fleet.canary is not None:
        await cluster.delete("Deployment", *where)
    if owned:
        await cluster.delete("Service", *where)
    return True
