"""Judges a model against the spec: whether pods could ever serve it. Pure."""

from dataclasses import dataclass, replace
from typing import Final

from sluice import contract
from sluice.models.tensor_parallel import not_divided
from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.api.patterns import amount_of
from sluice_operator.cluster.pod_status import Problem
from sluice_operator.model_check.accelerator import selected_memory
from sluice_operator.model_check.record import ModelRecord, NotChecked
from sluice_perfmodel.model_memory import Plan, Remedies, Shortfall, cache_shortfall, gib, sentence, shortfall

SWAP_BYTES: Final = 64 << 20  # the engine's default, which its container's limit includes
_REMEDIES: Final = Remedies(
    memory="",
    length="set spec.model.maxModelLength to {tokens}",
    dtype="set spec.model.dtype to bfloat16",
)
_WITHHELD: Final = "The operator starts no pod of this spec; pods of an earlier one stay."


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a check; without both, the model may fit."""

    problem: Problem | None = None  # no pod could serve the model
    not_checked: str = ""  # why the check was left out, as a clause


def judge(spec: LLMDeploymentSpec, record: ModelRecord | NotChecked) -> Verdict:
    """Whether pods of the spec can serve the model of the record.

    The memory is what the spec fixes: the container's limit, or that of the accelerators of its node selector. A dtype that
    is left to the engine counts as the checkpoint's, the smaller one of the two that it may choose.
    """
    if isinstance(record, NotChecked):
        return Verdict(not_checked=str(record))
    if record.fault is not None:
        text = f"{spec.model.uri} {record.fault} {_WITHHELD}"
        return Verdict(Problem(contract.REASON_UNSUPPORTED_ARCHITECTURE, text))
    if not spec.engine.accelerator.count:
        return _on_cpu(spec, record)
    return _unshared(spec, record) or _undivided(spec, record) or _on_accelerator(spec, record)


def _unshared(spec: LLMDeploymentSpec, record: ModelRecord) -> Verdict | None:
    """The verdict on several accelerators for a model that they cannot share."""
    count = spec.engine.accelerator.count
    if record.unshared is None or count == 1:
        return None
    text = (
        f"spec.engine.accelerator.count {count} does not fit {spec.model.uri}: accelerators cannot share a model of type "
        f"{record.unshared}. Set it to 1. {_WITHHELD}"
    )
    return Verdict(Problem(contract.REASON_UNSUPPORTED_ARCHITECTURE, text))


def _undivided(spec: LLMDeploymentSpec, record: ModelRecord) -> Verdict | None:
    """The verdict on a number of accelerators that cannot share the model."""
    count = spec.engine.accelerator.count
    fault = None if record.sizes is None or count == 1 else not_divided(record.sizes, count)
    if fault is None:
        return None
    text = f"spec.engine.accelerator.count {count} does not fit {spec.model.uri}. {fault} {_WITHHELD}"
    return Verdict(Problem(contract.REASON_INVALID_OPTION, text))


def _on_cpu(spec: LLMDeploymentSpec, record: ModelRecord) -> Verdict:
    limit = spec.engine.resources.limits.get("memory")
    if limit is None:
        return Verdict(not_checked="spec.engine.resources.limits.memory is not set")
    # A given size of swap space is added to the limit; the default is part of it.
    reserved = SWAP_BYTES if spec.engine.kv_cache.cpu_offload_gib is None and record.facts.kv is not None else 0
    plan = _plan(spec, record, reserved)
    if (small := _small_cache(record, plan)) is not None:
        return small
    short = shortfall(record.facts, plan, int(amount_of(limit)))
    return _verdict(short, "The memory limit of a pod", "Raise spec.engine.resources.limits.memory to {size}")


def _on_accelerator(spec: LLMDeploymentSpec, record: ModelRecord) -> Verdict:
    accelerator = spec.engine.accelerator
    plan = _plan(spec, record, 0)
    if (small := _small_cache(record, plan)) is not None:
        return small
    memory = selected_memory(accelerator.resource, spec.engine.template.node_selector)
    if memory is None:
        return Verdict(
            not_checked=f"the memory of the accelerators is unknown, because spec.engine.template.nodeSelector has no "
            f"label {accelerator.resource}.memory"
        )
    short = shortfall(record.facts, plan, memory)
    remedy = "Select accelerators with at least {size} in spec.engine.template.nodeSelector"
    return _verdict(short, "The memory of a selected accelerator", remedy)


def _small_cache(record: ModelRecord, plan: Plan) -> Verdict | None:
    """The verdict on a KV cache of a given size that holds no request of the maximum length."""
    found = cache_shortfall(record.facts, plan)
    if found is None or plan.kv_size is None:
        return None
    needed, fits = found
    whole = needed.kv * plan.accelerators
    shorter = f", or set spec.model.maxModelLength to {fits}" if fits else ", or leave it out"
    text = (
        f"One request of {needed.tokens} tokens needs {gib(whole)} of KV cache, and spec.engine.kvCache.size is "
        f"{gib(plan.kv_size)}. Raise it to {gib(whole, up=True)}{shorter}. {_WITHHELD}"
    )
    return Verdict(Problem(contract.REASON_INSUFFICIENT_MEMORY, text))


def _verdict(short: Shortfall | None, subject: str, memory_remedy: str) -> Verdict:
    if short is None:
        return Verdict()
    text = sentence(short, subject, replace(_REMEDIES, memory=memory_remedy))
    return Verdict(Problem(contract.REASON_INSUFFICIENT_MEMORY, f"{text} {_WITHHELD}"))


def _plan(spec: LLMDeploymentSpec, record: ModelRecord, reserved: int) -> Plan:
    kv = spec.engine.kv_cache
    dtype = record.facts.dtype or "bfloat16" if spec.model.dtype == "auto" else spec.model.dtype
    return Plan(
        dtype=dtype,
        int8=spec.model.quantization == "int8",
        max_model_length=spec.model.max_model_length,
        kv_size=int(amount_of(kv.size)) if kv.size else None,
        kv_share=kv.memory_percent / 100,
        reserved=reserved,
        accelerators=max(1, spec.engine.accelerator.count),
    )
