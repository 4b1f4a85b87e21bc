"""Gathers the state of the Deployment, its pods and their engines as plain values for decide() and the status.

This module makes no decisions. Ages are seconds of the local monotonic clock since an object was first observed,
because timestamps come from other clocks, which may be minutes off. Only the load time that an engine reports can make
its start older than the first observation.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from sluice.auth.read_tokens import read_key, read_token
from sluice_operator.autoscaler.values import ColdStart, EngineSample, PodPhase, PodView
from sluice_operator.cluster import pod_status
from sluice_operator.cluster.client import Endpoint, Object
from sluice_operator.cluster.fleet import ObservedFleet, ObservedPod, pods_of
from sluice_operator.cluster.pod_status import Problem
from sluice_operator.engines.client import ScrapeError, scrape_all
from sluice_operator.engines.scrape_backoff import ScrapeBackoff, can_answer
from sluice_operator.reconcile.children.admin_token import derive
from sluice_operator.reconcile.context import Context
from sluice_operator.reconcile.observation_state import ObservationState, current_backoffs, next_state
from sluice_operator.render import names
from sluice_operator.revisions.values import secret_of

SCRAPED_PHASES: Final = ("loading", "ready", "draining")  # an engine returns metrics while it loads
LIST_LAG: Final = 10.0  # seconds by which a list may lag: tolerance on the longest possible cold start of a pod


async def observe(
    resource: Object, state: ObservationState, context: Context, *, with_canary: bool = False
) -> tuple[ObservedFleet, ObservationState]:
    """Observe once everything that the LLMDeployment `resource` owns, the Deployment of a canary only `with_canary`.

    An engine that does not answer is only reported. Raises ClusterError if the cluster cannot be read.
    """
    cluster, clock = context.cluster, context.clock
    name, namespace = str(resource["metadata"]["name"]), str(resource["metadata"]["namespace"])
    deployment = await cluster.child("Deployment", namespace, names.deployment(name), resource)
    canary = await cluster.child("Deployment", namespace, names.canary(name), resource) if with_canary else None
    pods = await pods_of((deployment, canary), namespace, name, cluster)
    # Evicted pods stay listed for days and are already replaced: they count only while no other pod exists.
    pods = [pod for pod in pods if not pod_status.has_ended(pod)] or pods
    phases = {_name(pod): pod_status.phase_of(pod)[0] for pod in pods}
    endpoints = {_name(pod): _with_tokens(cluster.endpoint(pod), pod, resource, context) for pod in pods}
    reachable = [endpoints[pod] for pod in _reachable(pods, phases, state, clock())]
    answers = await scrape_all(context.scraper, [endpoint for endpoint in reachable if endpoint is not None])
    now = clock()
    state = next_state(state, phases, {_name(pod): pod_status.start_of(pod) for pod in pods}, answers, now)
    observed = [_observed(pod, endpoints[_name(pod)], answers.get(_name(pod)), state, now) for pod in pods]
    fleet = ObservedFleet(
        deployment=deployment,
        canary=canary,
        pods=tuple(sorted(observed, key=lambda pod: pod.view.name)),
        held=cluster.held(namespace, name),
        wall=context.wall().timestamp(),
    )
    return fleet, state


def _with_tokens(endpoint: Endpoint | None, pod: Object, resource: Object, context: Context) -> Endpoint | None:
    """The endpoint with the tokens that the pod mounts, which may be those of an earlier key of the operator."""
    name, uid = str(resource["metadata"]["name"]), str(resource["metadata"].get("uid", ""))
    if endpoint is None or not uid or not context.token_key:
        return endpoint
    key = context.key_of(name, uid, secret_of(pod))
    return replace(endpoint, read_token=read_token(read_key(key), uid), admin_token=derive(key, uid))


def _name(pod: Object) -> str:
    return str(pod["metadata"]["name"])


def _reachable(found: list[Object], phases: Mapping[str, PodPhase], state: ObservationState, now: float) -> list[str]:
    """Names of the pods that can be called in this pass."""
    backoffs, reachable = current_backoffs(state, phases), []
    for pod in found:
        name = _name(pod)
        phase, since = state.phases.get(name, (phases[name], now))
        draining = now - since if phase == phases[name] == "draining" else 0.0
        if phases[name] in SCRAPED_PHASES and can_answer(pod, draining, backoffs.get(name), now):
            reachable.append(name)
    return reachable


def _observed(
    pod: Object,
    endpoint: Endpoint | None,
    answer: EngineSample | ScrapeError | None,
    state: ObservationState,
    now: float,
) -> ObservedPod:
    name = _name(pod)
    (phase, problem), (_, since) = pod_status.phase_of(pod), state.phases[name]
    sample, sample_at = state.samples.get(name, (None, None))
    start = sample.start if sample is not None and phase == "loading" else None
    if start is not None and start.reason:
        problem = Problem(start.reason, start.message)
    view = PodView(
        name=name,
        phase=phase,
        since=since,
        sample=sample,
        sample_at=sample_at,
        message=problem.message if problem else "",
        start_age=_start_age(name, phase, answer, state, now),
        cold_start=_cold_start(pod, sample, since - state.starts[name].not_before),
    )
    return ObservedPod(
        view=view,
        endpoint=endpoint,
        problem=problem,
        progress=start.progress if start is not None else "",
        loaded=start.loaded if start is not None else "",
        model=pod_status.model_argument(pod),
        template_hash=pod_status.template_hash(pod),
        canary_revision=pod_status.canary_revision(pod),
        scrape_error=_scrape_error(answer, state.backoffs.get(name)) if phase == "ready" else "",
        called=answer is not None,
        answered=isinstance(answer, EngineSample),
        deletion_cost=pod_status.deletion_cost(pod),
        accelerators=pod_status.accelerators(pod.get("spec") or {}),
    )


def _scrape_error(answer: EngineSample | ScrapeError | None, backoff: ScrapeBackoff | None) -> str:
    """Why this pass has no sample of the pod; for a pod in backoff, the cause of its newest failed call."""
    if isinstance(answer, ScrapeError):
        return str(answer)
    return backoff.cause if answer is None and backoff is not None else ""


def _start_age(
    name: str, phase: PodPhase, answer: EngineSample | ScrapeError | None, state: ObservationState, now: float
) -> float:
    """Seconds since the current start began, or since the pod lost its readiness, as observed; while the engine loads,
    at least the load time that it reports."""
    if name in state.losses:
        return now - max(state.losses[name].at, state.starts[name].seen_at)
    ages = [now - state.starts[name].seen_at]
    if phase == "loading" and isinstance(answer, EngineSample):
        ages.append(sum(seconds for _, seconds in answer.load_seconds))
    return max(ages)


def _cold_start(pod: Object, sample: EngineSample | None, at_most: float) -> ColdStart | None:
    """The cold start by its timestamps; None if it exceeds `at_most` + LIST_LAG seconds: a clock was set in between."""
    start = pod_status.cold_start(pod, sample)
    return None if start is None or start.total > at_most + LIST_LAG else start
