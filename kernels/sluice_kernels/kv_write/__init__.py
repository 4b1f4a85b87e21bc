"""Query and key norm, rotary embedding and KV write behind one public function: Triton on CUDA, torch elsewhere."""

import torch

from sluice_kernels import arguments, launch
from sluice_kernels.fp8 import FP8, refusal
from sluice_kernels.kv_write.configs import MOST_HEAD_DIM, config_of
from sluice_kernels.kv_write.reference import HeadNorm, PagedCache, Rope, kv_write_reference

__all__ = ["HeadNorm", "PagedCache", "Rope", "can_use", "kv_write", "kv_write_unchecked"]


def can_use(head_dim: int, group: int, dtype: torch.dtype, cache_dtype: torch.dtype, architecture: int) -> str | None:
    """None if the kernel supports this, else the reason. `group`: query heads per key-value head; `architecture` is 90
    for sm_90.
    """
    if not 2 <= head_dim <= MOST_HEAD_DIM or head_dim % 2 == 1:
        return f"kv_write supports an even head_dim of 2 to {MOST_HEAD_DIM}, not {head_dim}"
    if group < 1 or config_of(group) is None:
        return f"kv_write supports 1 to 32 query heads per key-value head, not {group}"
    if dtype not in arguments.FLOATS:
        return f"kv_write supports float32, float16 and bfloat16, not {dtype}"
    if cache_dtype not in (dtype, FP8):
        return f"kv_write supports a cache of {dtype} or {FP8}, not {cache_dtype}"
    return refusal(architecture) if cache_dtype == FP8 else None


def kv_write(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cache: PagedCache,
    rope: Rope | None = None,
    norm: HeadNorm | None = None,
) -> torch.Tensor:
    """Writes keys and values of a step into the cache and returns the query [tokens, q_heads, head_dim] to attend with.

    query [tokens, q_heads, head_dim], key, value [tokens, kv_heads, head_dim]: views of one QKV buffer or tensors of
    their own. Query and key are normalised per head (`norm`), then rotated (`rope`). A slot of −1 writes nothing; slots
    are distinct otherwise. Raises ValueError for an argument that does not match.
    """
    _check_heads(query, key, value)
    _check_cache(query, key, cache)
    if rope is not None:
        _check_rope(query, rope)
    if norm is not None:
        for name, weight in (("norm.query", norm.query), ("norm.key", norm.key)):
            arguments.check_shape(name, weight, "[head_dim]", query.shape[2])
            arguments.check_dtype(name, weight, query.dtype, torch.float32)
            arguments.check_contiguous(name, weight)
            arguments.check_device(query, **{name: weight})
    return kv_write_unchecked(query, key, value, cache, rope, norm)


def kv_write_unchecked(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cache: PagedCache,
    rope: Rope | None = None,
    norm: HeadNorm | None = None,
) -> torch.Tensor:
    """As `kv_write`, of arguments like some that were checked: the checks take as long as the launch."""
    if launch.is_compiled(query):
        from sluice_kernels.kv_write.triton import kv_write_triton

        return kv_write_triton(query, key, value, cache, rope, norm)
    return kv_write_reference(query, key, value, cache, rope, norm)


def _check_heads(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
    arguments.check_shape("query", query, "[tokens, q_heads, head_dim]", None, None, None)
    tokens, q_heads, head_dim = query.shape
    arguments.check_shape("key", key, "[tokens, kv_heads, head_dim]", tokens, None, head_dim)
    arguments.check_shape("value", value, "[tokens, kv_heads, head_dim]", *key.shape)
    kv_heads = key.shape[1]
    arguments.check("query", kv_heads > 0 and q_heads % kv_heads == 0, f"a multiple of {kv_heads} heads", q_heads)
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        arguments.check_dtype(name, tensor, *(arguments.FLOATS if name == "query" else (query.dtype,)))
        arguments.check_rows(name, tensor)
    arguments.check_device(query, key=key, value=value)


def _check_cache(query: torch.Tensor, key: torch.Tensor, cache: PagedCache) -> None:
    tokens, q_heads, head_dim = query.shape
    kv_heads = key.shape[1]
    layout = "[num_blocks, block_size, kv_heads, head_dim]"
    arguments.check_shape("cache.keys", cache.keys, layout, None, None, kv_heads, head_dim)
    arguments.check_shape("cache.values", cache.values, layout, *cache.keys.shape)
    arguments.check_dtype("cache.keys", cache.keys, query.dtype, FP8)
    arguments.check_dtype("cache.values", cache.values, cache.keys.dtype)
    arguments.check_rows("cache.keys", cache.keys)
    arguments.check_rows("cache.values", cache.values)
    arguments.check_shape("cache.slots", cache.slots, "[tokens]", tokens)
    arguments.check_dtype("cache.slots", cache.slots, torch.int32, torch.int64)
    arguments.check_contiguous("cache.slots", cache.slots)
    for name, scales in (("cache.key_scales", cache.key_scales), ("cache.value_scales", cache.value_scales)):
        arguments.check_scales(name, scales, kv_heads, cache.keys.dtype)
        arguments.check_device(query, **{name: scales})
    arguments.check_device(
        query, **{"cache.keys": cache.keys, "cache.values": cache.values, "cache.slots": cache.slots}
    )
    architecture = launch.device_of(query).architecture
    reason = can_use(head_dim, q_heads // kv_heads, query.dtype, cache.keys.dtype, architecture)
    arguments.check_supported("query", reason)


def _check_rope(query: torch.Tensor, rope: Rope) -> None:
    arguments.check_shape("rope.table", rope.table, "[positions, rotary_dim]", None, None)
    width = rope.table.shape[1]
    expected = f"an even rotary_dim of 2 to {query.shape[2]}"
    arguments.check("rope.table", 2 <= width <= query.shape[2] and width % 2 == 0, expected, width)
    arguments.check_dtype("rope.table", rope.table, torch.float32)
    arguments.check_rows("rope.table", rope.table)
    arguments.check_shape("rope.positions", rope.positions, "[tokens]", query.shape[0])
    arguments.check_dtype("rope.positions", rope.positions, torch.int32, torch.int64)
    arguments.check_contiguous("rope.positions", rope.positions)
    arguments.check_device(query, **{"rope.table": rope.table, "rope.positions": rope.positions})
