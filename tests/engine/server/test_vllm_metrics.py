"""`--metrics-compat=vllm`: the names, types and labels of the Gateway API Inference Extension's protocol."""

from pathlib import Path

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from sluice import contract
from sluice_engine import messages
from sluice_engine.config import engine_options
from sluice_engine.limits import at_start
from sluice_engine.server.metrics import EngineMetrics
from sluice_engine.server.options import OptionInvalid, parse
from sluice_engine.server.vllm_metrics import VllmMetrics
from sluice_operator import render
from sluice_operator.api import parse as parse_resource
from tests.engine.serving import CHAT, body, serving
from tests.operator.fake_cluster import manifest

OPTIONS = engine_options(model="m", served_name="chat")
# docs/proposals/003-model-server-protocol: metric → labels that the endpoint picker reads.
PROTOCOL = {
    "vllm:num_requests_waiting": {"model_name"},
    "vllm:num_requests_running": {"model_name"},
    "vllm:kv_cache_usage_perc": {"model_name"},
    "vllm:cache_config_info": {"block_size", "num_gpu_blocks"},
    "vllm:lora_requests_info": {"max_lora", "running_lora_adapters", "waiting_lora_adapters"},
}
READY = messages.Ready(
    dtype="float32", device="cpu", block_size=16.0, num_blocks=10, max_model_length=64, vocab_size=8, paced=False,
    load_seconds={},
)  # fmt: skip
REPORT = messages.StepReport(
    deltas=(), ended_at=1.0, seconds=0.1, prefill_tokens=0, prefill_context=0.0, sequences=3, kv_tokens=0,
    generated_tokens=0, prompt_tokens=0, cached_prompt_tokens=0, preemptions=0, running=3, waiting=2, tokens_in_flight=0,
    blocks_held=4, blocks_cached=1, blocks_free=5, limits=at_start(OPTIONS.limits), model=(0.01, 0.0, 0.0, 0.0, 0.0),
    model_error=0.1, model_steps=3,
)  # fmt: skip


def samples(text: str) -> dict[str, tuple[dict[str, str], float]]:
    """The series of vLLM's names."""
    return {
        sample.name: (sample.labels, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("vllm:")
    }


def test_the_series_are_those_of_the_protocol_with_the_engines_numbers() -> None:
    metrics = EngineMetrics(OPTIONS, vllm=VllmMetrics("chat", wall=lambda: 5.0))
    metrics.on_ready(READY)
    metrics.on_report(REPORT)
    found = samples(metrics.render().decode())
    assert {name: set(labels) for name, (labels, _) in found.items()} == PROTOCOL
    assert found["vllm:num_requests_running"] == ({"model_name": "chat"}, 3.0)
    assert found["vllm:num_requests_waiting"][1] == 2.0
    assert found["vllm:kv_cache_usage_perc"][1] == pytest.approx(0.4)
    assert found["vllm:cache_config_info"] == ({"block_size": "16", "num_gpu_blocks": "10"}, 1.0)
    assert found["vllm:lora_requests_info"][1] == 5.0


def test_they_follow_the_next_report() -> None:
    metrics = EngineMetrics(OPTIONS, vllm=VllmMetrics("chat"))
    metrics.on_report(REPORT)
    metrics.on_report(msgspec.structs.replace(REPORT, running=0, waiting=0, blocks_held=0, blocks_free=9))
    found = samples(metrics.render().decode())
    assert {name: value for name, (_, value) in found.items()} == dict.fromkeys(list(PROTOCOL)[:3], 0.0)


def test_an_engine_without_the_option_exports_none() -> None:
    assert samples(EngineMetrics(OPTIONS).render().decode()) == {}
    assert parse({"model": "/m"})[1].metrics_compat == "none"
    assert parse({"model": "/m", "metrics-compat": "vllm"})[1].metrics_compat == "vllm"
    with pytest.raises(OptionInvalid, match="--metrics-compat"):
        parse({"model": "/m", "metrics-compat": "triton"})


def test_a_variable_of_the_resource_switches_them_on_in_a_real_engine(tiny_model: Path, tmp_path: Path) -> None:
    variable = {"name": "SLUICE_METRICS_COMPAT", "value": "vllm"}
    resource = parse_resource(manifest(engine={"accelerator": {"count": 0}, "template": {"env": [variable]}}))
    *_, deployment = render.children(resource, defaults=render.PodDefaults("engine:1"), replicas=1, token="t")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert variable in container["env"]
    with serving(tiny_model, tmp_path / "log", env={variable["name"]: variable["value"]}) as served:
        assert served.request("POST", CHAT, body(3, stream=False)).status == 200
        text = served.admin("GET", contract.PATH_METRICS).body.decode()
    found = samples(text)
    assert set(found) == set(PROTOCOL)
    assert found["vllm:cache_config_info"][0]["block_size"] == "16"
    assert int(found["vllm:cache_config_info"][0]["num_gpu_blocks"]) > 0
