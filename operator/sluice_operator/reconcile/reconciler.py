"""One reconcile pass over one resource: observe, decide, apply, report. Level-triggered and idempotent.

A pass reads the whole state whatever triggered it. If it is interrupted after any write, the next pass converges to
the same state. The cluster and `sluice up` run this code, each over its own `ClusterClient`.
"""

import asyncio
import logging
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from sluice import contract
from sluice.logs import FIELDS
from sluice_operator import render
from sluice_operator.api import InvalidResource, LLMDeployment, parse
from sluice_operator.autoscaler import decide
from sluice_operator.autoscaler.handover import estimates_of, restored_state
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import Decision
from sluice_operator.cluster.client import ClusterError, ForeignObject, Key, Object, OwnerDeleted
from sluice_operator.cluster.fleet import ObservedFleet
from sluice_operator.reconcile.accelerator_budget import AcceleratorBudgets
from sluice_operator.reconcile.children.apply import (
    apply_dependencies,
    desired_replicas,
    order_scale_in,
    remove_network_policy,
)
from sluice_operator.reconcile.children.canary import CanaryProgress, apply_deployments, fetched_model, restored_canary
from sluice_operator.reconcile.children.pod_monitor import ensure_pod_monitor
from sluice_operator.reconcile.children.pod_template import (
    awaits_rollback,
    choose_template,
    default_image,
    pod_defaults,
)
from sluice_operator.reconcile.children.token_secrets import ensure_secrets
from sluice_operator.reconcile.context import Context, Target
from sluice_operator.reconcile.crash_replacement import replace_crashed
from sluice_operator.reconcile.external_writer import replicas_change, state_after
from sluice_operator.reconcile.limits import send_limits
from sluice_operator.reconcile.model_check import check_model
from sluice_operator.reconcile.observe import observe
from sluice_operator.reconcile.saved_estimates import read_estimates, save_estimates
from sluice_operator.reconcile.served_names import name_conflict, unrouted
from sluice_operator.reconcile.state import ResourceState
from sluice_operator.revisions.record import with_revision
from sluice_operator.revisions.slots import UpgradeSlots
from sluice_operator.revisions.values import secret_of
from sluice_operator.status.build import build, by_type
from sluice_operator.status.events import events_of
from sluice_operator.status.facts import Facts
from sluice_operator.status.rollout import fingerprint_of, rollout_of

log = logging.getLogger(__name__)

GONE: Final = math.inf  # the resource does not exist (any more): no next pass


