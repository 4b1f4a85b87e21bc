"""Revisions of the pod template as plain data, and the result of a choice between them."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from sluice import contract
from sluice_operator.api import LLMDeployment
from sluice_operator.cluster.client import Object
from sluice_operator.render import names

_DIGITS: Final = 16


@dataclass(frozen=True, slots=True)
class Revision:
    """One pod template, and what the user asked for when it was rendered."""

    spec: str  # fingerprint of the parts of the spec that pods depend on
    template: str  # fingerprint of the pod template, without the names of the operator's Secrets
    pod: Object  # the pod template
    since: str = ""  # RFC 3339: when it was written, until it is ready; empty where there is none to go back to
    ready: bool = False  # all its pods were ready at the same time, at least once
    is_upgrade: bool = False  # it replaced another one of the same spec
    fetched: dict[str, str] | None = None  # uri and revision of a model that its pods have fetched


@dataclass(frozen=True, slots=True)
class Failure:
    """A revision whose pods did not start within the progress deadline, so that the operator went back."""

    spec: str
    template: str
    reason: str  # of the problem of its pods, CamelCase
    message: str


@dataclass(frozen=True, slots=True)
class Record:
    """What the Deployment's annotation keeps over passes and restarts of the operator."""

    image: str  # the engine image of a resource without spec.engine.image
    applied: Revision
    good: Revision | None = None  # the last one that was ready, while `applied` was not yet
    failed: Failure | None = None  # the one before `applied`, if the operator went back from it
    is_rekeyed: bool = False  # the pods move to the Secret of a new key of the operator

    @property
    def moves(self) -> bool:
        """True while an upgrade or a new key moves the pods, or has stopped without success."""
        return self.is_rekeyed or (self.applied.is_upgrade and not self.applied.ready)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user and the operator's settings ask for."""

    spec: str  # fingerprint, as in Revision
    image: str  # engine image of the operator's settings
    has_own_image: bool  # spec.engine.image is set
    secret: str  # name of the admin Secret of the operator's key
    render: Callable[[str], Object]  # image of the settings → pod template
    approved: str = ""  # the upgrade that the user's annotation allows
    accelerator: str = ""  # resource of spec.engine.accelerator; empty without one


@dataclass(frozen=True, slots=True)
class Live:
    """What the Deployment's pods show."""

    now: datetime
    is_ready: bool = False  # all pods are of the applied revision and ready
    failure: tuple[str, str] | None = None  # reason and message, after the progress deadline
    fetched: dict[str, str] | None = None  # the status's model, if it is the spec's
    has_none: bool = False  # the Deployment asks for no pod


@dataclass(frozen=True, slots=True)
class Upgrade:
    """What the operator's settings ask for and the pods do not have."""

    image: str
    template: str  # the value of the annotation that takes it
    changes_image: bool
    failure: Failure | None = None  # why it was taken back


@dataclass(frozen=True, slots=True)
class Choice:
    """The pod template of one pass."""

    record: Record
    pod: Object
    serving: Record | None = None  # of the Deployment as it is; None before it is written
    failure: Failure | None = None  # the pods are of an earlier spec, because those of this one did not start
    pending: Upgrade | None = None
    is_kept: bool = False  # the Deployment has it already
    needs_slot: bool = False  # it begins to move the fleet, for an open window or for a new key of the operator
    takes_key: bool = False  # the same revision with the Secret of a new key
    awaits_key: bool = False  # its pods have the token of an earlier key, until a slot is free


def spec_fingerprint(resource: LLMDeployment) -> str:
    """Return a hash of the parts of the spec that the pod template depends on, 16 hex digits.

    Fields at their default are left out, so that a field added by a newer operator changes nothing.
    """
    spec = resource.spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    parts: dict[str, Any] = {name: spec.get(name, {}) for name in ("model", "engine", "auth")}
    parts["drainSeconds"] = resource.spec.rollout.drain_seconds
    return _hash(json.dumps(parts, sort_keys=True))


def template_fingerprint(pod: Object) -> str:
    """Return a hash of a pod template, 16 hex digits.

    A new key of the operator renames its Secrets. That is no other template, so their names are left out.
    """
    text = json.dumps(pod, sort_keys=True)
    if secret := secret_of(pod):
        text = text.replace(json.dumps(secret), '""').replace(json.dumps(names.read_secret(secret)), '""')
    return _hash(text)


def secret_of(pod: Object) -> str:
    """Return the name of the admin Secret that a pod or its template mounts; empty if it mounts none."""
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        if volume.get("name") == contract.ADMIN_VOLUME:
            return str((volume.get("secret") or {}).get("secretName", ""))
    return ""


def with_secret(pod: Object, secret: str) -> Object:
    """Return the template with this admin Secret and, where it has one, the Secret of reads beside it: pods that mount
    others refuse the operator."""
    if secret_of(pod) in ("", secret):
        return pod
    renamed = {contract.ADMIN_VOLUME: secret, contract.READ_VOLUME: names.read_secret(secret)}
    volumes = [
        {**volume, "secret": {**volume["secret"], "secretName": renamed[volume["name"]]}}
        if volume["name"] in renamed
        else volume
        for volume in pod["spec"]["volumes"]
    ]
    return {**pod, "spec": {**pod["spec"], "volumes": volumes}}


def held(choice: Choice, serving: Record) -> Choice:
    """Return the choice to keep the pods that serve."""
    return replace(choice, record=serving, pod=serving.applied.pod)


def image_of(pod: Object) -> str:
    """Return the image of the engine container; empty if the template has none."""
    return str(_engine_of(pod).get("image", ""))


def computes_on(pod: Object, accelerator: str) -> bool:
    """Return True if the engine of this template computes on the accelerator of this resource; empty: on the CPU."""
    engine = _engine_of(pod)
    if accelerator:
        return accelerator in ((engine.get("resources") or {}).get("limits") or {})
    return "--device=cuda" not in (engine.get("args") or ())


def _engine_of(pod: Object) -> Object:
    containers = (pod.get("spec") or {}).get("containers") or ()
    return next((each for each in containers if each.get("name") == names.CONTAINER), {})


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
