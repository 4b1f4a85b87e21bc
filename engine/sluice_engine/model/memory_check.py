"""Refuses a model that certainly does not fit the memory, before its weights are read: a load takes minutes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sluice.models.files import LENGTH_BYTES, HeaderInvalid, header_length, loaded_names, parse_header
from sluice_engine.backend.pool_memory import PoolMemory, check_size
from sluice_engine.backend.resources import small_pool
from sluice_engine.config import EngineOptions
from sluice_engine.errors import InsufficientMemory
from sluice_perfmodel.model_memory import (
    DTYPE_BYTES,
    Plan,
    Remedies,
    cache_shortfall,
    facts_of,
    parameters_of,
    sentence,
    shortfall,
)

_REMEDIES: Final = Remedies(
    memory="Give the engine at least {size} (on a cluster, the container's memory limit or a larger accelerator)",
    length="serve shorter requests: --max-model-length {tokens} would fit",
    dtype="give --dtype bfloat16",
)


def check_memory(
    folder: Path,
    config: Mapping[str, Any],
    options: EngineOptions,
    memory: PoolMemory,
    *,
    dtype: str,
    generates: bool,
) -> None:
    """Compare the need of the model in `folder` with `memory`, what is free now. Raises InsufficientMemory.

    Weights whose headers cannot be read are left to the loader, which names their fault.
    """
    if dtype not in DTYPE_BYTES:
        return
    try:
        tied = config.get("tie_word_embeddings") is True
        facts = facts_of(config, parameters_of(weight_headers(folder), tied=tied), generates=generates)
    except (OSError, HeaderInvalid):
        return
    plan = Plan(
        dtype=dtype,
        max_model_length=options.max_model_length,
        kv_size=options.kv_size,
        kv_share=options.kv_memory_fraction,
        block_size=options.block_size,
        accelerators=options.tensor_parallel,
        int8=options.quantization == "int8",
    )
    if facts.kv is not None:
        check_size(options.kv_size and options.kv_size // options.tensor_parallel, memory)
    if options.kv_size is not None and (small := cache_shortfall(facts, plan)) is not None:
        needed, fits = small
        raise InsufficientMemory(small_pool(needed.tokens, needed.kv * plan.accelerators, options.kv_size, fits))
    short = shortfall(facts, plan, memory.free)
    if short is not None:
        raise InsufficientMemory(sentence(short, memory.name, _REMEDIES))


def weight_headers(folder: Path) -> list[tuple[dict[str, Any], int]]:
    """The headers of the folder's weights, and the bytes of tensors of each file. Raises OSError, HeaderInvalid."""
    return [_header(folder / name) for name in loaded_names(path.name for path in folder.iterdir())]


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """The header of a safetensors file, and the bytes of its tensors."""
    with path.open("rb") as file:
        length = header_length(file.read(LENGTH_BYTES))
        header = parse_header(file.read(length))
    return header, path.stat().st_size - LENGTH_BYTES - length
