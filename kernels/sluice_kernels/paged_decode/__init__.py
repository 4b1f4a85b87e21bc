"""Decode attention over paged keys and values behind one public function: Triton on CUDA, plain torch elsewhere."""

import torch

from sluice_kernels.paged_decode.reference import paged_decode_reference

__all__ = ["paged_decode"]


def paged_decode(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    context_lens: torch.Tensor,
    scale: float | None = None,
) -> torch.Tensor:
    """Computes attention of one new token per sequence over that sequence's cached keys and values.

    query [sequences, q_heads, head_dim]; key_cache, value_cache [num_blocks, block_size, kv_heads, head_dim];
    block_tables [sequences, max_blocks] int32; context_lens [sequences] int32, including the new token, 0 for a padding
    slot; scale defaults to head_dim ** -0.5. Returns [sequences, q_heads, head_dim] in the query's dtype, zeros for
    padding slots. On CUDA no data is copied to the host. Raises ValueError if shapes, dtypes or devices do not match.
    """
    _check(query, key_cache, value_cache, block_tables, context_lens)
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    if query.is_cuda:
        # Imported lazily: the reference must work without triton.
        from sluice_kernels.paged_decode.triton import paged_decode_triton

        return paged_decode_triton(query, key_cache, value_cache, block_tables, context_lens, factor)
    return paged_decode_reference(query, key_cache, value_cache, block_tables, context_lens, factor)


def _check(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    context_lens: torch.Tensor,
) -> None:
    if query.dim() != 3 or key_cache.dim() != 4 or block_tables.dim() != 2 or context_lens.dim() != 1:
        raise ValueError(
            "paged_decode takes query [sequences, q_heads, head_dim], caches [num_blocks, block_size, kv_heads, "
            "head_dim], block_tables [sequences, max_blocks] and context_lens [sequences]; got "
            f"{tuple(query.shape)}, {tuple(key_cache.shape)}, {tuple(block_tables.shape)}, {tuple(context_lens.shape)}"
        )
    if key_cache.shape != value_cache.shape or key_cache.shape[3] != query.shape[2]:
        raise ValueError(
            f"key_cache {tuple(key_cache.shape)} and value_cache {tuple(value_cache.shape)} must have one shape, with "
            f"the query's head_dim {query.shape[2]} last"
        )
    if key_cache.shape[2] == 0 or query.shape[1] % key_cache.shape[2] != 0:
        raise ValueError(f"q_heads {query.shape[1]} must be a multiple of kv_heads {key_cache.shape[2]}")
    if block_tables.shape[0] != query.shape[0] or context_lens.shape[0] != query.shape[0]:
        raise ValueError(
            f"block_tables {tuple(block_tables.shape)} and context_lens {tuple(context_lens.shape)} must have one row "
            f"for each of the {query.shape[0]} sequences"
        )
    if query.dtype != key_cache.dtype or query.dtype != value_cache.dtype:
        raise ValueError(f"dtypes differ: query {query.dtype}, caches {key_cache.dtype} and {value_cache.dtype}")
    tensors = (query, key_cache, value_cache, block_tables, context_lens)
    if len({tensor.device for tensor in tensors}) != 1:
        raise ValueError(f"all tensors must be on one device, got {[str(tensor.device) for tensor in tensors]}")
    if any(tensor.shape[-1] > 1 and tensor.stride(-1) != 1 for tensor in tensors):
        raise ValueError("the last dimension of every tensor must be contiguous")
