"""Attention over the paged KV cache, registered as an attention implementation of transformers.

transformers calls the registered function in every layer and passes through the keyword arguments of `forward`: the
step's `Batch` and the `KVCache`. No mask function is registered under the name, so transformers builds no mask and this
module applies causality. There is no loop over sequences: rows come in groups (`batch.py`), and each group is one
gather of its blocks and one batched attention.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from sluice_engine.errors import ModelInvalid
from sluice_engine.model.batch import Batch, RowGroup
from sluice_engine.model.kv_cache import KVCache
from sluice_engine.model.pooling.packed_batch import LengthGroup, PackedBatch

# Keyword arguments without effect here: the batch has the positions, the rest concerns training or caches.
# Boolean flags that request outputs (`output_router_logits`) are ignored as well.
_HARMLESS = {"dropout", "is_causal", "position_ids", "use_cache", "past_key_values", "output_attentions"}
NAME = "sluice"  # a name that begins with "flash" would make transformers look for flash attention


@dataclass(frozen=True, slots=True)
class Rule:
    """The attention parameters of a layer, which transformers passes to each call beside the tensors."""

    scale: float
    window: int | None = None  # positions that a query attends to, its own included; None: all preceding ones
    softcap: float | None = None  # scores become softcap · tanh(score / softcap)


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """One recorded call of the attention function, from a pass that computes no attention."""

    module: torch.nn.Module
    layer: int | None
    causal: bool
    kv_heads: int
    key_dim: int
    value_dim: int
    rule: Rule
    extras: frozenset[str]  # further arguments that this engine does not support

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
        """Build the record from the call's arguments."""
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


# (query [tokens, Hq, D], key_cache, value_cache [blocks, block_size, Hkv, D], group, rule) → [tokens, Hq, D]
GroupAttention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, RowGroup, Rule], torch.Tensor]


