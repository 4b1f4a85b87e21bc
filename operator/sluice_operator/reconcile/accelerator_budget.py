"""The accelerator budget of a namespace, and what its deployments hold and want of it.

Deployments are judged at different times, so each pass records what its deployment holds and wants, and reads its share
from a division among all of them, which is made anew where one of them wants something else. Between reading the others'
records and recording its own order a pass does not wait, so two passes never take the same accelerators. A new operator
adds no replica before it has observed every deployment of the namespace. Sums are kept, not made in each pass: one
namespace may have a thousand deployments.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sluice import contract
from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.autoscaler.budget.annotation import InvalidBudget, parse_budget
from sluice_operator.autoscaler.budget.division import Division
from sluice_operator.autoscaler.budget.values import Budget, Want
from sluice_operator.autoscaler.values import Decision
from sluice_operator.cluster.client import ClusterError, Key
from sluice_operator.cluster.fleet import ObservedFleet, replicas_of
from sluice_operator.cluster.pod_status import accelerators
from sluice_operator.reconcile.context import Context, Target
from sluice_operator.render import names

log = logging.getLogger(__name__)

_READ_SECONDS: Final = 30.0  # between two reads of a namespace, with few namespaces
_READS_PER_SECOND: Final = 2.0  # of all namespaces together, at most


@dataclass(frozen=True, slots=True)
class Claim:
    """What one deployment holds, per resource, and what it wants of its own resource."""

    held: Mapping[str, int] = field(default_factory=dict)  # accelerators of its pods, and of ordered ones
    resource: str = ""
    want: Want | None = None  # None: not known yet, or the operator does not set its count

    def want_of(self, resource: str) -> Want | None:
        """What it wants of this resource."""
        return self.want if self.resource == resource else None

    def fixed(self, resource: str) -> int:
        """Accelerators that it holds and the operator does not scale."""
        return 0 if self.want_of(resource) is not None else self.held.get(resource, 0)


@dataclass(slots=True)
class _Pool:
    """The sums of one namespace for one resource."""

    held: int = 0
    fixed: int = 0  # of those, by deployments whose count the operator does not set
    wants: dict[str, Want] = field(default_factory=dict)
    division: Division = field(default_factory=Division)

    def replace(self, name: str, before: Claim, after: Claim, resource: str) -> None:
        """Count a claim instead of another one of the same deployment."""
        self.held += after.held.get(resource, 0) - before.held.get(resource, 0)
        self.fixed += after.fixed(resource) - before.fixed(resource)
        want = after.want_of(resource)
        if want is None:
            self.wants.pop(name, None)
            self.division.drop(name)
        else:
            self.wants[name] = want
            self.division.note(want)


@dataclass(frozen=True, slots=True)
class _Reading:
    """The budget of a namespace, by its annotation as last read or by the chart."""

    at: float  # monotonic seconds
    limits: Mapping[str, int] = field(default_factory=dict)
    problem: str = ""


class AcceleratorBudgets:
    """The budgets and claims of all namespaces."""

    def __init__(self) -> None:
        self._readings: dict[str, _Reading] = {}
        self._members: dict[str, set[Key]] = {}  # resources of a namespace with a budget when it was read first
        self._claims: dict[Key, Claim] = {}
        self._pools: dict[tuple[str, str], _Pool] = {}  # by namespace and resource
        self._deleted: dict[Key, Mapping[str, int]] = {}  # what pods of deleted resources hold until they have ended
        self._locks: dict[str, asyncio.Lock] = {}

    async def refresh(self, target: Target, context: Context) -> None:
        """Read what the budget of the target's namespace needs, if its pods have accelerators. Raises ClusterError."""
        if not target.resource.spec.engine.accelerator.count:
            return
        namespace = target.key.namespace
        async with self._locks.setdefault(namespace, asyncio.Lock()):
            reading, now = self._readings.get(namespace), context.clock()
            seconds = max(_READ_SECONDS, len(self._readings) / _READS_PER_SECOND)
            if reading is None or now - reading.at >= seconds:
                reading = self._readings[namespace] = await _read(namespace, context)
            if not reading.limits:
                return
            if namespace not in self._members:
                self._members[namespace] = await self._list(namespace, context)
            for key in [key for key in self._deleted if key.namespace == namespace]:
                await self._refresh_deleted(key, context)

    def observe(self, key: Key, spec: LLMDeploymentSpec | None, fleet: ObservedFleet, written: int | None) -> None:
        """Record what a deployment holds. `written`: its count as this process last wrote it, which a read may lag.

        `spec` is None where it does not parse: its pods hold accelerators all the same.
        """
        is_set = spec is not None and not spec.paused and spec.scaling.mode in ("Auto", "External")
        before = self._claims.get(key, Claim())
        held = _held(spec, fleet, max(replicas_of(fleet.deployment) or 0, (written or 0) if is_set else 0))
        self._record(key, Claim(held, before.resource, before.want) if is_set else Claim(held))

    def budget(self, target: Target, now: float) -> Budget | None:
        """The budget as the deployment of the target meets it at `now`, monotonic seconds; None if none applies to its
        accelerators."""
        key, accelerator = target.key, target.resource.spec.engine.accelerator
        reading = self._readings.get(key.namespace)
        if reading is None or not accelerator.count:
            return None
        resource = accelerator.resource
        if reading.problem:
            return Budget(key.name, resource, 0, problem=reading.problem)
        if resource not in reading.limits:
            return None
        pool, own = self._pools.get((key.namespace, resource), _Pool()), self._claims.get(key, Claim())
        held = own.held.get(resource, 0)
        of_deleted = sum(
            left.get(resource, 0) for other, left in self._deleted.items() if other.namespace == key.namespace
        )
        unobserved = self._members.get(key.namespace, set()) - self._claims.keys() - {key}
        return Budget(
            name=key.name,
            resource=resource,
            limit=reading.limits[resource],
            fixed=pool.fixed - own.fixed(resource),
            held=pool.held - held + of_deleted,
            own=held,
            others=tuple(want for name, want in pool.wants.items() if name != key.name),
            unobserved=tuple(sorted(other.name for other in unobserved)),
            now=now,
            division=pool.division,
        )

    def decided(self, target: Target, fleet: ObservedFleet, decision: Decision) -> None:
        """Record the decision of a deployment: what it wants, and the replicas that it orders."""
        spec = target.resource.spec
        if decision.want is None or spec.scaling.mode not in ("Auto", "External"):
            return
        ordered = max(replicas_of(fleet.deployment) or 0, decision.replicas or 0)
        held = _held(spec, fleet, ordered)
        self._record(target.key, Claim(held, spec.engine.accelerator.resource, decision.want))

    def forget(self, key: Key) -> None:
        """A resource is deleted: its pods hold their accelerators until they have ended."""
        claim = self._claims.get(key)
        self._record(key, None)
        self._members.get(key.namespace, set()).discard(key)
        if claim is not None and any(claim.held.values()) and key.namespace in self._members:
            self._deleted[key] = claim.held

    def _record(self, key: Key, claim: Claim | None) -> None:
        """Replace what a deployment holds and wants, None after its deletion, in the sums too."""
        before = self._claims.pop(key, Claim())
        if claim is not None:
            self._claims[key] = claim
        after = claim or Claim()
        for resource in {*before.held, before.resource, *after.held, after.resource} - {""}:
            self._pools.setdefault((key.namespace, resource), _Pool()).replace(key.name, before, after, resource)

    async def _list(self, namespace: str, context: Context) -> set[Key]:
        """The resources of the namespace. Pods of resources that a predecessor saw deleted are noted."""
        found = await context.cluster.list(contract.KIND, namespace, {})
        members = {Key(namespace, str(each["metadata"]["name"])) for each in found}
        for pod in await context.cluster.list("Pod", namespace, {contract.LABEL_NAME: contract.ENGINE_APP}):
            owner = Key(namespace, str((pod["metadata"].get("labels") or {}).get(contract.LABEL_INSTANCE, "")))
            if owner not in members:
                self._deleted.setdefault(owner, {})
        return members

    async def _refresh_deleted(self, key: Key, context: Context) -> None:
        """What the pods of a deleted resource still hold. Those of a new resource of the same name are its own."""
        pods = await context.cluster.list("Pod", key.namespace, names.selector(key.name))
        if key in self._claims:
            pods = [pod for pod in pods if pod["metadata"].get("deletionTimestamp")]
        held = _sum(accelerators(pod.get("spec") or {}) for pod in pods)
        if held:
            self._deleted[key] = held
        else:
            self._deleted.pop(key, None)


