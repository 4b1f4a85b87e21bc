"""The Secrets with the tokens of one resource: made, never read, and made again when they are deleted.

The operator may read no Secret in a namespace of models, so no watch shows it that one is deleted. Each Secret therefore
owns an empty ConfigMap of the same name, its sentinel, which is watched: the cluster's garbage collector deletes that one
within seconds of the Secret, and the next pass makes both again. The content of a Secret needs no watch: it is immutable.

Only the answer to its creation shows the uid of a Secret, which its sentinel needs. Where that answer is lost (a process that
was killed between both writes, an operator from before there were sentinels), the creation is tried again from time to time.
"""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sluice import contract
from sluice.auth.read_tokens import read_key, read_token
from sluice_operator import render
from sluice_operator.cluster.client import ClusterError, ForeignObject, Object
from sluice_operator.reconcile.children.admin_token import derive
from sluice_operator.reconcile.context import Context, Target
from sluice_operator.render import names

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MadeSecret:
    """One Secret as this process knows it."""

    uid: str = ""  # empty: not known, so it has no sentinel
    tried_at: float = -math.inf  # monotonic seconds of the last attempt to make it


@dataclass(frozen=True, slots=True)
class TokenSecrets:
    """The Secrets of one resource, by name, and the admin token that the first one holds."""

    token: str | None = None  # set after its Secret was made
    made: Mapping[str, MadeSecret] = field(default_factory=dict)

    @property
    def is_guarded(self) -> bool:
        """True if a sentinel shows the deletion of each Secret."""
        return self.token is not None and all(each.uid for each in self.made.values())


async def ensure_secrets(
    target: Target, deployment: Object | None, before: TokenSecrets, context: Context, *, interval: float
) -> TokenSecrets:
    """Make the Secrets of the admin token and, where reads need one, of the token of reads, if their sentinels are missing;
    also those of an earlier key that the Deployment still mounts.

    A Secret without a sentinel is tried every `interval` seconds. A quota may reject the creation of a Secret that exists;
    the error is ignored if the `deployment` mounts that Secret. Raises ClusterError, OwnerDeleted.
    """
    token = derive(context.token_key, str(target.resource.metadata.get("uid", "")))
    made = {}
    for secret in _secrets(target, deployment, context):
        name = str(secret["metadata"]["name"])
        made[name] = await _ensure(target, deployment, secret, before.made.get(name, MadeSecret()), context, interval)
    return TokenSecrets(token, made)


def _secrets(target: Target, deployment: Object | None, context: Context) -> list[Object]:
    """Those of the operator's key, and of each earlier one whose admin Secret the Deployment mounts."""
    resource, uid = target.resource, str(target.resource.metadata.get("uid", ""))
    found = []
    for key in (context.token_key, *context.old_keys):
        token = derive(key, uid)
        if key != context.token_key and not _mounts(deployment, names.admin_secret(resource.name, token)):
            continue
        found.append(render.admin_secret(resource, token))
        if context.settings.metrics_auth == "token":
            found.append(render.read_secret(resource, token, read_token(read_key(key), uid)))
    return found


async def _ensure(
    target: Target, deployment: Object | None, secret: Object, known: MadeSecret, context: Context, interval: float
) -> MadeSecret:
    name, now = str(secret["metadata"]["name"]), context.clock()
    sentinel = await context.cluster.get("ConfigMap", target.key.namespace, name)
    uid = _owner(sentinel, name)
    if uid and secret["metadata"]["labels"].items() <= _labels(sentinel).items():
        return replace(known, uid=uid)
    # Not at once again: another Secret of this name may be in the place of the one whose uid is known.
    if now - known.tried_at < (context.settings.children_interval if uid or known.uid else interval):
        return known
    if uid:
        await _guard(_live(secret, uid), sentinel, target, context)
        return MadeSecret(uid, now)
    try:
        made = await context.cluster.create(secret, owner=target.document)
    except ClusterError as error:
        if not error.is_refusal or not _mounts(deployment, name):
            raise
        log.info("Secret %s/%s exists and its creation was rejected: %s", target.key.namespace, name, error)
        return replace(known, tried_at=now)
    uid = known.uid if made is None else str(made["metadata"]["uid"])
    if uid:
        await _guard(_live(secret, uid), sentinel, target, context)
    return MadeSecret(uid, now)


def _live(secret: Object, uid: str) -> Object:
    return {**secret, "metadata": {**secret["metadata"], "uid": uid}}


async def _guard(secret: Object, live: Object | None, target: Target, context: Context) -> None:
    """Make the sentinel of a Secret, or correct the one that a user has changed. Another ConfigMap stays as it is.

    Where it cannot be written the Secret serves all the same, so that stops nothing. Raises other ClusterErrors.
    """
    wanted = render.sentinel(target.resource, secret)
    try:
        if live is not None:  # it has lost its owner or a label
            is_ours = _labels(live).get(contract.LABEL_MANAGED_BY) == contract.MANAGED_BY
            await context.cluster.apply(wanted, owner=None if is_ours else secret)
        elif await context.cluster.create(wanted) is None:  # it has lost its labels, so no watch shows it
            await context.cluster.apply(wanted, owner=secret)
    except (ClusterError, ForeignObject) as error:
        if isinstance(error, ClusterError) and not (error.is_refusal or error.status == 409):
            raise
        log.info("Secret %s/%s has no sentinel: %s", target.key.namespace, secret["metadata"]["name"], error)


def _labels(sentinel: Object | None) -> Object:
    return {} if sentinel is None else sentinel["metadata"].get("labels") or {}


def _owner(sentinel: Object | None, name: str) -> str:
    """The uid of the Secret of this name that owns the sentinel; empty without one."""
    owners = () if sentinel is None else sentinel["metadata"].get("ownerReferences") or ()
    return next((str(each["uid"]) for each in owners if (each.get("kind"), each.get("name")) == ("Secret", name)), "")


def _mounts(deployment: Object | None, secret: str) -> bool:
    template = (deployment or {}).get("spec", {}).get("template", {}).get("spec", {})
    return any((volume.get("secret") or {}).get("secretName") == secret for volume in template.get("volumes") or ())