class Reconciler:
    """Reconciles resources one pass at a time and owns their state between passes.

    Passes over one key must not overlap; passes over different keys may.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.states: dict[Key, ResourceState] = {}
        self.decisions: dict[Key, Decision] = {}  # the newest per resource, for display
        self.upgrades = UpgradeSlots(context.settings.max_upgrades)
        self.budgets = AcceleratorBudgets()
        self._acting = asyncio.Semaphore(context.settings.acting_passes)

    async def reconcile(self, key: Key) -> float:
        """Return the seconds until the next pass; GONE after a deletion. Raises ClusterError; the caller then retries."""
        document = await self.context.cluster.get(contract.KIND, key.namespace, key.name)
        if document is None or document["metadata"].get("deletionTimestamp"):
            self.forget(key)
            return GONE
        uid = str(document["metadata"].get("uid", ""))
        self.context.metrics.resources.observed(document)
        if key not in self.states or self.states[key].uid != uid:
            saved = await read_estimates(document, self.context)
            self.states[key] = ResourceState(
                uid,
                autoscaler=restored_state(saved.estimates),
                saved=saved,
                canary=restored_canary(saved.canary, document),
            )
        target, parse_errors = _parse(key, document)
        facts = await self._observe(key, document, target, parse_errors)
        try:
            if target is not None and not facts.conflict and not facts.is_paused:
                facts = await self._check_model(target, facts)
            async with self._acting:
                await self._act(key, document, target, facts)
        except OwnerDeleted as error:
            log.info("the pass ends: %s", error)
            self.forget(key)
            return GONE
        return self.context.settings.interval

    def forget(self, key: Key) -> None:
        """Drop the state of a deleted resource."""
        self.states.pop(key, None)
        self.decisions.pop(key, None)
        self.upgrades.release(key)
        self.budgets.forget(key)
        self.context.metrics.resources.forgotten(key.namespace, key.name)

    async def _observe(self, key: Key, document: Object, target: Target | None, parse_errors: tuple[str, ...]) -> Facts:
        """Gather the facts of a pass, without any decision."""
        context = self.context
        conflict = "" if target is None else await name_conflict(target, context)
        elsewhere = "" if target is None else await unrouted(target, context)
        canary, previous = self.states[key].canary, document.get("status") or {}
        fleet, observation = await observe(document, self.states[key].observation, context, with_canary=canary.exists)
        fleet = replace(fleet, held=None) if elsewhere else fleet  # no request for it reaches the gateway
        self.states[key] = replace(self.states[key], observation=observation)
        spec = target.resource.spec if target else None
        self.budgets.observe(key, spec, fleet, self.states[key].children.replicas)
        context.metrics.scrapes_failed(fleet.scrape_failures)
        facts = Facts(
            generation=int(document["metadata"].get("generation", 0)),
            spec=spec,
            parse_errors=parse_errors,
            conflict=conflict,
            unrouted=elsewhere,
            gateway_url="" if target is None or elsewhere else _gateway_url(target.resource, context),
            fleet=fleet,
            rollout=rollout_of(fleet.deployment, None, None),
            estimates_problem=self.states[key].saved.problem,
            canary=canary,
            canary_weight=int((previous.get("canary") or {}).get("weightPercent") or 0),
            previous=by_type(previous),
            previous_canary=previous.get("canary") or {},
        )
        if target is None:
            return facts
        choice = await choose_template(target, facts, self.upgrades, context)
        return replace(facts, choice=choice, rollout=replace(facts.rollout, written=choice.is_kept))

    async def _check_model(self, target: Target, facts: Facts) -> Facts:
        """The facts with the result of the check of the model, while no pods of this spec are written."""
        is_written = facts.choice is not None and facts.choice.is_kept
        verdict = await check_model(target, self.context, is_written=is_written)
        return replace(facts, model_problem=verdict.problem, model_not_checked=verdict.not_checked)

    async def _act(self, key: Key, document: Object, target: Target | None, facts: Facts) -> None:
        """Everything of a pass that computes and writes. Raises ClusterError, OwnerDeleted."""
        if target is not None and facts.is_applied and not facts.is_paused:
            facts = await self._decide_and_act(target, facts)
        await self._report(key, document, facts)
        if target is not None and facts.decision is not None:
            await self._save_estimates(target, facts.decision)

    async def _decide_and_act(self, target: Target, facts: Facts) -> Facts:
        """Decide and write the children and limits; the rest of a pass writes only the status and Events."""
        key, fleet, context = target.key, facts.fleet, self.context
        await self.budgets.refresh(target, context)
        decision, autoscaler, facts = self._decide(target, facts)
        try:
            facts = await self._apply_children(target, facts, decision)
        except ForeignObject as error:
            return replace(facts, conflict=str(error), decision=None)
        except ClusterError as error:
            errors = await self._send_limits(key, fleet, decision)
            if error.is_refusal:
                rejected = replace(facts, write_error=str(error), decision=None, limit_errors=errors)
                await self._report(key, target.document, rejected)
            raise
        # The state is kept only now: a decision that was not carried out is made and reported again.
        status = self.states[key].status.decided(decision.reasons, context.timestamp())
        self.states[key] = replace(self.states[key], autoscaler=autoscaler, status=status)
        log_decision(key, decision, context)
        errors = await self._send_limits(key, fleet, decision)
        if not awaits_rollback(facts):
            replacement = await replace_crashed(key.namespace, fleet, self.states[key].crash_replacement, context)
            self.states[key] = replace(self.states[key], crash_replacement=replacement)
        secret = "" if facts.choice is None else secret_of(facts.choice.pod)
        monitor = await ensure_pod_monitor(target, secret, self.states[key].monitor, context)
        self.states[key] = replace(self.states[key], monitor=monitor)
        return replace(facts, limit_errors=errors)

    def _decide(self, target: Target, facts: Facts) -> tuple[Decision, AutoscalerState, Facts]:
        """Return the decision, the autoscaler's next state, and the facts with both."""
        key, now = target.key, self.context.clock()
        state = self.states[key]
        change = replicas_change(target, facts.fleet.deployment, state.children.replicas)
        writer = state.external_writer.after(change, now)
        self.states[key] = replace(state, external_writer=writer)
        before = state.autoscaler if change is None else state_after(change, state.autoscaler, now)
        observed = replace(facts.fleet.observed, budget=self.budgets.budget(target, now))
        decision, autoscaler = decide(target.resource.spec, observed, before, now)
        self.budgets.decided(target, facts.fleet, decision)
        if change is not None:
            decision = replace(decision, reasons=(change, *decision.reasons))
        self.decisions[key] = decision
        return decision, autoscaler, replace(facts, decision=decision, external_writer=writer.message(now))

    async def _apply_children(self, target: Target, facts: Facts, decision: Decision) -> Facts:
        """Apply the children, the Deployment last; return the facts after that. The state is kept after each of them.

        Raises ClusterError, ForeignObject, OwnerDeleted.
        """
        key, context, fleet = target.key, self.context, facts.fleet
        children, interval = self.states[key].children, self._secret_interval(key, fleet)
        secrets = await ensure_secrets(target, fleet.deployment, children.secrets, context, interval=interval)
        children = replace(children, secrets=secrets)
        self.states[key] = replace(self.states[key], children=children)
        replicas = desired_replicas(target.resource, fleet, decision)
        choice = facts.choice
        fetched = fetched_model(target.resource.spec.rollout, choice)
        *dependencies, deployment = _render(target.resource, replicas, str(secrets.token), context, fetched)
        if choice is not None:
            deployment = with_revision(deployment, choice)
        if context.settings.network_peers is None and children.fingerprint is None:
            await remove_network_policy(target, context)
        children = await apply_dependencies(target, dependencies, children, context)
        self.states[key] = replace(self.states[key], children=children)
        await order_scale_in(target.resource, fleet, decision, replicas, context)
        before = CanaryProgress(self.states[key].canary, self.states[key].saved)
        done = await apply_deployments(target, facts, deployment, before, context)
        children = replace(children, replicas=replicas)
        self.states[key] = replace(self.states[key], children=children, canary=done.canary, saved=done.saved)
        return replace(
            facts,
            fleet=replace(fleet, deployment=done.deployment),
            rollout=rollout_of(done.deployment, fleet.deployment, fingerprint_of(deployment)),
            canary=done.canary,
            canary_weight=done.weight_percent,
        )

    async def _send_limits(self, key: Key, fleet: ObservedFleet, decision: Decision) -> tuple[str, ...]:
        """Send the limits that the engines do not follow yet; return one sentence per failed call."""
        state = self.states[key]
        sent, errors = await send_limits(state.children.secrets.token, fleet, decision, state.limits, self.context)
        self.states[key] = replace(self.states[key], limits=sent)
        return errors

    async def _save_estimates(self, target: Target, decision: Decision) -> None:
        """Keep the autoscaler's estimates for the operator that follows this one."""
        state = self.states[target.key]
        known = state.saved.estimates.remembered if decision.forecast is None else decision.forecast.remembered
        estimates = estimates_of(state.autoscaler, known)
        settings = self.context.settings
        interval = self._interval(target.key, settings.estimate_writes, settings.status_interval)
        saved = await save_estimates(target, state.saved, estimates, state.canary, self.context, interval=interval)
        self.states[target.key] = replace(state, saved=saved)

    def _secret_interval(self, key: Key, fleet: ObservedFleet) -> float:
        """Seconds between two attempts to make a Secret whose deletion no watch shows. A pod that is not ready may wait for
        it."""
        settings = self.context.settings
        is_guarded = self.states[key].children.secrets.is_guarded
        if is_guarded or any(pod.view.phase != "ready" for pod in fleet.pods):
            return settings.children_interval
        others = sum(not state.children.secrets.is_guarded for state in self.states.values())
        return self._interval(key, settings.secret_attempts, settings.children_interval, among=others)

    def _interval(self, key: Key, rate: float, least: float, *, among: int | None = None) -> float:
        """Seconds between two writes for this resource, at least `least`, so that those for all, or for `among` of them, stay
        near `rate`, 1/s.

        Half of it depends on the key, so that resources that were first seen together are not written together.
        """
        count = len(self.states) if among is None else among
        return max(least, count / rate * (0.75 + key.phase / 2))

    async def _report(self, key: Key, document: Object, facts: Facts) -> None:
        """Write the status if it changed, then emit the new Events."""
        context, state, now = self.context, self.states[key], self.context.clock()
        previous = document.get("status") or {}
        interval = self._interval(key, context.settings.status_writes, context.settings.status_interval)
        due = state.status.is_due(now, interval)
        update = state.status.update(context.timestamp(), due=due)
        status = build(key, facts, previous, update)
        if status != previous:
            await context.cluster.write_status(document, status)
        reasons = [reason for _, reason in state.status.unrecorded]
        events, sent = state.events.unsent(events_of(facts, status["conditions"], reasons), now)
        self.states[key] = replace(state, status=state.status.written(now, due=due), events=sent)
        for event in events:
            await context.cluster.emit_event(document, event.reason, event.message, warning=event.warning)