def gathered_decode(
    query: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, group: RowGroup, rule: Rule
) -> torch.Tensor:
    """Decode over gathered blocks, one token per row: query [R, Hq, D] → [R, Hq, D]. The query heads of a KV head
    become its query rows, so grouped-query attention needs no repeated keys and values.
    """
    rows, heads, dim = query.shape
    kv_heads = key_cache.shape[2]
    keys = _gather(key_cache, group.block_tables)
    values = _gather(value_cache, group.block_tables)
    mask = group.mask(rule.window, key_cache.shape[1], query.dtype)
    out = _attend(query.reshape(rows, kv_heads, heads // kv_heads, dim), keys, values, mask, rule)
    return out.reshape(rows, heads, dim)


def gathered_chunks(
    query: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, group: RowGroup, rule: Rule
) -> torch.Tensor:
    """Prompt chunks over gathered blocks: query [tokens, Hq, D] → [tokens, Hq, D], padded internally to [R, Q]."""
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


def attend_packed(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, batch: PackedBatch, rule: Rule, *, causal: bool
) -> torch.Tensor:
    """Attention within each text, without a cache: query [1, Hq, T, D], key and value [1, Hkv, T, D] → [1, T,
    Hq, D].
    """
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
    """query [R, H, Q, D], keys and values [R, Hkv, N, D], mask [R, 1, Q, N] (R may be 1 if all rows share it) → [R, H,
    Q, D].

    torch's fused attention serves the CPU without a soft cap: on CUDA it makes a cuDNN plan for each new shape of a mask,
    about 0.4 s.
    """
    if rule.softcap is not None or query.device.type != "cpu":
        return _attend_explicitly(query, keys, values, mask, rule)
    grouped = query.shape[1] != keys.shape[1]
    return scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=rule.scale, enable_gqa=grouped)


def _attend_explicitly(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None, rule: Rule
) -> torch.Tensor:
    """As `_attend`, in float32."""
    rows, heads, count, dim = query.shape
    kv_heads = keys.shape[1]
    grouped_query = query.float().reshape(rows, kv_heads, heads // kv_heads, count, dim)
    scores = (grouped_query @ keys.float().transpose(-1, -2).unsqueeze(2)).mul_(rule.scale)
    if rule.softcap is not None:
        scores = scores.div_(rule.softcap).tanh_().mul_(rule.softcap)
    weights = torch.softmax(scores if mask is None else scores.add_(mask.unsqueeze(2)), dim=-1)
    return (weights @ values.float().unsqueeze(2)).flatten(1, 2).to(query.dtype)


def _gather(cache: torch.Tensor, block_tables: torch.Tensor) -> torch.Tensor:
    """The blocks of each row as [R, Hkv, N·block_size, D] (a view of [R, N·block_size, Hkv, D])."""
    blocks, size, heads, dim = cache.shape
    rows, count = block_tables.shape
    picked = cache.view(blocks, size * heads * dim).index_select(0, block_tables.view(-1))
    return picked.view(rows, count * size, heads, dim).transpose(1, 2)


class TextAttention(Protocol):
    """The attention of whole texts. See `attend_packed`."""

    def __call__(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        batch: PackedBatch,
        rule: Rule,
        *,
        causal: bool,
    ) -> torch.Tensor:
        """query [1, Hq, T, D], key and value [1, Hkv, T, D] → [1, T, Hq, D]."""


class StepAttention(Protocol):
    """A kernel for the attention of all rows of a step, KV write included."""

    def can_attend(self, query: torch.Tensor, key: torch.Tensor, key_cache: torch.Tensor) -> bool:
        """True if the kernel supports these sizes and dtypes."""

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        caches: tuple[torch.Tensor, torch.Tensor],
        batch: Batch,
        scale: float,
        window: int | None,
        softcap: float | None,
    ) -> torch.Tensor:
        """query [1, Hq, T, D], key and value [1, Hkv, T, D], caches [blocks, block_size, Hkv, D] → [1, T, Hq, D]."""


class PagedAttention:
    """The attention function that transformers calls. A backend replaces `decode`, `chunks` and `texts`, or sets `native`,
    which computes the attention of all rows of a step including the KV write, where it supports the shapes.
    """

    def __init__(
        self,
        decode: GroupAttention = gathered_decode,
        native: StepAttention | None = None,
        chunks: GroupAttention = gathered_chunks,
        texts: TextAttention = attend_packed,
    ) -> None:
        self.decode, self.chunks, self.texts = decode, chunks, texts
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
        sluice_packed: PackedBatch | None = None,
        sluice_calls: list[AttentionCall] | None = None,
        **others: object,
    ) -> tuple[torch.Tensor, None]:
        """query [1, Hq, T, D], key and value [1, Hkv, T, D] → ([1, T, Hq, D], None). Writes KV, then attends. With
        `sluice_packed` it attends within each text and caches nothing.

        With `sluice_calls` it computes nothing and records the call for `introspection.py`. Raises ModelInvalid if the
        model does not pass forward's keyword arguments to its attention layers.
        """
        scale = scaling if scaling is not None else query.shape[-1] ** -0.5
        rule = Rule(scale, sliding_window, softcap)
        if sluice_calls is not None:
            sluice_calls.append(AttentionCall.of(module, query, key, value, attention_mask, rule, others))
            return query.new_zeros(1, query.shape[2], query.shape[1], value.shape[3]), None
        if sluice_packed is not None:
            return self.texts(query, key, value, sluice_packed, rule, causal=_is_causal(module, others)), None
        if sluice_batch is None or sluice_cache is None:
            raise ModelInvalid("This model does not pass forward's keyword arguments to its attention layers.")
        keys, values = sluice_cache.layers[module.layer_idx]
        batch = sluice_batch.of(sluice_cache.group_of[module.layer_idx])
        if self.native is not None and self.native.can_attend(query, key, keys):
            return self.native.attend(query, key, value, (keys, values), batch, scale, rule.window, softcap), None
        _, kv_heads, _, dim = key.shape
        keys.view(-1, kv_heads, dim).index_copy_(0, batch.slot_mapping, key.transpose(1, 2)[0])
        values.view(-1, kv_heads, dim).index_copy_(0, batch.slot_mapping, value.transpose(1, 2)[0])
        flat = query.transpose(1, 2)[0]
        parts = [
            (self.decode if group.longest == 1 else self.chunks)(
                flat[group.first : group.first + group.tokens], keys, values, group, rule
            )
            for group in batch.groups
        ]
        return _joined(parts), None


def _joined(parts: list[torch.Tensor]) -> torch.Tensor:
    """The groups' rows [tokens, Hq, D] as one flat batch [1, T, Hq, D]."""
    return (parts[0] if len(parts) == 1 else torch.cat(parts)).unsqueeze(0)


_PLAIN = PagedAttention()
_BACKEND = "sluice_attention"  # module attribute that holds a backend other than the default


def _dispatch(module: torch.nn.Module, *tensors: torch.Tensor, **others: Any) -> tuple[torch.Tensor, None]:
    """The registered function. It is shared by all models of the process, and each module selects its own backend."""
    backend: PagedAttention = getattr(module, _BACKEND, _PLAIN)
    return backend(module, *tensors, **others)


def register() -> None:
    """Register `attn_implementation="sluice"` with transformers. Models with another implementation are unaffected."""
    AttentionInterface.register(NAME, _dispatch)


def set_attention(modules: Iterable[torch.nn.Module], attention: PagedAttention) -> None:
    """Set how these attention modules attend."""
    for module in modules:
        setattr(module, _BACKEND, attention)
