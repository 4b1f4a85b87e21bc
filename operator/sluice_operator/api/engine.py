"""Defines `spec.engine`: how each replica runs. The overlay on its pod has a folder of its own, `template/`."""

import re
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from sluice.models.tensor_parallel import MAX_RANKS
from sluice_operator.api.base import Model, Rule
from sluice_operator.api.patterns import EXTENDED_RESOURCE, IMAGE, WHOLE_UNITS, MemorySize, Quantity, amount_of
from sluice_operator.api.template import Template
from sluice_operator.api.template.cel import cel_list

# A container has an extended resource by its limit; a request of it must be equal.
_SAME_UNITS: Final = (
    "self.requests.all(k, !k.contains('/') || (k in self.limits && "
    "quantity(string(self.requests[k])).compareTo(quantity(string(self.limits[k]))) == 0)) && "
    f"self.limits.all(k, !k.contains('/') || string(self.limits[k]).matches('{WHOLE_UNITS}'))"
)
_NATIVE_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage")


class Accelerator(Model):
    """Hardware that one replica computes on."""

    resource: Annotated[str, Field(max_length=253, pattern=EXTENDED_RESOURCE)] = "nvidia.com/gpu"
    """resource is the name of the extended resource that the node advertises. Defaults to nvidia.com/gpu."""
    count: Annotated[int, Field(ge=0, le=MAX_RANKS)] = 1
    """count is the number of accelerators per replica, all of one node. With 0 the model runs on the CPU. Several share the
    model (tensor parallelism), and count must then divide its attention heads. An engine that finds fewer fails; it never
    falls back to the CPU. Defaults to 1."""


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


def _has_same_units(resources: Any) -> bool:
    requests, limits = resources.requests, resources.limits
    return all(
        "/" not in key or (key in limits and amount_of(wanted) == amount_of(limits[key]))
        for key, wanted in requests.items()
    ) and all("/" not in key or re.match(WHOLE_UNITS, amount) is not None for key, amount in limits.items())


class Resources(Model):
    """Compute resources of the engine container, except the accelerator."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=" && ".join(
                f"self.{field}.all(k, k in {cel_list(_NATIVE_RESOURCES)} || "
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
        Rule(
            cel=_SAME_UNITS,
            sentence="engine.resources.limits must have each extended resource of requests, with the same whole number",
            holds=_has_same_units,
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
        Rule(
            cel="self.attentionBackend == 'auto' || self.accelerator.count > 0",
            sentence="engine.attentionBackend chooses between attentions of accelerators: set engine.accelerator.count, "
            "or leave it out",
            holds=lambda e: e.attention_backend == "auto" or e.accelerator.count > 0,
        ),
        Rule(
            cel="!has(self.template.shmSize) || !('memory' in self.resources.limits) || "
            "quantity(self.template.shmSize).isLessThan(quantity(string(self.resources.limits['memory'])))",
            sentence="engine.template.shmSize must be less than engine.resources.limits.memory, which includes it",
            holds=lambda e: (
                e.template.shm_size is None
                or "memory" not in e.resources.limits
                or amount_of(e.template.shm_size) < amount_of(e.resources.limits["memory"])
            ),
        ),
    )

    image: Annotated[str, Field(min_length=1, max_length=1024, pattern=IMAGE)] | None = None
    """image is the container image of the engine. Defaults to the image in the operator's settings."""
    accelerator: Accelerator = Accelerator()
    """accelerator is the hardware that one replica computes on."""
    attention_backend: Literal["auto", "sluice", "torch"] = "auto"
    """attentionBackend is what computes attention on an accelerator. sluice: the engine's own kernels; an engine whose model
    they do not support fails. torch: torch's flash attention over gathered pages, without CUDA graphs: slower, for
    comparison. auto: sluice where it supports the model, else torch; the engine's log has the reason. Defaults to auto."""
    kv_cache: KVCache = KVCache()
    """kvCache defines the memory of the key-value (KV) cache."""
    scheduling: Scheduling = Scheduling()
    """scheduling defines the order in which the engine schedules prompts, and the hard limits of one step."""
    resources: Resources = Resources()
    """resources are the compute resources of the engine container, except the accelerator."""
    template: Template = Template()
    """template is an overlay on the engine pod: metadata, placement, environment, volumes, user and groups."""
