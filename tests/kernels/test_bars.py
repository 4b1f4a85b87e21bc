"""The bars of the kernel benches: a missed one is named, and a GPU keeps them."""

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
    assert bars.misses(results) == ["w4a16, 32 × 128 × 256: 1.49 × torch's bfloat16 product, at least 1.5"]
    with pytest.raises(ValueError, match="expected torch's product of 8 × 128 × 256, got none"):
        bars.misses(results[:1])


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
