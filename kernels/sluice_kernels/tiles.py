"""Functions of tiles that several Triton kernels share."""

import triton
import triton.language as tl


@triton.jit
def sigmoid(x):  # type: ignore[no-untyped-def]
    """1 / (1 + exp(-x)) without overflow."""
    shrunk = tl.exp(-tl.abs(x))
    return tl.where(x >= 0.0, 1.0, shrunk) / (1.0 + shrunk)


@triton.jit
def tanh(x):  # type: ignore[no-untyped-def]
    """Without overflow; the error is absolute, 1e-7."""
    shrunk = tl.exp(-2.0 * tl.abs(x))
    size = (1.0 - shrunk) / (1.0 + shrunk)
    return tl.where(x >= 0.0, size, -size)


@triton.jit
def count_nan(x, axis: tl.constexpr):  # type: ignore[no-untyped-def]
    """How many elements along the axis are NaN."""
    return tl.sum((x != x).to(tl.int32), axis)  # noqa: PLR0124 - NaN differs from itself


@triton.jit
def in_fp8_range(x):  # type: ignore[no-untyped-def]
    """±448 for what lies beyond; NaN stays."""
    return tl.clamp(x, -448.0, 448.0, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def fp8_scale(largest, bad):  # type: ignore[no-untyped-def]
    """The scale of a row by its largest absolute value. `bad`: how many of its values are NaN, which a maximum hides."""
    return tl.where(bad > 0, float("nan"), tl.maximum(largest / 448.0, 1e-12))


@triton.jit
def block_of(table, position, valid, block_size: tl.constexpr):  # type: ignore[no-untyped-def]
    """The cache block of each position by its sequence's row of the block table, 64 bits wide."""
    return tl.load(table + position // block_size, mask=valid, other=0).to(tl.int64)


@triton.jit
def wide_fp8(x):  # type: ignore[no-untyped-def]
    """e4m3 → float16, exact, four elements at a time: compiled only, from sm_89 on.

    Triton moves a plain cast behind the exchange of elements through shared memory, which then reads single bytes.
    """
    return tl.inline_asm_elementwise(
        """{
        .reg .b16 low, high;
        mov.b32 {low, high}, $2;
        cvt.rn.f16x2.e4m3x2 $0, low;
        cvt.rn.f16x2.e4m3x2 $1, high;
        }""",
        "=r,=r,r",
        [x.to(tl.uint8, bitcast=True)],
        dtype=tl.float16,
        is_pure=False,  # pure code would be moved too
        pack=4,
    )
