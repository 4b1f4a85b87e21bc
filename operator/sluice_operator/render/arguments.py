"""What the engine is started with: `serve` and one flag per field of `EngineOptions` that the resource decides.

Whatever stands here rolls the pods when it changes. `slo` and `admission` therefore do not: their bounds and targets
reach running engines by PATCH /limits, with a time to live. When the operator is gone, engines return to their own
defaults, which are safe (the KV cache and `--max-num-seqs` still hold) and not tight, as the control law wants it.
`--concurrency-max` is the ceiling of the buffers, so that the bounds an engine starts with never contradict them.
"""

from typing import Final

from sluice import contract
from sluice_operator.api import LLMDeployment
from sluice_operator.api.words import amount_of

GIB: Final = 2**30
_PVC: Final = "pvc://"
_FILE: Final = "file://"


def claim_of(uri: str) -> str | None:
    """The PersistentVolumeClaim that a model URI names; None for other URIs."""
    return uri.removeprefix(_PVC).partition("/")[0] if uri.startswith(_PVC) else None


def model_path(uri: str) -> str:
    """The model's folder as the engine sees it."""
    if claim_of(uri) is None:
        return uri.removeprefix(_FILE)
    inside = uri.removeprefix(_PVC).partition("/")[2].strip("/")
    return f"{contract.MODEL_MOUNT}/{inside}" if inside else contract.MODEL_MOUNT


def engine_arguments(resource: LLMDeployment) -> list[str]:
    """The container's args."""
    spec = resource.spec
    engine = spec.engine
    flags: dict[str, str | int | float | None] = {
        "served-name": resource.served_name,
        "host": "0.0.0.0",
        "port": contract.DATA_PORT,
        "admin-port": contract.ADMIN_PORT,
        "admin-token-file": f"{contract.ADMIN_TOKEN_MOUNT}/{contract.ADMIN_TOKEN_KEY}",
        "dtype": spec.model.dtype,
        # Said outright: with a GPU asked for and none visible the engine must fail, not run on the CPU.
        "device": "cuda" if engine.accelerator.count else "cpu",
        "max-model-length": spec.model.max_model_length,
        "kv-size": int(amount_of(engine.kv_cache.size)) if engine.kv_cache.size else None,
        "kv-memory-fraction": None if engine.kv_cache.size else engine.kv_cache.memory_fraction,
        "swap-size": None if engine.kv_cache.cpu_offload_gib is None else engine.kv_cache.cpu_offload_gib * GIB,
        "policy": engine.scheduling.policy,
        "max-num-seqs": engine.scheduling.max_num_seqs,
        "max-batched-tokens": engine.scheduling.max_batched_tokens,
        "concurrency-max": engine.scheduling.max_num_seqs,
        "drain-seconds": spec.rollout.drain_seconds,
        "grace-seconds": int(contract.DRAIN_GRACE_SECONDS),
    }
    given = (f"--{flag}={value}" for flag, value in flags.items() if value is not None)
    return ["serve", model_path(spec.model.uri), *given]
