"""The device that a pod's engine computes on, and the quantization that only one of them has."""

import pytest

from sluice_operator.api.parse import InvalidResource
from tests.operator.render.test_render import children, deployment


def test_no_accelerator_means_the_cpu_and_one_means_no_fallback() -> None:
    cpu = deployment(children({"engine.accelerator.count": 0}))["spec"]["template"]["spec"]["containers"][0]
    gpu = deployment(children())["spec"]["template"]["spec"]["containers"][0]
    assert "--device=cpu" in cpu["args"]
    assert "resources" not in cpu
    assert "--device=cuda" in gpu["args"]
    assert gpu["resources"] == {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}


def test_a_quantization_is_a_flag_of_the_engine_and_none_is_no_flag() -> None:
    plain, quantised = (
        deployment(children({"engine.accelerator.count": 0} | more))["spec"]["template"]["spec"]["containers"][0][
            "args"
        ]
        for more in ({}, {"model.quantization": "int8"})
    )
    assert set(quantised) - set(plain) == {"--quantization=int8"}


def test_fp8_is_a_flag_of_an_engine_with_one_accelerator() -> None:
    container = deployment(children({"model.quantization": "fp8"}))["spec"]["template"]["spec"]["containers"][0]
    assert "--quantization=fp8" in container["args"]
    for count in (0, 2):
        with pytest.raises(InvalidResource, match="quantization fp8 is for engines with one accelerator"):
            children({"model.quantization": "fp8", "engine.accelerator.count": count})
