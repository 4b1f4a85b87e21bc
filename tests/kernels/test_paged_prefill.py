"""Paged prefill attention on a CPU: the reference against torch's own attention, and against decode."""

import pytest
import torch

from sluice_kernels.paged_decode import paged_decode
from sluice_kernels.paged_prefill import AttentionRule, PagedKV, paged_prefill


def inputs(lens: list[int], rows: int) -> tuple[torch.Tensor, PagedKV]:
    generator = torch.Generator().manual_seed(1)
    query = torch.randn(rows, 4, 16, generator=generator)
    keys, values = (torch.randn(24, 16, 2, 16, generator=generator) for _ in range(2))
    tables = torch.randperm(24, generator=generator)[: len(lens) * 6].reshape(len(lens), 6).to(torch.int32)
    return query, PagedKV(keys, values, tables, torch.tensor(lens, dtype=torch.int32))


@pytest.mark.parametrize("window", [None, 1, 10])
def test_the_reference_equals_attention_of_torch(window: int | None) -> None:
    chunk, context = 13, 40
    query, kv = inputs([context], chunk)
    starts = torch.tensor([0, chunk], dtype=torch.int32)
    blocks = kv.tables[0, :3].long()
    keys, values = (cache[blocks].flatten(0, 1)[:context].transpose(0, 1) for cache in (kv.keys, kv.values))
    at, position = torch.arange(context - chunk, context)[:, None], torch.arange(context)
    mask = (position <= at) & (position > at - (window or context))
    expected = torch.nn.functional.scaled_dot_product_attention(
        query.transpose(0, 1), keys, values, attn_mask=mask, enable_gqa=True
    ).transpose(0, 1)
    torch.testing.assert_close(paged_prefill(query, starts, kv, AttentionRule(window=window)), expected)


def test_a_chunk_of_one_token_is_decode() -> None:
    query, kv = inputs([20, 5], 2)
    rule = AttentionRule(softcap=3.0, sinks=torch.randn(4, generator=torch.Generator().manual_seed(2)))
    starts = torch.tensor([0, 1, 2], dtype=torch.int32)
    torch.testing.assert_close(paged_prefill(query, starts, kv, rule), paged_decode(query, kv, rule))
