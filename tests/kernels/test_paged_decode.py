"""Paged decode attention on a CPU: the reference against torch's own attention."""

import torch

from sluice_kernels.paged_decode import AttentionRule, PagedKV, paged_decode


def dense(query: torch.Tensor, kv: PagedKV) -> torch.Tensor:
    """torch's own attention on keys and values laid out contiguously, one sequence at a time."""
    rows = []
    for row, context in enumerate(kv.contexts.tolist()):
        blocks = kv.tables[row, : -(-context // kv.keys.shape[1])].long()
        k, v = (cache[blocks].flatten(0, 1)[:context].transpose(0, 1)[None] for cache in (kv.keys, kv.values))
        q = query[row][None, :, None]
        rows.append(torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)[0, :, 0])
    return torch.stack(rows)


def inputs(lens: list[int]) -> tuple[torch.Tensor, PagedKV]:
    generator = torch.Generator().manual_seed(1)
    query = torch.randn(len(lens), 8, 32, generator=generator)
    keys, values = (torch.randn(24, 16, 2, 32, generator=generator) for _ in range(2))
    tables = torch.randperm(24, generator=generator)[: len(lens) * 6].reshape(len(lens), 6).to(torch.int32)
    return query, PagedKV(keys, values, tables, torch.tensor(lens, dtype=torch.int32))


def test_the_reference_equals_attention_of_torch() -> None:
    query, kv = inputs([1, 16, 37, 96])
    torch.testing.assert_close(paged_decode(query, kv, AttentionRule(32**-0.5)), dense(query, kv))


def test_the_scale_defaults_to_the_root_of_the_head_dim() -> None:
    query, kv = inputs([20, 5])
    torch.testing.assert_close(paged_decode(query, kv, AttentionRule()), dense(query, kv))


def test_a_padding_slot_gets_zeros_and_its_table_is_never_read() -> None:
    query, kv = inputs([20, 0])
    kv.tables[1] = 2**31 - 1
    out = paged_decode(query, kv, AttentionRule())
    assert bool((out[1] == 0).all())
    assert bool((out[0] != 0).all())
