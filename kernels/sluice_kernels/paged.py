"""What both attention kernels share: the paged keys and values, the rule of a layer, their checks and the reference."""

from dataclasses import dataclass, field
from typing import Final

import torch

from sluice_kernels import arguments, launch
from sluice_kernels.fp8 import FP8, refusal

MOST_HEAD_DIM: Final = 256
MOST_GROUP: Final = 32
LOG2_E: Final = 1.4426950408889634


@dataclass(frozen=True)
class PagedKV:
    """The context of each sequence.

    keys, values [num_blocks, block_size, kv_heads, head_dim]; tables [sequences, max_blocks] int32; contexts [sequences]
    int32: tokens, those of this step included, 0 for a padding sequence. Table entries at or beyond
    ceil(context / block_size), and those before a window, are never read. An e4m3 cache has float32 scales [kv_heads];
    a stored value times its head's scale is the value.
    """

    keys: torch.Tensor
    values: torch.Tensor
    tables: torch.Tensor
    contexts: torch.Tensor
    key_scales: torch.Tensor | None = None
    value_scales: torch.Tensor | None = None


@dataclass(frozen=True)
class AttentionRule:
    """What a layer's attention computes. Query head h uses key-value head h // (q_heads / kv_heads)."""

    scale: float | None = None  # None: head_dim ** -0.5
    window: int | None = None  # positions that a query attends to, its own included; None: all preceding ones
    softcap: float | None = None  # scores become softcap · tanh(score / softcap)
    sinks: torch.Tensor | None = field(default=None)  # [q_heads] float32: a score without a value, in the denominator

    def scale_for(self, head_dim: int) -> float:
        """The scale, or its default."""
        return head_dim**-0.5 if self.scale is None else self.scale


def can_attend(
    name: str, head_dim: int, group: int, dtypes: tuple[torch.dtype, torch.dtype], architecture: int
) -> str | None:
    """`can_use` of the kernel `name`. `dtypes` are those of the query and of the cache."""
    dtype, cache_dtype = dtypes
    if not 1 <= head_dim <= MOST_HEAD_DIM:
        return f"{name} supports a head_dim of 1 to {MOST_HEAD_DIM}, not {head_dim}"
    if not 1 <= group <= MOST_GROUP:
        return f"{name} supports 1 to {MOST_GROUP} query heads per key-value head, not {group}"
    if dtype not in arguments.FLOATS:
        return f"{name} supports float32, float16 and bfloat16, not {dtype}"
    if cache_dtype not in (dtype, FP8):
        return f"{name} supports a cache of {dtype} or {FP8}, not {cache_dtype}"
    return refusal(architecture) if cache_dtype == FP8 else None


