"""Correctness cases of `paged_decode` against its reference.

The tests run them in Triton's interpreter; `make gpu` runs them compiled, without pytest. All data that a kernel must
not read is poisoned: NaN in unmapped blocks and behind each context's end, and 2³¹−1 in table entries behind the
context's last block.
"""

from dataclasses import dataclass
from typing import Final

import torch

from sluice_kernels.paged_decode.reference import paged_decode_reference
from sluice_kernels.paged_decode.triton import paged_decode_triton

# Relative to the largest value: rounding of the softmax weights, and of the output to the input's dtype.
TOLERANCE: Final = {torch.float32: 1e-5, torch.float16: 3e-3, torch.bfloat16: 1.6e-2}
FLOAT32_EPSILON: Final = 2.0**-23
POISONED_BLOCK: Final = 2**31 - 1


@dataclass(frozen=True)
class Case:
    """One call. `contexts` is in tokens, one per sequence, 0 for a padding slot."""

    contexts: tuple[int, ...]
    q_heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    block_size: int = 16
    dtype: torch.dtype = torch.float32
    magnitude: float = 1.0  # of queries and keys; large values turn the softmax into a maximum
    value_magnitude: float = 1.0
    spare_blocks: int = 3
    splits: int | None = None
    seed: int = 0


class Mismatch(Exception):
    """The kernel and its reference differ. The message names the case and the error."""


NAMED: Final[dict[str, Case]] = {
    "one token": Case((1,)),
    "one sequence": Case((77,)),
    "empty rows among full ones": Case((0, 33, 0, 1, 64, 0)),
    "only padding": Case((0, 0, 0)),
    "no sequences": Case(()),
    "exact blocks": Case((16, 32, 64, 128)),
    "odd head dim": Case((5, 70), head_dim=40),
    "tiny head dim": Case((5, 70), head_dim=8),
    "head dim 128, group of 8": Case((130, 3), q_heads=16, kv_heads=2, head_dim=128),
    "group of 7": Case((50, 9), q_heads=14, kv_heads=2),
    "no grouping": Case((50, 9), q_heads=3, kv_heads=3),
    "one key-value head, many query heads": Case((50,), q_heads=20, kv_heads=1),
    "odd block size": Case((50, 7, 20), block_size=5),
    "large blocks": Case((50, 130), block_size=128),
    "more splits than tiles": Case((70, 1, 0), splits=16),
    "two splits": Case((300, 129, 64), splits=2),
    "peaked softmax": Case((90, 200), magnitude=30.0, splits=4),
    "huge values": Case((90, 20), value_magnitude=1e4),
    "tiny everything": Case((90, 20), magnitude=1e-4, value_magnitude=1e-4),
    "half precision": Case((100, 0, 31), dtype=torch.float16, splits=2),
    "bfloat16": Case((100, 0, 31), dtype=torch.bfloat16, splits=2),
    "bfloat16, peaked": Case((100, 31), dtype=torch.bfloat16, magnitude=20.0),
}

# Too large for the interpreter; these cases run only compiled.
LARGE: Final[dict[str, Case]] = {
    f"{str(dtype).removeprefix('torch.')}, contexts to {most}, {q}/{kv} heads of {dim}": Case(
        tuple((most * (row * 37 % 64)) // 63 for row in range(64)),
        q_heads=q, kv_heads=kv, head_dim=dim, dtype=dtype, seed=most,
    )
    for dtype in TOLERANCE
    for most, q, kv, dim in ((4096, 32, 8, 128), (1000, 28, 4, 128), (513, 12, 12, 64), (2048, 16, 1, 256))
}  # fmt: skip


def compare(case: Case, device: str) -> float:
    """Runs the kernel and the reference. Returns the largest error relative to the largest value. Raises Mismatch."""
    query, keys, values, tables, contexts = _inputs(case)
    scale = case.head_dim**-0.5
    expected = paged_decode_reference(query, keys, values, tables, contexts, scale)
    inputs = [tensor.to(device) for tensor in (query, keys, values, tables, contexts)]
    got = paged_decode_triton(inputs[0], inputs[1], inputs[2], inputs[3], inputs[4], scale, case.splits).cpu()
    if got.shape != expected.shape or got.dtype != expected.dtype:
        raise Mismatch(f"{case}: {tuple(got.shape)} {got.dtype} instead of {tuple(expected.shape)} {expected.dtype}")
    if got.numel() == 0:
        return 0.0
    largest = max(case.value_magnitude * 4, 1e-30)
    error = float((got.double() - expected.double()).abs().max()) / largest
    # A score is a sum of head_dim products, each rounded; the exponential turns its absolute error into a relative one.
    score_bound = (case.magnitude * 4) ** 2 * case.head_dim**0.5
    allowed = TOLERANCE[case.dtype] + 4 * score_bound * FLOAT32_EPSILON
    if not error <= allowed:
        raise Mismatch(f"{case}: relative error {error:.3g}, allowed {allowed:.3g}")
    empty = got[torch.tensor(case.contexts) == 0]
    if bool((empty != 0).any()):
        raise Mismatch(f"{case}: a padding slot is not zero")
    return error


def _inputs(case: Case) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(case.seed)
    needed = [-(-context // case.block_size) for context in case.contexts]
    num_blocks = sum(needed) + case.spare_blocks
    shape = (num_blocks, case.block_size, case.kv_heads, case.head_dim)

    def normal(size: tuple[int, ...], magnitude: float) -> torch.Tensor:
        # Clamping makes the error bound in `compare` valid.
        return (torch.randn(size, generator=generator).clamp(-4, 4) * magnitude).to(case.dtype)

    query = normal((len(case.contexts), case.q_heads, case.head_dim), case.magnitude)
    keys, values = normal(shape, case.magnitude), normal(shape, case.value_magnitude)
    order = torch.randperm(num_blocks, generator=generator).to(torch.int32)
    tables = torch.full((len(case.contexts), max(needed, default=0) + 2), POISONED_BLOCK, dtype=torch.int32)
    unread = torch.ones(num_blocks, case.block_size, dtype=torch.bool)
    taken = 0
    for row, (context, count) in enumerate(zip(case.contexts, needed, strict=True)):
        blocks = order[taken : taken + count]
        taken += count
        tables[row, :count] = blocks
        for index in range(count):
            unread[int(blocks[index]), : min(case.block_size, context - index * case.block_size)] = False
    keys[unread] = float("nan")
    values[unread] = float("nan")
    return query, keys, values, tables, torch.tensor(case.contexts, dtype=torch.int32)
