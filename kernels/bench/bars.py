"""The bars, which compare results of one run and need a GPU."""

from collections.abc import Iterator, Sequence
from typing import Final

from bench.report import Result

MULTIPLIED_FASTER: Final = 1.5  # w4a16 against torch's bfloat16 product, of at most 32 rows
SERVED_FASTER: Final = 5.0  # the engine against transformers' continuous batching
# The least part of the floor, by what is measured. A decode step's is that of its batch size.
FLOOR: Final = {
    "paged_decode": 0.85, "kv_write with norm": 0.85, "rms_norm with residual": 0.9, "silu_mul": 0.9, "prefill": 0.75,
}  # fmt: skip
LARGE_BATCH: Final = 128  # sequences
LARGE_STEP: Final = 0.8
SMALL_STEP: Final = 0.7
# The result, the one that it is compared with, and how many times as fast it is at least.
FASTER: Final = (
    ("w4a16", "torch's product, bf16", MULTIPLIED_FASTER),
    ("paged_decode, fp8", "paged_decode", 1.6),
    ("paged_prefill", "torch's attention, contiguous", 1.0),
    ("paged_decode", "FlashInfer's decode", 1.0),
    ("paged_prefill", "FlashInfer's prefill", 0.9),
    ("engine, all at once", "transformers, all at once", SERVED_FASTER),
    ("block_copy to the host", "torch's copy to the host", 0.85),
    ("block_copy from the host", "torch's copy from the host", 0.85),
)
# The result, and the part of a decode step of as many sequences that it takes at most.
SHARES: Final = (("sample", 0.03), ("idle between decode steps", 0.03))
OPTIONAL: Final = ("FlashInfer",)  # peers that need not be installed


def misses(results: Sequence[Result]) -> list[str]:
    """A sentence for every bar that is missed. Raises ValueError if a result lacks the one it is compared with."""
    return [*_slow(results), *_slower(results), *_long(results)]


def _slow(results: Sequence[Result]) -> Iterator[str]:
    for one in results:
        least = FLOOR.get(one.what, 0.0)
        if one.what == "decode step":
            least = LARGE_STEP if _rows(one) >= LARGE_BATCH else SMALL_STEP
        if one.fraction < least:
            yield f"{one.what}, {one.shape}: {one.fraction:.1%} of the floor, at least {least:.0%}"


def _slower(results: Sequence[Result]) -> Iterator[str]:
    seconds = {(one.what, one.shape): one.seconds for one in results}
    for what, peer, least in FASTER:
        for one in results:
            if one.what != what or ((peer, one.shape) not in seconds and peer.startswith(OPTIONAL)):
                continue
            if (peer, one.shape) not in seconds:
                raise ValueError(f"results: expected {peer} of {one.shape}, got none")
            ratio = seconds[peer, one.shape] / one.seconds
            if ratio < least:
                yield f"{what}, {one.shape}: {ratio:.2f} × {peer}, at least {least:g}"


def _long(results: Sequence[Result]) -> Iterator[str]:
    steps = {_rows(one): one.seconds for one in results if one.what == "decode step"}
    for what, most in SHARES:
        for one in results:
            if one.what == what and _rows(one) in steps and one.seconds > most * steps[_rows(one)]:
                yield f"{what}, {one.shape}: {one.seconds / steps[_rows(one)]:.1%} of a decode step, at most {most:.0%}"


def _rows(one: Result) -> int:
    """The rows or sequences that a shape begins with."""
    return int(one.shape.split()[0])