def check_attention(name: str, query: torch.Tensor, kv: PagedKV, rule: AttentionRule) -> None:
    """Raises ValueError for an argument that does not match the query [rows, q_heads, head_dim]."""
    arguments.check_shape("query", query, "[rows, q_heads, head_dim]", None, None, None)
    arguments.check_dtype("query", query, *arguments.FLOATS)
    arguments.check_rows("query", query)
    _, q_heads, head_dim = query.shape
    _check_cache(kv, query)
    kv_heads = kv.keys.shape[2]
    arguments.check("query", kv_heads > 0 and q_heads % kv_heads == 0, f"a multiple of {kv_heads} heads", q_heads)
    _check_tables(kv, query)
    arguments.check("rule.window", rule.window is None or rule.window > 0, "None or more than 0", rule.window)
    arguments.check("rule.softcap", rule.softcap is None or rule.softcap > 0, "None or more than 0", rule.softcap)
    if rule.sinks is not None:
        arguments.check_shape("rule.sinks", rule.sinks, "[q_heads]", q_heads)
        arguments.check_dtype("rule.sinks", rule.sinks, torch.float32)
        arguments.check_contiguous("rule.sinks", rule.sinks)
        arguments.check_device(query, **{"rule.sinks": rule.sinks})
    architecture = launch.device_of(query).architecture
    reason = can_attend(name, head_dim, q_heads // kv_heads, (query.dtype, kv.keys.dtype), architecture)
    arguments.check_supported("query", reason)


def _check_cache(kv: PagedKV, query: torch.Tensor) -> None:
    layout = "[num_blocks, block_size, kv_heads, head_dim]"
    arguments.check_shape("kv.keys", kv.keys, layout, None, None, None, query.shape[2])
    arguments.check_shape("kv.values", kv.values, layout, *kv.keys.shape)
    arguments.check("kv.keys", kv.keys.shape[1] > 0, "a block_size of at least 1", kv.keys.shape[1])
    arguments.check_dtype("kv.keys", kv.keys, query.dtype, FP8)
    arguments.check_dtype("kv.values", kv.values, kv.keys.dtype)
    arguments.check_rows("kv.keys", kv.keys)
    arguments.check_rows("kv.values", kv.values)
    for name, scales in (("kv.key_scales", kv.key_scales), ("kv.value_scales", kv.value_scales)):
        arguments.check_scales(name, scales, kv.keys.shape[2], kv.keys.dtype)
        arguments.check_device(query, **{name: scales})


def _check_tables(kv: PagedKV, query: torch.Tensor) -> None:
    arguments.check_shape("kv.tables", kv.tables, "[sequences, max_blocks]", None, None)
    arguments.check_shape("kv.contexts", kv.contexts, "[sequences]", kv.tables.shape[0])
    arguments.check_dtype("kv.tables", kv.tables, torch.int32)
    arguments.check_dtype("kv.contexts", kv.contexts, torch.int32)
    arguments.check_rows("kv.tables", kv.tables)
    arguments.check_contiguous("kv.contexts", kv.contexts)
    tensors = {"kv.keys": kv.keys, "kv.values": kv.values, "kv.tables": kv.tables, "kv.contexts": kv.contexts}
    arguments.check_device(query, **tensors)


def attend_reference(query: torch.Tensor, kv: PagedKV, rule: AttentionRule, sequence: int) -> torch.Tensor:
    """The last rows of one sequence: query [rows, q_heads, head_dim], the row of the newest token last → the same shape
    and dtype. Sums are in float32.
    """
    rows, q_heads, head_dim = query.shape
    context, (block_size, kv_heads) = int(kv.contexts[sequence]), kv.keys.shape[1:3]
    first = 0 if rule.window is None else max(0, context - rows + 1 - rule.window) // block_size * block_size
    blocks = kv.tables[sequence, first // block_size : -(-context // block_size)].long()
    keys = kv.keys[blocks].reshape(-1, kv_heads, head_dim)[: context - first].float()
    values = kv.values[blocks].reshape(-1, kv_heads, head_dim)[: context - first].float()
    if kv.key_scales is not None and kv.value_scales is not None:
        keys, values = keys * kv.key_scales[:, None], values * kv.value_scales[:, None]
    grouped = query.float().reshape(rows, kv_heads, q_heads // kv_heads, head_dim)
    scores = torch.einsum("rhgd,nhd->hgrn", grouped, keys) * rule.scale_for(head_dim)
    if rule.softcap is not None:
        scores = rule.softcap * (scores / rule.softcap).tanh()
    at = torch.arange(context - rows, context)[:, None]
    position = torch.arange(first, context)
    hidden = position > at
    if rule.window is not None:
        hidden |= position <= at - rule.window
    scores = scores.masked_fill(hidden, -torch.inf)
    if rule.sinks is not None:
        sinks = rule.sinks.reshape(kv_heads, -1, 1, 1).expand(-1, -1, rows, 1)
        scores = torch.cat([scores, sinks], dim=-1)
    weights = scores.softmax(-1)[..., : len(position)]
    # A weight of 0 hides a position, whatever is stored there.
    visible = values.masked_fill((hidden.all(0))[:, None, None], 0.0)
    return torch.einsum("hgrn,nhd->rhgd", weights, visible).reshape(rows, q_heads, head_dim).to(query.dtype)
