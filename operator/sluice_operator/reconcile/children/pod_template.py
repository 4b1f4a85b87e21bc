"""Chooses the pod template of a pass: gathers what the choice depends on, and takes a slot where it needs one."""

from sluice import contract
from sluice_operator import render
from sluice_operator.api import LLMDeployment
from sluice_operator.api.spec import window_is_open
from sluice_operator.cluster.client import Object
from sluice_operator.cluster.fleet import replicas_of
from sluice_operator.reconcile.children.admin_token import derive
from sluice_operator.reconcile.context import Context, Target
from sluice_operator.revisions.choose import choose
from sluice_operator.revisions.record import record_of
from sluice_operator.revisions.slots import UpgradeSlots
from sluice_operator.revisions.values import Asked, Choice, Live, spec_fingerprint
from sluice_operator.status.facts import Facts
from sluice_operator.status.revision.stall import failure_of
from sluice_operator.status.served_model import recorded_model


async def choose_template(target: Target, facts: Facts, slots: UpgradeSlots, context: Context) -> Choice:
    """Return the pod template to apply. Raises ClusterError if the slots of upgrades cannot be counted."""
    spec, deployment = target.resource.spec, facts.fleet.deployment
    asked = _asked(target, context)
    now, failure = context.wall(), failure_of(facts)
    live = Live(
        now,
        facts.rollout.is_ready,
        None if failure is None else (failure.reason, failure.message),
        recorded_model(spec, target.document.get("status") or {}),
        has_none=deployment is not None and replicas_of(deployment) == 0,
    )
    record = record_of(deployment, asked, facts.previous.get("Ready", {}), facts.generation)
    can_move = not spec.paused and not facts.conflict
    is_open = can_move and window_is_open(spec.rollout, now.timestamp())
    choice = choose(record, asked, live, spec.rollout, window_is_open=is_open, slot_is_free=can_move)
    if choice.needs_slot and not await slots.take(target.key, context.cluster, context.settings.namespaces):
        choice = choose(record, asked, live, spec.rollout)
    if not choice.record.moves or live.has_none:
        slots.release(target.key)
    return choice


def awaits_rollback(facts: Facts) -> bool:
    """True if the pods return to an earlier revision after the progress deadline. No pod may be replaced before: a new
    pod restarts the deadline. While a canary is tried or rolled back, the pods are of the earlier revision."""
    is_auto = facts.spec is not None and facts.spec.rollout.rollback == "Auto" and not facts.canary.holds_stable
    return is_auto and facts.choice is not None and facts.choice.record.good is not None


def default_image(resource: LLMDeployment, context: Context) -> str:
    """The engine image of the operator's settings for the resource's accelerator."""
    accelerator = resource.spec.engine.accelerator
    return context.settings.image_of(accelerator.resource, accelerator.count)


def pod_defaults(image: str, context: Context) -> render.PodDefaults:
    """What the operator's settings say for every pod, with this engine image."""
    settings = context.settings
    user = render.USER if settings.pod_ids == "Fixed" else None
    return render.PodDefaults(image, user, asks_read_token=settings.metrics_auth == "token")


def _asked(target: Target, context: Context) -> Asked:
    resource = target.resource
    token = derive(context.token_key, str(resource.metadata.get("uid", "")))

    def rendered(image: str) -> Object:
        return render.pod_template(resource, pod_defaults(image, context), token)

    annotations = resource.metadata.get("annotations") or {}
    accelerator = resource.spec.engine.accelerator
    return Asked(
        spec=spec_fingerprint(resource),
        image=default_image(resource, context),
        has_own_image=resource.spec.engine.image is not None,
        secret=render.names.admin_secret(resource.name, token),
        render=rendered,
        approved=str(annotations.get(contract.ANNOTATION_UPGRADE, "")),
        accelerator=accelerator.resource if accelerator.count else "",
    )
