"""`sluice serve MODEL`: one engine with an OpenAI API, without Kubernetes."""

from pathlib import Path
from typing import Annotated

import typer

from sluice import contract
from sluice.commands.log_options import LogFormat, LogLevel, configure_logs
from sluice.commands.model.failures import reported
from sluice.commands.model.pull import local_folder


def _option(name: str, text: str, metavar: str) -> typer.models.OptionInfo:
    """An option whose value stays text: the server validates all options in one place, with one sentence per fault."""
    variable = contract.ENV_PREFIX + name.upper().replace("-", "_")
    return typer.Option(f"--{name}", help=text, metavar=metavar, envvar=variable, show_envvar=False)


Text = str | None


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("serve", help=f"{serve.__doc__}")(serve)


def serve(
    model: Annotated[
        str, typer.Argument(help="A known or pulled name such as smollm2, a model folder, a .gguf or hf://org/name.")
    ],
    served_name: Annotated[
        Text, _option("served-name", "Model name that clients send. [the folder's name]", "NAME")
    ] = None,
    host: Annotated[Text, _option("host", "Address to listen on. [127.0.0.1]", "ADDRESS")] = None,
    port: Annotated[Text, _option("port", "Port of the OpenAI API. [8000]", "PORT")] = None,
    admin_port: Annotated[
        Text, _option("admin-port", "Port of the health, metrics and limits endpoints. [8001]", "PORT")
    ] = None,
    task: Annotated[Text, _option("task", "auto, generate, embed or score. [the model's]", "TASK")] = None,
    pooling: Annotated[Text, _option("pooling", "Embeddings: auto, mean, cls or last. [the model's]", "NAME")] = None,
    dtype: Annotated[Text, _option("dtype", "auto, float32, bfloat16 or float16. [auto]", "DTYPE")] = None,
    quantization: Annotated[
        Text, _option("quantization", "Weights and products: none, int8 (CPU) or fp8 (GPU). [none]", "NAME")
    ] = None,
    device: Annotated[Text, _option("device", "auto, cpu or cuda. [auto]", "DEVICE")] = None,
    attention_backend: Annotated[
        Text, _option("attention-backend", "Attention on a GPU: auto, sluice or torch. [auto]", "NAME")
    ] = None,
    tensor_parallel: Annotated[
        Text, _option("tensor-parallel", "GPUs that share the model, one process each. [1]", "N")
    ] = None,
    max_model_length: Annotated[
        Text, _option("max-model-length", "Maximum prompt plus output length, in tokens. [the model's]", "N")
    ] = None,
    kv_size: Annotated[Text, _option("kv-size", "Size of the KV cache, e.g. 64Mi.", "SIZE")] = None,
    kv_memory_fraction: Annotated[
        Text, _option("kv-memory-fraction", "KV cache as a fraction of free memory. [0.9]", "SHARE")
    ] = None,
    block_size: Annotated[Text, _option("block-size", "Tokens per KV block. [16]", "N")] = None,
    max_num_seqs: Annotated[
        Text, _option("max-num-seqs", "Maximum number of sequences in one step. [256]", "N")
    ] = None,
    max_batched_tokens: Annotated[
        Text, _option("max-batched-tokens", "Maximum number of tokens in one step. [2048; CPU: 1024]", "N")
    ] = None,
    concurrency_min: Annotated[
        Text, _option("concurrency-min", "Lower bound of the concurrency limit. [1]", "N")
    ] = None,
    concurrency_max: Annotated[
        Text, _option("concurrency-max", "Upper bound of the concurrency limit. [max-num-seqs]", "N")
    ] = None,
    max_queue: Annotated[Text, _option("max-queue", "Maximum number of waiting requests. [1024]", "N")] = None,
    kv_watermark: Annotated[
        Text, _option("kv-watermark", "Fraction of the KV cache that admission may fill. [1.0]", "SHARE")
    ] = None,
    itl_ms: Annotated[Text, _option("itl-ms", "Inter-token latency target, in milliseconds. [50]", "MS")] = None,
    ttft_ms: Annotated[Text, _option("ttft-ms", "Time-to-first-token target, in milliseconds. [2000]", "MS")] = None,
    policy: Annotated[Text, _option("policy", "fcfs, priority, srpf, edf or fair. [fcfs]", "NAME")] = None,
    speculation: Annotated[
        Text, _option("speculation", "Speculative decoding by prompt lookup: auto, on or off. [auto]", "MODE")
    ] = None,
    swap_size: Annotated[
        Text, _option("swap-size", "Host memory for the KV cache of preempted requests; 0 disables it. [64Mi]", "SIZE")
    ] = None,
    threads: Annotated[Text, _option("threads", "Compute threads on the CPU. [from the cgroup]", "N")] = None,
    pace: Annotated[
        Text,
        _option("pace", "Development: slow steps down to a step-time model, e.g. base=0.03,sequence=0.004.", "TERMS"),
    ] = None,
    admin_token_file: Annotated[
        Text, _option("admin-token-file", "File with the bearer token for writes to the admin port.", "FILE")
    ] = None,
    read_token_file: Annotated[
        Text,
        _option(
            "read-token-file",
            "File with the bearer token for reads of the admin port, except /livez and /readyz. [reads are open]",
            "FILE",
        ),
    ] = None,
    api_keys_file: Annotated[
        Text,
        _option(
            "api-keys-file",
            "YAML list of API keys, reloaded on change; see `sluice key new`. [no key is needed]",
            "FILE",
        ),
    ] = None,
    gateway_token_file: Annotated[
        Text,
        _option(
            "gateway-token-file",
            "File with the token of a gateway that has verified keys and names the tenants of its requests.",
            "FILE",
        ),
    ] = None,
    tls_cert_file: Annotated[
        Text, _option("tls-cert-file", "PEM certificate chain of the OpenAI API, reloaded on change. [no TLS]", "FILE")
    ] = None,
    tls_key_file: Annotated[
        Text, _option("tls-key-file", "PEM private key of the certificate, without a password.", "FILE")
    ] = None,
    cors_origins: Annotated[
        Text,
        _option("cors-origins", "Origins of web pages that may call the OpenAI API, by commas, or *. [none]", "LIST"),
    ] = None,
    cache: Annotated[
        Text, _option("cache", "Folder of downloaded models, shared by engines. [~/.cache/sluice/models]", "DIR")
    ] = None,
    fetch_errors: Annotated[
        Text, _option("fetch-errors", "What a failed download does: exit, or retry until it succeeds. [exit]", "MODE")
    ] = None,
    targets_file: Annotated[
        Text, _option("targets-file", "JSON file with SLO targets and admission bounds, reloaded on change.", "FILE")
    ] = None,
    revision_file: Annotated[
        Text, _option("revision-file", "JSON file with the uri and the revision of a hf:// model to fetch.", "FILE")
    ] = None,
    metrics_compat: Annotated[
        Text, _option("metrics-compat", "Export vLLM's metric names beside our own: none or vllm. [none]", "NAME")
    ] = None,
    drain_seconds: Annotated[
        Text, _option("drain-seconds", "Seconds that running requests may take to finish after SIGTERM. [300]", "S")
    ] = None,
    grace_seconds: Annotated[
        Text, _option("grace-seconds", "Seconds to keep serving after SIGTERM, until endpoints are updated. [5]", "S")
    ] = None,
    log_format: LogFormat = None,
    log_level: LogLevel = None,
) -> None:
    """Serve one model over the OpenAI API.

    Every option may also be set as SLUICE_<OPTION>. Exit codes: 0 drained, 1 requests aborted, 2 invalid option or port
    in use, 3 engine crashed, 78 the engine cannot serve with this configuration.
    """
    given = {name.replace("_", "-"): value for name, value in locals().items()}
    configure_logs(log_format, log_level, batched=("sluice.request",))
    try:
        from sluice_engine.server import serve as run
    except ImportError as error:
        typer.echo(
            f"`sluice serve` needs the engine extra ({error.name} is missing): pip install 'sluice[engine]'", err=True
        )
        raise typer.Exit(contract.EXIT_USAGE) from error
    with reported():
        folder = local_folder(model, dtype or "auto")
    if folder != model:
        given |= {"model": folder, "served-name": served_name or Path(model).name.removesuffix(".gguf")}
    raise typer.Exit(run(given, lambda sentence: typer.echo(sentence, err=True)))
