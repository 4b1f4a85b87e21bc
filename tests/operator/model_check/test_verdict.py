"""A verdict states a problem only where the spec fixes the memory and the model exceeds it."""

import json
from dataclasses import replace
from typing import Any

import pytest

from sluice import contract
from sluice_operator.api import LLMDeploymentSpec, parse
from sluice_operator.model_check import ModelRecord, NotChecked, judge, record_of
from sluice_operator.model_check.accelerator import selected_memory
from sluice_perfmodel.model_memory import facts_of
from tests.operator.fake_cluster import manifest
from tests.operator.model_check.conftest import CONFIG, PARAMETERS

QWEN = ModelRecord(facts_of(CONFIG, PARAMETERS))


def spec(
    selector: dict[str, str] | None = None, model: dict[str, Any] | None = None, **engine: Any
) -> LLMDeploymentSpec:
    made = {"accelerator": {"count": 1}, "template": {"nodeSelector": selector or {}}} | engine
    resource = parse(manifest(model={"uri": "hf://org/model"} | (model or {}), engine=made), strict=False)
    return resource.spec


@pytest.mark.parametrize(
    ("resource", "selector", "mebibytes"),
    [
        ("nvidia.com/gpu", {"nvidia.com/gpu.memory": "15360"}, 15360),
        (
            "nvidia.com/gpu",
            {"nvidia.com/gpu.memory": "15360", "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"},
            15360,
        ),
        ("nvidia.com/gpu", {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB-SHARED"}, 81920),
        ("nvidia.com/gpu", {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, 81920),
        ("nvidia.com/mig-1g.10gb", {"nvidia.com/mig-1g.10gb.memory": "9728"}, 9728),
        ("nvidia.com/mig-1g.10gb", {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}, None),
        ("nvidia.com/gpu", {"nvidia.com/gpu.product": "Tesla-T4"}, None),
        ("nvidia.com/gpu", {"nvidia.com/gpu.memory": "a lot"}, None),
        ("nvidia.com/gpu", {}, None),
    ],
)
def test_the_memory_of_an_accelerator_is_that_of_the_selected_nodes(
    resource: str, selector: dict[str, str], mebibytes: int | None
) -> None:
    assert selected_memory(resource, selector) == (None if mebibytes is None else mebibytes << 20)


def test_a_model_that_exceeds_the_selected_accelerators_has_two_remedies() -> None:
    found = judge(spec({"nvidia.com/gpu.memory": "16384"}, {"maxModelLength": 40960}), QWEN).problem
    assert found is not None and found.reason == "InsufficientMemory"
    assert (
        "The memory of a selected accelerator is 16 GiB. Select accelerators with at least 21.6 GiB in" in found.message
    )
    length = int(found.message.partition("maxModelLength to ")[2].partition(".")[0])
    assert judge(spec({"nvidia.com/gpu.memory": "16384"}, {"maxModelLength": length}), QWEN).problem is None
    assert judge(spec({"nvidia.com/gpu.memory": "24576"}), QWEN).problem is None


def test_float32_doubles_the_need_and_an_unset_dtype_counts_as_the_smaller_one() -> None:
    memory: dict[str, Any] = {"resources": {"limits": {"memory": "24Gi"}}, "accelerator": {"count": 0}}
    assert judge(spec(**memory), QWEN).problem is None
    found = judge(spec(model={"dtype": "float32"}, **memory), QWEN).problem
    assert found is not None and "30.51 GiB of weights in float32" in found.message
    assert "set spec.model.dtype to bfloat16, which halves the weights" in found.message


def test_int8_weights_need_a_quarter_of_float32() -> None:
    memory: dict[str, Any] = {"resources": {"limits": {"memory": "14Gi"}}, "accelerator": {"count": 0}}
    assert judge(spec(model={"dtype": "float32"}, **memory), QWEN).problem is not None
    quantised = {"dtype": "float32", "quantization": "int8", "maxModelLength": 1024}
    assert judge(spec(model=quantised, **memory), QWEN).problem is None
    memory["resources"] = {"limits": {"memory": "4Gi"}}
    found = judge(spec(model=quantised, **memory), QWEN).problem
    assert found is not None and "7.63 GiB of weights in int8" in found.message


def test_int8_has_a_byte_for_each_element_of_the_cache_and_a_scale_for_each_head() -> None:
    on_cpu: dict[str, Any] = {"model": {"quantization": "int8"}, "accelerator": {"count": 0}}
    on_cpu["resources"] = {"limits": {"memory": "64Gi"}}
    found = judge(spec(kvCache={"size": "1Gi"}, **on_cpu), QWEN).problem
    assert found is not None and "One request of 40960 tokens needs 2.9 GiB of KV cache" in found.message
    assert judge(spec(kvCache={"size": "3Gi"}, **on_cpu), QWEN).problem is None


def test_a_size_of_the_kv_cache_replaces_its_share() -> None:
    short: dict[str, Any] = {
        "resources": {"limits": {"memory": "1Gi"}},
        "accelerator": {"count": 0},
        "kvCache": {"size": "6Gi"},
    }
    found = judge(spec(**short), QWEN).problem
    assert found is not None and "5.62 GiB for the KV cache of one request of 40960 tokens" in found.message


def test_a_kv_cache_that_holds_no_request_is_reported_whatever_the_memory_is() -> None:
    found = judge(spec(kvCache={"size": "1Gi"}), QWEN).problem
    assert found is not None and found.message.startswith(
        "One request of 40960 tokens needs 5.62 GiB of KV cache, and spec.engine.kvCache.size is 1 GiB. Raise it to 5.7 GiB, "
        "or set spec.model.maxModelLength to 7280. The operator starts no pod"
    )
    assert judge(spec(model={"maxModelLength": 7280}, kvCache={"size": "1Gi"}), QWEN).problem is None


def test_what_is_not_read_is_not_judged() -> None:
    assert judge(spec(), NotChecked("the hub is away")).not_checked == "the hub is away"
    assert judge(spec(), NotChecked("the hub is away")).problem is None


def test_a_number_of_accelerators_that_does_not_divide_the_heads_starts_no_pod() -> None:
    record = record_of(json.dumps(CONFIG | {"intermediate_size": 9728}).encode(), [], [])
    assert record.sizes is not None
    verdict = judge(spec(accelerator={"count": 3}), record)
    assert verdict.problem is not None
    assert verdict.problem.reason == contract.REASON_INVALID_OPTION
    assert "spec.engine.accelerator.count 3 does not fit" in verdict.problem.message
    assert f"Its {record.sizes.heads} attention heads cannot be divided by 3" in verdict.problem.message
    assert judge(spec(accelerator={"count": 2}), record).problem is None
    assert judge(spec(accelerator={"count": 3}), replace(record, sizes=None)).problem is None


@pytest.mark.parametrize("width", ["moe_intermediate_size", "shared_expert_intermediate_size"])
def test_a_number_of_accelerators_that_does_not_divide_the_experts_starts_no_pod(width: str) -> None:
    record = record_of(json.dumps(CONFIG | {"intermediate_size": 9728, width: 769}).encode(), [], [])
    problem = judge(spec(accelerator={"count": 2}), record).problem
    assert problem is not None
    assert "The width of its experts, 769, cannot be divided by 2" in problem.message


@pytest.mark.parametrize("kind", ["gpt_neox", "olmo2"])
def test_several_accelerators_for_a_model_that_they_cannot_share_start_no_pod(kind: str) -> None:
    record = record_of(json.dumps(CONFIG | {"model_type": kind}).encode(), [], [])
    problem = judge(spec(accelerator={"count": 2}), record).problem
    assert problem is not None
    assert problem.reason == contract.REASON_UNSUPPORTED_ARCHITECTURE
    assert (
        f"accelerators cannot share a model of type {kind}. Set it to 1. The operator starts no pod" in problem.message
    )
    assert judge(spec(accelerator={"count": 1}), record).problem is None
