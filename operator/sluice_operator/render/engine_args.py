"""Builds the engine's command line: `serve` and one flag per field of `EngineOptions` that the resource determines.

A change of any flag triggers a rollout. `slo` and `admission` are therefore not flags: they reach running engines by
the targets file (`targets.py`), and the operator's further decisions by PATCH /limits, with a time to live.
`--concurrency-max` equals the limit of the engine's buffers, so that the initial bounds never contradict the buffers.
"""

from typing import Final

from sluice import contract
from sluice.models.uri import ClaimModel, LocalModel, parse_uri
from sluice_operator.api import LLMDeployment
from sluice_operator.api.patterns import amount_of
from sluice_operator.render.access.auth import secret_flags
from sluice_operator.render.model_source import source_flags

GIB: Final = 2**30


def claim_of(uri: str) -> str | None:
    """Return the PersistentVolumeClaim in a model URI, or None for a URI of another scheme."""
    location = parse_uri(uri)
    return location.claim if isinstance(location, ClaimModel) else None


def model_path(uri: str) -> str:
    """Return the path of the model folder inside the engine container; the URI itself for a model that it downloads."""
    match parse_uri(uri):
        case ClaimModel(_, inside):
            return f"{contract.MODEL_MOUNT}/{inside}" if inside else contract.MODEL_MOUNT
        case LocalModel(path):
            return str(path)
        case remote:
            return str(remote)


def engine_arguments(resource: LLMDeployment, *, asks_read_token: bool = False) -> list[str]:
    """Return the args of the engine container. asks_read_token: reads of the admin port need a token."""
    spec = resource.spec
    engine = spec.engine
    flags: dict[str, str | int | float | None] = {
        "served-name": resource.served_name,
        "host": "0.0.0.0",
        "port": contract.DATA_PORT,
        "admin-port": contract.ADMIN_PORT,
        "admin-token-file": f"{contract.ADMIN_TOKEN_MOUNT}/{contract.ADMIN_TOKEN_KEY}",
        "read-token-file": f"{contract.READ_TOKEN_MOUNT}/{contract.READ_TOKEN_KEY}" if asks_read_token else None,
        "targets-file": f"{contract.TARGETS_MOUNT}/{contract.TARGETS_FILE}",
        **secret_flags(spec.auth),
        **source_flags(spec.model),
        "dtype": spec.model.dtype,
        "quantization": None if spec.model.quantization == "none" else spec.model.quantization,
        # The device is explicit: if a GPU is requested and none is visible, the engine must fail, not run on the CPU.
        "device": "cuda" if engine.accelerator.count else "cpu",
        "tensor-parallel": engine.accelerator.count if engine.accelerator.count > 1 else None,
        "attention-backend": None if engine.attention_backend == "auto" else engine.attention_backend,
        "max-model-length": spec.model.max_model_length,
        "kv-size": int(amount_of(engine.kv_cache.size)) if engine.kv_cache.size else None,
        "kv-memory-fraction": None if engine.kv_cache.size else engine.kv_cache.memory_percent / 100,
        "swap-size": None if engine.kv_cache.cpu_offload_gib is None else engine.kv_cache.cpu_offload_gib * GIB,
        "policy": engine.scheduling.policy,
        "max-num-seqs": engine.scheduling.max_num_seqs,
        "max-batched-tokens": engine.scheduling.max_batched_tokens,
        "concurrency-max": engine.scheduling.max_num_seqs,
        "drain-seconds": spec.rollout.drain_seconds,
        "grace-seconds": int(contract.DRAIN_GRACE_SECONDS),
    }
    given = (f"--{flag}={value}" for flag, value in flags.items() if value is not None)
    return ["serve", literal(model_path(spec.model.uri)), *given]


def literal(argument: str) -> str:
    """Return the argument as args must have it: the kubelet replaces `$(NAME)` by a variable, and `$$` by `$`."""
    return argument.replace("$", "$$")


def as_given(argument: str) -> str:
    """Return what the kubelet makes of a `literal`."""
    return argument.replace("$$", "$")
