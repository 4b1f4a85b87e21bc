"""Judges a model against the spec: whether pods could ever serve it. Pure."""

from dataclasses import dataclass
from typing import Final

from sluice import contract
from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.api.patterns import amount_of
from sluice_operator.cluster.pod_status import Problem
from sluice_operator.model_check.record import ModelRecord, NotChecked
from sluice_perfmodel.model_memory import Plan, Remedies, sentence, shortfall

SWAP_BYTES: Final = 64 << 20  # the engine's default, which its container's limit includes
_REMEDIES: Final = Remedies(
    memory="Raise spec.engine.resources.limits.memory to {size}",
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

    The memory is the container's limit, since only that is certain: for an accelerator a node with more may yet join.
    A dtype that is left to the engine counts as the checkpoint's, the smaller one of the two that it may choose.
    """
    if isinstance(record, NotChecked):
        return Verdict(not_checked=str(record))
    if record.fault is not None:
        text = f"{spec.model.uri} {record.fault} {_WITHHELD}"
        return Verdict(Problem(contract.REASON_UNSUPPORTED_ARCHITECTURE, text))
    engine = spec.engine
    if engine.accelerator.count:
        return Verdict(not_checked="the memory of the accelerators is known to the engine only")
    limit = engine.resources.limits.get("memory")
    if limit is None:
        return Verdict(not_checked="spec.engine.resources.limits.memory is not set")
    short = shortfall(record.facts, _plan(spec, record), int(amount_of(limit)))
    if short is None:
        return Verdict()
    text = sentence(short, "The memory limit of a pod", _REMEDIES)
    return Verdict(Problem(contract.REASON_INSUFFICIENT_MEMORY, f"{text} {_WITHHELD}"))


def _plan(spec: LLMDeploymentSpec, record: ModelRecord) -> Plan:
    kv = spec.engine.kv_cache
    dtype = record.facts.dtype or "bfloat16" if spec.model.dtype == "auto" else spec.model.dtype
    return Plan(
        dtype=dtype,
        max_model_length=spec.model.max_model_length,
        kv_size=int(amount_of(kv.size)) if kv.size else None,
        kv_share=kv.memory_percent / 100,
        reserved=SWAP_BYTES if kv.cpu_offload_gib is None else 0,  # a given size is added to the limit
    )
