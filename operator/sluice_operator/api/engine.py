"""Defines `spec.engine`: how each replica runs, and an overlay that can add to its pod but remove nothing."""

import re
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from sluice import contract
from sluice_operator.api.base import Model, Rule
from sluice_operator.api.patterns import (
    ENV_NAME,
    EXTENDED_RESOURCE,
    IMAGE,
    LABEL_KEY,
    AnnotationValue,
    LabelValue,
    MemorySize,
    Quantity,
    amount_of,
)

LABEL_PART_OF: Final = "app.kubernetes.io/part-of"
MANAGED_LABELS: Final = (contract.LABEL_NAME, contract.LABEL_INSTANCE, contract.LABEL_MANAGED_BY, LABEL_PART_OF)
MANAGED_ENV: Final = ("HOME", "NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
# Every option of `sluice serve` can be set as SLUICE_<OPTION>; these two have no field in the spec.
OPEN_ENV: Final = (contract.ENV_PACE, contract.ENV_THREADS)
# Annotations of old Kubernetes releases that can disable AppArmor or seccomp for a pod.
_REFUSED_ANNOTATIONS: Final = ("apparmor.security.beta.kubernetes.io", "seccomp.security.alpha.kubernetes.io")
_NATIVE_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage")
_OWN_PREFIX: Final = f"{contract.GROUP}/"


def _cel_list(words: tuple[str, ...]) -> str:
    return "[" + ", ".join(f"'{word}'" for word in words) + "]"


class Accelerator(Model):
    """Hardware that one replica computes on."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.count <= 1",
            sentence="engine.accelerator.count must be 0 or 1: without tensor parallelism an engine uses one accelerator, "
            "and more would be reserved for nothing",
            holds=lambda a: a.count <= 1,
        ),
    )

    resource: Annotated[str, Field(max_length=253, pattern=EXTENDED_RESOURCE)] = "nvidia.com/gpu"
    """resource is the name of the extended resource that the node advertises. Defaults to nvidia.com/gpu."""
    count: Annotated[int, Field(ge=0, le=1024)] = 1
    """count is the number of accelerators per replica, 0 or 1. With 0 the model runs on the CPU. With 1 an engine that
    finds no accelerator fails; it never falls back to the CPU. Defaults to 1."""


class KVCache(Model):
    """Memory of the key-value (KV) cache, which bounds the number of tokens in flight."""

    size: MemorySize | None = None
    """size is the size of the KV cache in bytes, e.g. 2Gi. If it is set, memoryPercent is ignored."""
    memory_percent: Annotated[int, Field(ge=1, le=100)] = 90
    """memoryPercent is the share of the memory left after loading the model that the KV cache takes, in percent; on the
    CPU it is a share of the container's memory limit. Defaults to 90."""
    cpu_offload_gib: Annotated[int, Field(ge=0, le=4096)] | None = Field(default=None, alias="cpuOffloadGiB")
    """cpuOffloadGiB is the host memory that holds the swapped-out KV cache of preempted requests, in GiB. With 0 the
    engine recomputes it. A given value is added to the memory requests and limits of engine.resources. Defaults to 64
    MiB, which is not added."""


class Scheduling(Model):
    """Order in which the engine schedules prompts, and the hard limits of one step."""

    policy: Literal["fcfs", "priority", "srpf", "edf", "fair"] = "fcfs"
    """policy is the order in which the engine schedules prompts. fcfs: first come, first served. priority: highest
    priority first, with ageing. srpf: shortest remaining prompt first. edf: earliest deadline of the first token first.
    fair: least served tenant first, by the names and weights of the API keys; without keys all requests belong to one
    tenant. Defaults to fcfs."""
    max_num_seqs: Annotated[int, Field(ge=1, le=4096)] = 256
    """maxNumSeqs is the maximum number of requests that run at once, whatever the admission limit is. The engine
    reserves memory for them at startup. Defaults to 256."""
    max_batched_tokens: Annotated[int, Field(ge=16, le=1_048_576)] = 2048
    """maxBatchedTokens is the maximum number of tokens in one step; the engine prefills longer prompts in chunks.
    Defaults to 2048."""


class EnvVar(Model):
    """EnvVar is an environment variable with a plain value."""

    name: Annotated[str, Field(min_length=1, max_length=253, pattern=ENV_NAME)]
    """name is the name of the variable. HOME, NVIDIA_VISIBLE_DEVICES, CUDA_VISIBLE_DEVICES and SLUICE_* are rejected,
    except SLUICE_PACE and SLUICE_THREADS."""
    value: Annotated[str, Field(max_length=4096)] = ""
    """value is the value of the variable. Defaults to the empty string."""


class Toleration(Model):
    """Toleration allows the pod to run on nodes with a matching taint, as in the spec of a pod."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="(has(self.key) && self.key != '') || (has(self.operator) && self.operator == 'Exists')",
            sentence="engine.template.tolerations must have a key unless the operator is Exists",
            holds=lambda t: bool(t.key) or t.operator == "Exists",
        ),
        Rule(
            cel="!has(self.value) || self.value == '' || !has(self.operator) || self.operator != 'Exists'",
            sentence="engine.template.tolerations must not have a value with the operator Exists",
            holds=lambda t: not t.value or t.operator != "Exists",
        ),
        Rule(
            cel="!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
            sentence="engine.template.tolerations must have the effect NoExecute where they have tolerationSeconds",
            holds=lambda t: t.toleration_seconds is None or t.effect == "NoExecute",
        ),
    )

    key: Annotated[str, Field(max_length=317)] | None = None
    """key is the taint key that the toleration applies to. An empty key with operator Exists matches every taint."""
    operator: Literal["Exists", "Equal"] | None = None
    """operator is the relation of the key to the value: Exists or Equal. Defaults to Equal."""
    value: LabelValue | None = None
    """value is the taint value that matches, for operator Equal."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """effect is the taint effect that matches. If it is empty, all effects match."""
    toleration_seconds: Annotated[int, Field(ge=0, le=31_536_000)] | None = None
    """tolerationSeconds is how long the pod tolerates a taint with effect NoExecute, in seconds. If it is not set, the
    pod tolerates the taint forever."""


def _keys_match(keys: tuple[str, ...]) -> bool:
    return all(re.match(LABEL_KEY, key) is not None for key in keys)


class Template(Model):
    """Overlay on the engine pod: placement, metadata and environment. It cannot lower the security of the pod."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=f"!self.labels.exists(k, k in {_cel_list(MANAGED_LABELS)} || k.startsWith('{_OWN_PREFIX}'))",
            sentence="engine.template.labels must not set the labels that the operator manages: "
            f"{', '.join(MANAGED_LABELS)}, {_OWN_PREFIX}*",
            holds=lambda t: not any(k in MANAGED_LABELS or k.startswith(_OWN_PREFIX) for k in t.labels),
        ),
        Rule(
            cel=f"!self.annotations.exists(k, k == '{contract.ANNOTATION_DELETION_COST}' "
            f"|| k.startsWith('{_OWN_PREFIX}') || "
            + " || ".join(f"k.contains('{word}')" for word in _REFUSED_ANNOTATIONS)
            + ")",
            sentence="engine.template.annotations must not set what the operator manages "
            f"({contract.ANNOTATION_DELETION_COST}, {_OWN_PREFIX}*) nor AppArmor or seccomp profiles",
            holds=lambda t: (
                not any(
                    k == contract.ANNOTATION_DELETION_COST
                    or k.startswith(_OWN_PREFIX)
                    or any(word in k for word in _REFUSED_ANNOTATIONS)
                    for k in t.annotations
                )
            ),
        ),
        Rule(
            cel=" && ".join(
                f"self.{field}.all(k, size(k) <= 317 && k.matches('{LABEL_KEY}'))"
                for field in ("labels", "annotations", "nodeSelector")
            ),
            sentence="engine.template.labels, annotations and nodeSelector must have keys such as team or "
            "example.com/team, at most 63 characters after the slash",
            holds=lambda t: _keys_match((*t.labels, *t.annotations, *t.node_selector)),
        ),
        Rule(
            cel=f"!self.env.exists(e, e.name in {_cel_list(MANAGED_ENV)} || (e.name.startsWith('{contract.ENV_PREFIX}')"
            f" && !(e.name in {_cel_list(OPEN_ENV)})))",
            sentence=f"engine.template.env must not set what the operator manages: {', '.join(MANAGED_ENV)} and "
            f"{contract.ENV_PREFIX}* (but {' and '.join(OPEN_ENV)}); use the field of the spec instead",
            holds=lambda t: (
                not any(
                    e.name in MANAGED_ENV or (e.name.startswith(contract.ENV_PREFIX) and e.name not in OPEN_ENV)
                    for e in t.env
                )
            ),
        ),
        Rule(
            cel="self.env.all(e, self.env.exists_one(other, other.name == e.name))",
            sentence="engine.template.env must name each variable once",
            holds=lambda t: len({e.name for e in t.env}) == len(t.env),
        ),
    )

    labels: dict[str, LabelValue] = Field(default={}, max_length=32)
    """labels are added to the labels of the pod."""
    annotations: dict[str, AnnotationValue] = Field(default={}, max_length=32)
    """annotations are added to the annotations of the pod."""
    node_selector: dict[str, LabelValue] = Field(default={}, max_length=32)
    """nodeSelector is the set of labels that a node must have to run the pod."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=32)] = ()
    """tolerations are the taints that the pod tolerates."""
    env: Annotated[
        tuple[EnvVar, ...],
        Field(
            max_length=64,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = ()
    """env is the list of environment variables added to the engine container. Values are plain text; references to
    Secrets are not supported."""


class Resources(Model):
    """Compute resources of the engine container, except the accelerator."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=" && ".join(
                f"self.{field}.all(k, k in {_cel_list(_NATIVE_RESOURCES)} || "
                f"(size(k) <= 253 && k.matches('{EXTENDED_RESOURCE}')))"
                for field in ("requests", "limits")
            ),
            sentence=f"engine.resources must name {', '.join(_NATIVE_RESOURCES)} or an extended resource such as "
            "example.com/device",
            holds=lambda r: all(
                k in _NATIVE_RESOURCES or (len(k) <= 253 and re.match(EXTENDED_RESOURCE, k) is not None)
                for k in {*r.requests, *r.limits}
            ),
        ),
        Rule(
            cel="self.requests.all(k, !(k in self.limits) || "
            "quantity(string(self.requests[k])).compareTo(quantity(string(self.limits[k]))) <= 0)",
            sentence="engine.resources.requests must be less than or equal to engine.resources.limits",
            holds=lambda r: all(
                amount_of(wanted) <= amount_of(r.limits[key]) for key, wanted in r.requests.items() if key in r.limits
            ),
        ),
    )

    requests: dict[str, Quantity] = Field(default={}, max_length=16)
    """requests are the resources that Kubernetes reserves for the container, e.g. {cpu: "4", memory: 16Gi}."""
    limits: dict[str, Quantity] = Field(default={}, max_length=16)
    """limits are the maximum resources that the container may use. On the CPU they also determine the size of the KV
    cache and the number of threads."""


class EngineSpec(Model):
    """How each replica runs."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!(self.accelerator.resource in self.resources.limits) && "
            "!(self.accelerator.resource in self.resources.requests)",
            sentence="engine.resources must not name the accelerator: set engine.accelerator.count instead",
            holds=lambda e: e.accelerator.resource not in {*e.resources.limits, *e.resources.requests},
        ),
    )

    image: Annotated[str, Field(min_length=1, max_length=1024, pattern=IMAGE)] | None = None
    """image is the container image of the engine. Defaults to the image in the operator's settings."""
    accelerator: Accelerator = Accelerator()
    """accelerator is the hardware that one replica computes on."""
    kv_cache: KVCache = KVCache()
    """kvCache defines the memory of the key-value (KV) cache."""
    scheduling: Scheduling = Scheduling()
    """scheduling defines the order in which the engine schedules prompts, and the hard limits of one step."""
    resources: Resources = Resources()
    """resources are the compute resources of the engine container, except the accelerator."""
    template: Template = Template()
    """template is an overlay on the engine pod: labels, annotations, nodeSelector, tolerations, env."""
