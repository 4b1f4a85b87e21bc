"""Which attention a model on the device uses, and attention by torch: gathered pages or whole texts, and its flash attention.

torch's attention is the fallback for shapes that the kernels do not support, and what the kernels are compared with. It
is never masked scaled-dot-product attention, for which cuDNN makes a plan per shape, about 0.4 s each.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.nn.functional import pad

from sluice_engine.backend.cuda.ops import Operation
from sluice_engine.config import AttentionBackend
from sluice_engine.errors import InvalidOption
from sluice_engine.model.attention import Rule, attend_packed
from sluice_engine.model.pooling.packed_batch import PackedBatch
from sluice_kernels import paged_decode, paged_prefill
from sluice_kernels.paged import AttentionRule, PagedKV
from sluice_kernels.paged_decode.reference import paged_decode_reference
from sluice_kernels.paged_prefill.reference import paged_prefill_reference

Flash = Callable[..., Any]  # aten._flash_attention_forward

_ANY_ARCHITECTURE: Final = 80  # only fp8 depends on it, and no cache of the engine has it
_FLASH_DTYPES: Final = (torch.float16, torch.bfloat16)
_FLASH_HEAD_DIM: Final = 256  # at most, in multiples of 8


@dataclass(frozen=True, slots=True)
class Heads:
    """The attention shape of a model. `group`: query heads per key-value head."""

    dim: int
    group: int
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Attention:
    """The chosen attention. `decode(query, kv, rule)` and `prefill(query, starts, kv, rule)` are those of the kernels.
    `fixed_shapes`: a decode step can be captured in a graph.
    """

    name: str
    reason: str
    decode: Operation
    prefill: Operation
    fixed_shapes: bool


def choose_attention(asked: AttentionBackend, heads: Heads) -> Attention:
    """The attention for this option. Raises InvalidOption for kernels that do not support the model."""
    refused = _refusal(heads)
    if asked == "sluice" and refused is not None:
        raise InvalidOption(f"--attention-backend sluice: {refused}. Use --attention-backend auto or torch.")
    if asked == "torch" or refused is not None:
        reason = "--attention-backend asks for it" if asked == "torch" else str(refused)
        return Attention("torch", reason, torch_decode, torch_prefill, fixed_shapes=False)
    reason = (
        f"its kernels support {heads.dim} dimensions, {heads.group} query heads per key-value head and {heads.dtype}"
    )
    return Attention("sluice", reason, paged_decode.paged_decode, paged_prefill.paged_prefill, fixed_shapes=True)


def _refusal(heads: Heads) -> str | None:
    for can_use in (paged_decode.can_use, paged_prefill.can_use):
        if (reason := can_use(heads.dim, heads.group, heads.dtype, heads.dtype, _ANY_ARCHITECTURE)) is not None:
            return reason
    return None


def torch_decode(query: torch.Tensor, kv: PagedKV, rule: AttentionRule) -> torch.Tensor:
    """As `paged_decode`: query [sequences, q_heads, head_dim] → the same shape."""
    if not can_flash(query, rule):
        return paged_decode_reference(query, kv, rule)
    starts = torch.arange(len(query) + 1, dtype=torch.int32, device=query.device)
    return flash_over_pages(query, starts, kv, rule, most=1)


def torch_prefill(query: torch.Tensor, starts: torch.Tensor, kv: PagedKV, rule: AttentionRule) -> torch.Tensor:
    """As `paged_prefill`: query [tokens, q_heads, head_dim], starts [sequences + 1] int32 → query's shape."""
    if not can_flash(query, rule):
        return paged_prefill_reference(query, starts, kv, rule)
    return flash_over_pages(query, starts, kv, rule, most=len(query))


def flash_texts(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, batch: PackedBatch, rule: Rule, *, causal: bool
) -> torch.Tensor:
    """As `model.attention.attend_packed`: query [1, Hq, T, D], key and value [1, Hkv, T, D] → [1, T, Hq, D]."""
    can = can_flash(query.transpose(1, 2)[0], AttentionRule(softcap=rule.softcap)) and key.shape == value.shape
    attend = flash_over_texts if can else attend_packed
    return attend(query, key, value, batch, rule, causal=causal)


def flash_over_texts(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    batch: PackedBatch,
    rule: Rule,
    *,
    causal: bool,
    flash: Flash = torch.ops.aten._flash_attention_forward,
) -> torch.Tensor:
    """The texts lie side by side, so nothing is padded. A window is on both sides of a token unless `causal`."""
    ends = pad(batch.ends, (1, 0)).to(torch.int32)
    longest = max(group.longest for group in batch.groups)
    window = {}
    if rule.window is not None:
        window = {"window_size_left": rule.window - 1, "window_size_right": 0 if causal else rule.window - 1}
    rows = (each.transpose(1, 2)[0] for each in (query, key, value))
    out: torch.Tensor = flash(
        *rows, ends, ends, longest, longest, 0.0, causal, False, scale=rule.scale, **window
    )[0]  # fmt: skip
    return out.unsqueeze(0)


def can_flash(query: torch.Tensor, rule: AttentionRule) -> bool:
    """Whether torch's flash attention computes this. Otherwise the kernels' references do, sequence by sequence."""
    dim = query.shape[2]
    shapes = dim <= _FLASH_HEAD_DIM and dim % 8 == 0 and query.dtype in _FLASH_DTYPES
    return query.is_cuda and shapes and rule.softcap is None and rule.sinks is None


def flash_over_pages(
    query: torch.Tensor,
    starts: torch.Tensor,
    kv: PagedKV,
    rule: AttentionRule,
    *,
    most: int,
    flash: Flash = torch.ops.aten._flash_attention_forward,
) -> torch.Tensor:
    """Gather the pages of all sequences, then attend: each has as many places as its table, of which its context is used.
    `most`: at least the tokens of each sequence.
    """
    sequences, width = kv.tables.shape
    places = width * kv.keys.shape[1]
    pages = kv.tables.reshape(-1)
    keys, values = (each.index_select(0, pages).flatten(0, 1) for each in (kv.keys, kv.values))
    ends = torch.arange(0, (sequences + 1) * places, places, dtype=torch.int32, device=query.device)
    window = {} if rule.window is None else {"window_size_left": rule.window - 1, "window_size_right": 0}
    out: torch.Tensor = flash(
        query, keys, values, starts, ends, most, places, 0.0, True, False,
        scale=rule.scale_for(query.shape[2]), seqused_k=kv.contexts, **window,
    )[0]  # fmt: skip
    return out
