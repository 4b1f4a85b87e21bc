"""`spec.engine`: how each replica runs, and the overlay on its pod that may add but never take away."""

import re
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from sluice import contract
from sluice_operator.api.base import Model, Rule
from sluice_operator.api.words import (
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
# Every option of `sluice serve` may come as SLUICE_<OPTION>; these two have no field of their own.
OPEN_ENV: Final = (contract.ENV_PACE, contract.ENV_THREADS)
# Annotations of old releases that take AppArmor or seccomp off a pod, and the one that orders scale-in.
_REFUSED_ANNOTATIONS: Final = ("apparmor.security.beta.kubernetes.io", "seccomp.security.alpha.kubernetes.io")
_NATIVE_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage")
_OWN_PREFIX: Final = f"{contract.GROUP}/"


def _cel_list(words: tuple[str, ...]) -> str:
    return "[" + ", ".join(f"'{word}'" for word in words) + "]"


class Accelerator(Model):
    """What one replica computes on."""

    resource: Annotated[str, Field(max_length=253, pattern=EXTENDED_RESOURCE)] = "nvidia.com/gpu"
    """The extended resource that the node offers, e.g. nvidia.com/gpu."""
    count: Annotated[int, Field(ge=0, le=1024)] = 1
    """How many of it each replica takes. 0 runs the model on the CPU; there is never a silent fallback to it."""


class KVCache(Model):
    """How much memory the key-value cache takes. It bounds how many tokens can be in flight."""

    size: MemorySize | None = None
    """Bytes for the cache, e.g. 2Gi. When set, memoryFraction is not read."""
    memory_fraction: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Share of the memory left after loading the model; on the CPU, of the container's memory limit."""
    cpu_offload_gib: Annotated[int, Field(ge=0, le=4096)] | None = Field(default=None, alias="cpuOffloadGiB")
    """GiB of host memory that keep what preempted requests have computed, beside the cache; 0: they compute it again.
    Default: 64 MiB. What is given here is added to the memory that engine.resources request and limit."""


class Scheduling(Model):
    """How an engine shares its steps: in which order, and the hard ceilings of one step."""

    policy: Literal["fcfs", "priority", "srpf", "edf", "fair"] = "fcfs"
    """Whose prompt is served next: fcfs as they come; priority by the request's priority, with ageing; srpf the
    shortest remaining prompt; edf the earliest deadline for the first token; fair the tenant served least."""
    max_num_seqs: Annotated[int, Field(ge=1, le=4096)] = 256
    """How many requests can run at once, whatever the admission limit says. Memory is set aside for them at start."""
    max_batched_tokens: Annotated[int, Field(ge=16, le=1_048_576)] = 2048
    """How many tokens one step can compute; longer prompts are computed in chunks."""


class EnvVar(Model):
    """One plain environment variable."""

    name: Annotated[str, Field(min_length=1, max_length=253, pattern=ENV_NAME)]
    """The variable's name. HOME, the CUDA device lists and SLUICE_* (but SLUICE_PACE and SLUICE_THREADS) are refused."""
    value: Annotated[str, Field(max_length=4096)] = ""
    """The variable's value."""


class Toleration(Model):
    """Lets the pod run on nodes with a matching taint; as in a pod's spec."""

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
    """The taint's key; empty with operator Exists matches every taint."""
    operator: Literal["Exists", "Equal"] | None = None
    """Exists or Equal (the default)."""
    value: LabelValue | None = None
    """The taint's value, for operator Equal."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """The taint's effect; empty matches all effects."""
    toleration_seconds: Annotated[int, Field(ge=0, le=31_536_000)] | None = None
    """For effect NoExecute: how long the pod stays after the taint appears."""


def _keys_match(keys: tuple[str, ...]) -> bool:
    return all(re.match(LABEL_KEY, key) is not None for key in keys)


class Template(Model):
    """An overlay on the engine pod: where it runs and what is added to it; nothing that lowers its security."""

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
    """Labels added to the pod."""
    annotations: dict[str, AnnotationValue] = Field(default={}, max_length=32)
    """Annotations added to the pod."""
    node_selector: dict[str, LabelValue] = Field(default={}, max_length=32)
    """Labels that a node must have."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=32)] = ()
    """Taints that the pod accepts."""
    env: Annotated[
        tuple[EnvVar, ...],
        Field(
            max_length=64,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = ()
    """Environment variables added to the engine container; plain values, no secrets."""


class Resources(Model):
    """Requests and limits of the engine container, besides the accelerator."""

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
    """What the scheduler sets aside, e.g. {cpu: "4", memory: 16Gi}."""
    limits: dict[str, Quantity] = Field(default={}, max_length=16)
    """What the container may use at most. On the CPU the KV cache and the threads are sized from these."""


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
    """The engine's image. Default: the one in the operator's settings."""
    accelerator: Accelerator = Accelerator()
    """What one replica computes on."""
    kv_cache: KVCache = KVCache()
    """How much memory the key-value cache takes."""
    scheduling: Scheduling = Scheduling()
    """Hard ceilings of one engine step."""
    resources: Resources = Resources()
    """Requests and limits of the engine container, besides the accelerator."""
    template: Template = Template()
    """An overlay on the engine pod: labels, annotations, nodeSelector, tolerations, env."""
