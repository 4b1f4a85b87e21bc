"""Paged decode attention: the contract of the public function, and the kernel against its reference.

Triton looks at TRITON_INTERPRET while it is imported, and other tests of this run import it without (transformers
does). So the kernel's properties run in a process of their own: interpreted here, compiled where a GPU is.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sluice_kernels.paged_decode import paged_decode
from sluice_kernels.paged_decode.reference import paged_decode_reference

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(600)
def test_the_kernel_has_the_properties_of_its_reference() -> None:
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    if not torch.cuda.is_available():
        environment["TRITON_INTERPRET"] = "1"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/kernels/properties_paged_decode.py"],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=580, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def dense(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, tables: torch.Tensor, lens: torch.Tensor
) -> torch.Tensor:
    """torch's own attention on keys and values laid out contiguously, one sequence at a time."""
    rows = []
    for row, context in enumerate(lens.tolist()):
        blocks = tables[row, : -(-context // keys.shape[1])].long()
        k, v = (cache[blocks].flatten(0, 1)[:context].transpose(0, 1)[None] for cache in (keys, values))
        q = query[row][None, :, None]
        rows.append(torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)[0, :, 0])
    return torch.stack(rows)


def inputs(lens: list[int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    query = torch.randn(len(lens), 8, 32, generator=generator)
    keys, values = (torch.randn(24, 16, 2, 32, generator=generator) for _ in range(2))
    tables = torch.randperm(24, generator=generator)[: len(lens) * 6].reshape(len(lens), 6).to(torch.int32)
    return query, keys, values, tables, torch.tensor(lens, dtype=torch.int32)


def test_the_reference_equals_attention_of_torch() -> None:
    query, keys, values, tables, lens = inputs([1, 16, 37, 96])
    out = paged_decode_reference(query, keys, values, tables, lens, 32**-0.5)
    torch.testing.assert_close(out, dense(query, keys, values, tables, lens))


def test_the_scale_defaults_to_the_root_of_the_head_dim() -> None:
    query, keys, values, tables, lens = inputs([20, 5])
    torch.testing.assert_close(
        paged_decode(query, keys, values, tables, lens), dense(query, keys, values, tables, lens)
    )


def test_a_padding_slot_gets_zeros_and_its_table_is_never_read() -> None:
    query, keys, values, tables, lens = inputs([20, 0])
    tables[1] = 2**31 - 1
    out = paged_decode(query, keys, values, tables, lens)
    assert bool((out[1] == 0).all())
    assert bool((out[0] != 0).all())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda q, k, v, t, n: (q[0], k, v, t, n), "paged_decode takes query"),
        (lambda q, k, v, t, n: (q, k, v[:, :8], t, n), "must have one shape"),
        (lambda q, k, v, t, n: (q[:, :7], k, v, t, n), "multiple of kv_heads"),
        (lambda q, k, v, t, n: (q, k, v, t[:1], n), "one row for each"),
        (lambda q, k, v, t, n: (q.half(), k, v, t, n), "dtypes differ"),
        (lambda q, k, v, t, n: (q.transpose(1, 2).contiguous().transpose(1, 2), k, v, t, n), "contiguous"),
    ],
)
def test_inputs_that_do_not_match_are_rejected_with_a_sentence(change, sentence) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=sentence):
        paged_decode(*change(*inputs([20, 5])))