async def _read(namespace: str, context: Context) -> _Reading:
    """The annotation now, or the chart's budget; the latter too where the role does not allow to read the namespace."""
    now = context.clock()
    default = _default(context.settings.accelerator_budget, now)
    try:
        found = await context.cluster.get("Namespace", "", namespace)
    except ClusterError as error:
        if not error.is_refusal:
            raise
        log.warning("the annotation %s of namespace %s is not read: %s", contract.ANNOTATION_BUDGET, namespace, error)
        return default
    text = ((found or {}).get("metadata", {}).get("annotations") or {}).get(contract.ANNOTATION_BUDGET)
    if text is None:
        return default
    try:
        return _Reading(now, parse_budget(str(text)))
    except InvalidBudget as error:
        return _Reading(now, problem=f"The annotation {contract.ANNOTATION_BUDGET} of namespace {namespace}: {error}.")


def _default(text: str, now: float) -> _Reading:
    """The budget of a namespace without the annotation, as the chart has it."""
    try:
        return _Reading(now, parse_budget(text) if text else {})
    except InvalidBudget as error:
        return _Reading(now, problem=f"The chart's value acceleratorBudget: {error}.")


def _held(spec: LLMDeploymentSpec | None, fleet: ObservedFleet, replicas: int) -> dict[str, int]:
    """Accelerators of all pods, draining and surge pods included, and of the pods that `replicas` still lacks."""
    template = ((fleet.deployment or {}).get("spec", {}).get("template") or {}).get("spec") or {}
    each = accelerators(template)
    if spec is not None and spec.engine.accelerator.count:
        resource = spec.engine.accelerator.resource
        each[resource] = max(spec.engine.accelerator.count, each.get(resource, 0))
    lacking = max(0, replicas - sum(pod.view.phase != "draining" for pod in fleet.pods))
    return _sum((*(pod.accelerators for pod in fleet.pods), *([each] * lacking)))


def _sum(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for resource, count in part.items():
            total[resource] = total.get(resource, 0) + count
    return total
