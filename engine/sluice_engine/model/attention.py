"""Attention over the paged KV cache, in the place of transformers' own.

transformers calls a registered function in every layer and hands through whatever keyword arguments `forward` got;
ours get the step's `Batch` and the `KVCache`. The name has no mask function registered, so transformers builds no
mask and causality is ours. No loop over sequences: rows come grouped (`batch.py`), each group is one gather of its
blocks and one batched attention.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from sluice_engine.model.batch import Batch, RowGroup
from sluice_engine.model.errors import ModelInvalid
from sluice_engine.model.kv import KVCache
from sluice_engine.model.native import NativeAttention
from sluice_engine.model.whole import LengthGroup, WholeBatch
from sluice_kernels.paged_decode import paged_decode

# Keyword arguments that change nothing here: positions are in the batch already, the rest is about training or caches.
# So do flags (`output_router_logits`), which ask for outputs.
_HARMLESS = {"dropout", "is_causal", "position_ids", "use_cache", "past_key_values", "output_attentions"}
NAME = "sluice"  # a name that begins with "flash" would make transformers look for flash attention


@dataclass(frozen=True, slots=True)
class Rule:
    """How a layer attends: what transformers hands to each call beside the tensors."""

    scale: float
    window: int | None = None  # a query sees this many positions, its own included; None sees all before it
    softcap: float | None = None  # scores become softcap · tanh(score / softcap)


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """One call of the attention function, as seen by a pass that computes nothing."""

    module: torch.nn.Module
    layer: int | None
    causal: bool
    kv_heads: int
    key_dim: int
    value_dim: int
    rule: Rule
    extras: frozenset[str]  # what else it was handed and this engine does not know

    @classmethod
    def of(
        cls,
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        rule: Rule,
        others: dict[str, object],
    ) -> "AttentionCall":
        """From the call's own arguments."""
        extras = {
            name for name, given in others.items() if name not in _HARMLESS and not isinstance(given, bool | None)
        }
        if attention_mask is not None:
            extras.add("attention_mask")
        return cls(
            module=module,
            layer=getattr(module, "layer_idx", None),
            causal=_is_causal(module, others),
            kv_heads=key.shape[1],
            key_dim=key.shape[3],
            value_dim=value.shape[3],
            rule=rule,
            extras=frozenset(extras),
        )


def _is_causal(module: torch.nn.Module, others: dict[str, object]) -> bool:
    given = others.get("is_causal")
    return bool(getattr(module, "is_causal", True) if given is None else given)


# (query [R, Hq, D], key_cache, value_cache [blocks, block_size, Hkv, D], group, rule) → [R, Hq, D]
DecodeAttention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, RowGroup, Rule], torch.Tensor]


