"""Correctness cases of `block_copy`. Blocks that no pair writes must stay as they are."""

from dataclasses import dataclass
from typing import Final

import torch
from bench.cases.memory import Mismatch, guarded

from sluice_kernels.block_copy.reference import block_copy_reference
from sluice_kernels.block_copy.triton import block_copy_triton


@dataclass(frozen=True)
class Case:
    """One call. `between`: within one pool, to or from a second one, which is pinned where the device is a GPU."""

    pairs: tuple[tuple[int, int], ...]
    block: tuple[int, ...] = (16, 2, 8)
    blocks: int = 8
    dtype: torch.dtype = torch.bfloat16
    between: str = "pool"


NAMED: Final = {
    "no pairs": Case(()),
    "one pair": Case(((1, 5),)),
    "a block onto itself": Case(((3, 3),)),
    "a chain": Case(((1, 2), (2, 3), (3, 4))),
    "a cycle": Case(((1, 2), (2, 1), (4, 5))),
    "one source, many targets": Case(((0, 5), (0, 6), (0, 7))),
    "to the host": Case(((1, 2), (2, 1)), between="to host"),
    "from the host": Case(((1, 2), (2, 1)), between="from host"),
    "a block of several programs": Case(((1, 2),), block=(16, 8, 65)),
    "a block of odd size": Case(((1, 2), (2, 3)), block=(3, 5), dtype=torch.uint8),
    "fp8": Case(((1, 2), (2, 0)), block=(16, 3), dtype=torch.float8_e4m3fn),
}
LARGE: Final = {
    "more than 2³¹ elements": Case(((1, 16399), (16399, 7)), block=(2, 65537), blocks=16400, dtype=torch.uint8),
    "a layer's blocks": Case(tuple((i, i + 1) for i in range(0, 256, 2)), block=(16, 8, 128), blocks=300),
    "blocks to the host": Case(tuple((i, i) for i in range(256)), (16, 8, 128), 300, between="to host"),
}


def compare(case: Case, device: str) -> float:
    """Runs the kernel and the reference. Returns 0: bytes are equal. Raises Mismatch."""
    shape = (case.blocks, *case.block)
    pairs = torch.tensor(case.pairs, dtype=torch.int64).reshape(-1, 2)
    first, second = _filled(shape, case.dtype, 1, device, pinned=case.between == "from host"), None
    if case.between != "pool":
        second = _filled(shape, case.dtype, 2, device, pinned=case.between == "to host")
    source, target = first, first if second is None else second
    expected_source = source.clone()
    expected = expected_source if second is None else target.clone()
    block_copy_reference(expected_source, expected, pairs)
    with guarded(device):
        block_copy_triton(source, target, pairs)
    if device == "cuda":
        torch.cuda.synchronize()
    if not torch.equal(target.view(torch.uint8), expected.view(torch.uint8)):
        raise Mismatch(f"{case}: the target differs from the reference")
    return 0.0


def _filled(shape: tuple[int, ...], dtype: torch.dtype, seed: int, device: str, *, pinned: bool) -> torch.Tensor:
    """Random bytes, which no conversion may change; on the host where pinned."""
    on = "cpu" if pinned else device
    generator = torch.Generator(device=on).manual_seed(seed)
    size = shape[-1] * dtype.itemsize
    filled = torch.randint(0, 256, (*shape[:-1], size), dtype=torch.uint8, generator=generator, device=on).view(dtype)
    return filled.pin_memory() if pinned and device == "cuda" else filled