def _parse(key: Key, document: Object) -> tuple[Target | None, tuple[str, ...]]:
    """Return the resource as types, or None and one sentence per error."""
    try:
        return Target(key, document, parse(document, strict=False)), ()
    except InvalidResource as error:
        return None, error.faults


def _render(
    resource: LLMDeployment, replicas: int | None, token: str, context: Context, fetched: Mapping[str, str] | None
) -> list[Object]:
    peers = context.settings.network_peers
    policy = [] if peers is None else [render.network_policy(resource, peers)]
    defaults = pod_defaults(default_image(resource, context), context)
    return [*policy, *render.children(resource, defaults=defaults, replicas=replicas, token=token, fetched=fetched)]


def _gateway_url(resource: LLMDeployment, context: Context) -> str:
    """The URL of the gateways if the resource's own Service is closed to clients, else empty."""
    peers, url = context.settings.network_peers, context.settings.gateway_url
    return url if peers is not None and not render.has_namespace_clients(resource, peers) else ""


def log_decision(key: Key, decision: Decision, context: Context) -> None:
    """Log and count each change of a decision, with its numbers as fields of the record."""
    for reason in decision.reasons:
        context.metrics.decided(reason.dial, reason.binding)
        where = {"namespace": key.namespace, "resource": key.name, "dial": reason.dial, "reason": reason.binding}
        log.info("%s/%s: %s", key.namespace, key.name, reason.sentence, extra={FIELDS: where | dict(reason.numbers)})
