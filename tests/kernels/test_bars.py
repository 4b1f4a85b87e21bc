"""The bars of the kernel benches: a missed one is named, and a GPU keeps them."""

from dataclasses import replace

import pytest
import torch
from bench import bars, ceilings, speed
from bench.report import Result


def result(what: str, shape: str, seconds: float) -> Result:
    return Result(what, shape, seconds, 1, 1, 0.5)


def test_a_missed_ratio_is_named_with_its_shape() -> None:
    results = [
        result("w4a16", "8 × 128 × 256", 1.0),
        result("torch's product, bf16", "8 × 128 × 256", 1.5),
        result("w4a16", "32 × 128 × 256", 1.0),
        result("torch's product, bf16", "32 × 128 × 256", 1.49),
    ]
    assert bars.misses(results) == ["w4a16, 32 × 128 × 256: 1.49 × torch's product, bf16, at least 1.5"]
    with pytest.raises(ValueError, match="expected torch's product, bf16 of 8 × 128 × 256, got none"):
        bars.misses(results[:1])


def step(batch: int, fraction: float) -> Result:
    return Result("decode step", f"{batch} × 1024", 1.0, 1, 1, fraction)


def test_a_decode_step_far_from_its_floor_is_named() -> None:
    assert bars.misses([step(8, 0.7), step(128, 0.8)]) == []
    assert bars.misses([step(8, 0.69), step(128, 0.79)]) == [
        "decode step, 8 × 1024: 69.0% of the floor, at least 70%",
        "decode step, 128 × 1024: 79.0% of the floor, at least 80%",
    ]


def test_sampling_and_waiting_take_a_small_part_of_the_step_of_as_many_rows() -> None:
    measured = [replace(step(256, 0.8), seconds=1.0), replace(step(8, 0.7), seconds=0.5)]
    most = [result("sample", "256 × 128256", 0.03), result("idle between decode steps", "8 × 1024", 0.015)]
    assert bars.misses([*measured, *most]) == []
    assert bars.misses([*measured, *(replace(one, seconds=one.seconds * 1.5) for one in most)]) == [
        "sample, 256 × 128256: 4.5% of a decode step, at most 3%",
        "idle between decode steps, 8 × 1024: 4.5% of a decode step, at most 3%",
    ]
    assert bars.misses([result("sample", "256 × 128256", 9.0)]) == []  # the part with the steps failed


def test_copies_of_blocks_are_compared_with_the_link() -> None:
    works = {work.what for work in speed._cache(speed.SMALL, "cpu")}
    assert {"block_copy to the host", "torch's copy to the host", "torch's copy from the host"} <= works
    results = [
        result("block_copy from the host", "2 blocks", 1.0),
        result("torch's copy from the host", "2 blocks", 0.8),
    ]
    assert bars.misses(results) == [
        "block_copy from the host, 2 blocks: 0.80 × torch's copy from the host, at least 0.85"
    ]


def test_a_peer_that_is_not_installed_is_no_bar_and_transformers_is_one() -> None:
    ours = [result("paged_decode", "a", 1.0), result("engine, all at once", "b", 1.0)]
    ours = [replace(one, fraction=1.0) for one in ours]
    assert bars.misses([*ours, result("transformers, all at once", "b", 5.0)]) == []
    assert bars.misses([ours[0], result("FlashInfer's decode", "a", 0.5)]) == [
        "paged_decode, a: 0.50 × FlashInfer's decode, at least 1"
    ]
    with pytest.raises(ValueError, match="expected transformers, all at once of b, got none"):
        bars.misses(ours)


def test_every_small_shape_is_measured_with_its_peer() -> None:
    works = list(speed._weight_only(speed.SMALL, "cpu"))
    shapes = {work.shape for work in works if work.what == "torch's product, bf16"}
    assert {int(shape.split()[0]) for shape in shapes} == {1, 8, 32}
    assert {work.shape for work in works if work.what == "w4a16"} == shapes


@pytest.mark.timeout(600)
def test_int4_is_faster_than_bfloat16_by_its_bar() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no GPU is visible")
    ceiling, results = ceilings.measure("cuda", small=False), []
    for work in speed._weight_only(speed.Sizes(), "cuda"):
        seconds = ceilings.seconds_of(work.call, "cuda")
        fraction = ceiling.floor(work.bytes, work.flops) / seconds
        results.append(Result(work.what, work.shape, seconds, work.bytes, work.flops, fraction))
    assert bars.misses(results) == []
