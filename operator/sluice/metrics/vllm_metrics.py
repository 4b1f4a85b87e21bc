"""The metrics of `--metrics-compat=vllm`: the names of vLLM that the Gateway API Inference Extension's protocol asks for.

Source: github.com/kubernetes-sigs/gateway-api-inference-extension, docs/proposals/003-model-server-protocol (84436a96).
`model_name` is the label by which vLLM's dashboards and KEDA recipes select.
"""

from typing import Final

from sluice.metrics.definition import Label, gauge

RUNNING: Final = "vllm:num_requests_running"
WAITING: Final = "vllm:num_requests_waiting"
KV_CACHE_USAGE: Final = "vllm:kv_cache_usage_perc"  # 1 is 100 percent, as in vLLM
CACHE_CONFIG: Final = "vllm:cache_config_info"
LORA_REQUESTS: Final = "vllm:lora_requests_info"  # its value is a time in seconds since 1970: the newest series counts

VLLM: Final = (
    gauge(RUNNING, "Requests that hold KV blocks.", Label("model_name")),
    gauge(WAITING, "Requests queued in the engine.", Label("model_name")),
    gauge(KV_CACHE_USAGE, "KV blocks held by running requests over all; 1 means 100 percent.", Label("model_name")),
    gauge(CACHE_CONFIG, "The KV pool.", Label("block_size"), Label("num_gpu_blocks")),
    gauge(
        LORA_REQUESTS,
        "LoRA adapters; none are served.",
        Label("max_lora"),
        Label("running_lora_adapters"),
        Label("waiting_lora_adapters"),
    ),
)