def gathered_decode(
    query: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, group: RowGroup, rule: Rule
) -> torch.Tensor:
    """One token per row: query [R, Hq, D] → [R, Hq, D], over gathered blocks. The query heads of a KV head become
    its query rows, so that keys and values are not repeated for grouped-query attention."""
    rows, heads, dim = query.shape
    kv_heads = key_cache.shape[2]
    keys = _gather(key_cache, group.block_tables)
    values = _gather(value_cache, group.block_tables)
    mask = group.mask(rule.window, key_cache.shape[1], query.dtype)
    out = _attend(query.reshape(rows, kv_heads, heads // kv_heads, dim), keys, values, mask, rule)
    return out.reshape(rows, heads, dim)


def kernel_decode(
    query: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, group: RowGroup, rule: Rule
) -> torch.Tensor:
    """One token per row by the paged kernel: no gather. It has neither windows nor soft caps; those are gathered."""
    if rule.window is not None or rule.softcap is not None:
        return gathered_decode(query, key_cache, value_cache, group, rule)
    tables, lengths = group.block_tables.to(torch.int32), group.context_lens.to(torch.int32)
    return paged_decode(query, key_cache, value_cache, tables, lengths, rule.scale)


def gathered_chunks(
    query: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, group: RowGroup, rule: Rule
) -> torch.Tensor:
    """Prompt chunks: query [tokens, Hq, D] → [tokens, Hq, D], padded to [R, Q] inside."""
    _, heads, dim = query.shape
    if group.padded_index is None:
        padded = query
    else:
        padded = query.new_zeros(group.rows * group.longest, heads, dim)
        padded.index_copy_(0, group.padded_index, query)
    out = _attend(
        padded.view(group.rows, group.longest, heads, dim).transpose(1, 2),
        _gather(key_cache, group.block_tables),
        _gather(value_cache, group.block_tables),
        group.mask(rule.window, key_cache.shape[1], query.dtype),
        rule,
    )
    out = out.transpose(1, 2).reshape(group.rows * group.longest, heads, dim)
    return out if group.padded_index is None else out.index_select(0, group.padded_index)


def whole_texts(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, batch: WholeBatch, rule: Rule, *, causal: bool
) -> torch.Tensor:
    """Texts without a cache: query [1, Hq, T, D], key and value [1, Hkv, T, D] → [1, T, Hq, D]."""
    parts = []
    for group in batch.groups:
        queries, keys, values = (_spread(each, group) for each in (query, key, value))
        out = _attend(queries, keys, values, group.mask(causal, rule.window, query.dtype), rule)
        rows = out.transpose(1, 2).reshape(group.rows * group.longest, query.shape[1], value.shape[3])
        parts.append(rows if group.padded_index is None else rows.index_select(0, group.padded_index))
    return _joined(parts)


def _spread(tensor: torch.Tensor, group: LengthGroup) -> torch.Tensor:
    """A group's tokens of [1, H, T, D] as padded rows [R, H, Q, D]."""
    _, heads, _, dim = tensor.shape
    padded = tensor.transpose(1, 2)[0, group.first : group.first + group.tokens]
    if group.padded_index is not None:
        padded = padded.new_zeros(group.rows * group.longest, heads, dim).index_copy_(0, group.padded_index, padded)
    return padded.view(group.rows, group.longest, heads, dim).transpose(1, 2)


def _attend(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None, rule: Rule
) -> torch.Tensor:
    """query [R, H, Q, D], keys and values [R, Hkv, N, D], mask [R, 1, Q, N] (1 where alike) → [R, H, Q, D]. torch's
    fused attention has no soft cap: with one, the same sum is written out, in float32 from end to end."""
    if rule.softcap is None:
        grouped = query.shape[1] != keys.shape[1]
        return scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=rule.scale, enable_gqa=grouped)
    rows, heads, count, dim = query.shape
    kv_heads = keys.shape[1]
    grouped_query = query.float().reshape(rows, kv_heads, heads // kv_heads, count, dim)
    scores = (grouped_query @ keys.float().transpose(-1, -2).unsqueeze(2)).mul_(rule.scale / rule.softcap)
    scores = scores.tanh_().mul_(rule.softcap)
    weights = torch.softmax(scores if mask is None else scores.add_(mask.unsqueeze(2)), dim=-1)
    return (weights @ values.float().unsqueeze(2)).reshape(rows, heads, count, dim).to(query.dtype)


def _gather(cache: torch.Tensor, block_tables: torch.Tensor) -> torch.Tensor:
    """Whole blocks of each row, [R, Hkv, N·block_size, D] (a view of [R, N·block_size, Hkv, D])."""
    blocks, size, heads, dim = cache.shape
    rows, count = block_tables.shape
    picked = cache.view(blocks, size * heads * dim).index_select(0, block_tables.view(-1))
    return picked.view(rows, count * size, heads, dim).transpose(1, 2)


class PagedAttention:
    """The function that transformers calls. `decode` and `native` are the seams: another backend puts its kernel
    there; `native` does whole steps, the write included, where it can."""

    def __init__(self, decode: DecodeAttention = gathered_decode, native: NativeAttention | None = None) -> None:
        self.decode = decode
        self.native = native

    def __call__(
        self,
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        scaling: float | None = None,
        sliding_window: int | None = None,
        softcap: float | None = None,
        sluice_batch: Batch | None = None,
        sluice_cache: KVCache | None = None,
        sluice_whole: WholeBatch | None = None,
        sluice_calls: list[AttentionCall] | None = None,
        **others: object,
    ) -> tuple[torch.Tensor, None]:
        """query [1, Hq, T, D], key and value [1, Hkv, T, D] → ([1, T, Hq, D], None). Writes KV, then attends;
        with `sluice_whole`, attends inside each text and keeps nothing.

        With `sluice_calls` nothing is computed: the call is noted there, for `structure.py` to judge.
        Raises ModelInvalid where forward's keyword arguments do not arrive.
        """
        scale = scaling if scaling is not None else query.shape[-1] ** -0.5
        rule = Rule(scale, sliding_window, softcap)
        if sluice_calls is not None:
            sluice_calls.append(AttentionCall.of(module, query, key, value, attention_mask, rule, others))
            return query.new_zeros(1, query.shape[2], query.shape[1], value.shape[3]), None
        if sluice_whole is not None:
            return whole_texts(query, key, value, sluice_whole, rule, causal=_is_causal(module, others)), None
        if sluice_batch is None or sluice_cache is None:
            raise ModelInvalid("This model does not hand forward's keyword arguments to its attention layers.")
        keys, values = sluice_cache.layers[module.layer_idx]
        batch = sluice_batch.of(sluice_cache.group_of[module.layer_idx])
        if self.native is not None and self.native.can_attend(query, key, keys):
            return self.native.attend(query, key, value, (keys, values), batch, scale, rule.window, softcap), None
        _, kv_heads, _, dim = key.shape
        keys.view(-1, kv_heads, dim).index_copy_(0, batch.slot_mapping, key.transpose(1, 2)[0])
        values.view(-1, kv_heads, dim).index_copy_(0, batch.slot_mapping, value.transpose(1, 2)[0])
        flat = query.transpose(1, 2)[0]
        parts = [
            (self.decode if group.longest == 1 else gathered_chunks)(
                flat[group.first : group.first + group.tokens], keys, values, group, rule
            )
            for group in batch.groups
        ]
        return _joined(parts), None


def _joined(parts: list[torch.Tensor]) -> torch.Tensor:
    """The groups' rows [tokens, Hq, D] as one flat batch [1, T, Hq, D]."""
    return (parts[0] if len(parts) == 1 else torch.cat(parts)).unsqueeze(0)


def register(native: NativeAttention | None = None, *, paged_kernel: bool = False) -> None:
    """Make `attn_implementation="sluice"` known to transformers, with or without the processor's kernel (`native`) or
    the accelerator's (`paged_kernel`). The last registration counts, for every model of this process."""
    decode = kernel_decode if paged_kernel else gathered_decode
    AttentionInterface.register(NAME, PagedAttention(decode, native))
