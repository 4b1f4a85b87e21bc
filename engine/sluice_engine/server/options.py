"""Parses the options of `sluice serve` from text. Each fault is one sentence that names its option.

The options come from the command line or from SLUICE_<OPTION>. Both are text, so both are validated here, once.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeVar

from sluice import contract
from sluice.models.tensor_parallel import MAX_RANKS
from sluice.models.uri import UriInvalid, name_of, parse_uri
from sluice_engine.backend.resources import expects_gpu
from sluice_engine.config import SWAP_SIZE, EngineOptions, Quantization
from sluice_engine.limits import Limits
from sluice_engine.scheduler import policies
from sluice_engine.speculation.controller import MODES
from sluice_perfmodel.step_time import StepTimeModel, parse_model

SUFFIXES: Final = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
SUFFIXES_BINARY: Final = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
DTYPES: Final = ("auto", "float32", "bfloat16", "float16")
TASKS: Final = ("auto", "generate", "embed", "score")
POOLINGS: Final = ("auto", "mean", "cls", "last")
QUANTIZATIONS: Final[tuple[Quantization, ...]] = ("none", "int8", "fp8")
GPU_TOKENS: Final = 2048  # of a step
CPU_TOKENS: Final = 1024  # more are not computed faster there, and the first of them wait for the last
DEVICES: Final = ("auto", "cpu", "cuda")
ATTENTION_BACKENDS: Final = ("auto", "sluice", "torch")
FETCH_ERRORS: Final[tuple[Literal["exit", "retry"], ...]] = ("exit", "retry")
METRICS_COMPAT: Final[tuple[Literal["none", "vllm"], ...]] = ("none", "vllm")
POLICIES: Final = tuple(policies.POLICIES)
_ORIGIN: Final = re.compile(r"https?://[A-Za-z0-9.-]{1,255}(:[0-9]{1,5})?", re.ASCII)
Word = TypeVar("Word", bound=str)


class OptionInvalid(Exception):
    """An option's value is invalid. The message is one sentence that names the option."""


@dataclass(frozen=True, slots=True)
class SecretPaths:
    """Files of the data port's secrets. Without `api_keys` no key is needed; certificate and key come together or not."""

    api_keys: Path | None = None
    certificate: Path | None = None
    private_key: Path | None = None
    gateway_token: Path | None = None  # of the gateway that may name tenants


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings of the HTTP process alone: addresses, the files that it reads, and how it gets the model."""

    host: str
    port: int
    admin_port: int
    admin_token_file: Path | None
    read_token_file: Path | None = None  # None: reads of the admin port are open
    targets_file: Path | None = None
    revision_file: Path | None = None  # pins the revision of a model that is fetched (`sources/pin.py`)
    secrets: SecretPaths = SecretPaths()
    cors_origins: tuple[str, ...] = ()  # of web pages that may read responses; "*" is all
    cache: Path | None = None  # of downloaded models; None: the user's
    fetch_errors: Literal["exit", "retry"] = "exit"  # what a failed download does
    metrics_compat: Literal["none", "vllm"] = "none"  # whose metric names are exported beside our own


def parse(raw: Mapping[str, str | None]) -> tuple[EngineOptions, ServerSettings]:
    """Parses `raw`: option name without leading dashes (`max-num-seqs`) → text, None if absent; plus `model`.

    Raises OptionInvalid.
    """
    reader = _Reader(raw)
    model = raw.get("model") or ""
    if not model:
        raise OptionInvalid("MODEL is required: the folder with the model's config.json.")
    try:
        uri = parse_uri(model)
    except UriInvalid as error:
        raise OptionInvalid(f"MODEL: {error}") from error
    settings = _server_settings(raw, reader)
    max_num_seqs = reader.integer("max-num-seqs", 1, 65536, 256)
    device = reader.choice("device", DEVICES)
    options = EngineOptions(
        model=model,
        served_name=raw.get("served-name") or name_of(uri),
        task=reader.choice("task", TASKS),
        pooling=reader.choice("pooling", POOLINGS),
        dtype=reader.choice("dtype", DTYPES),
        quantization=reader.choice("quantization", QUANTIZATIONS),
        device=device,
        attention_backend=reader.choice("attention-backend", ATTENTION_BACKENDS),
        tensor_parallel=reader.integer("tensor-parallel", 1, MAX_RANKS, 1),
        max_model_length=reader.optional("max-model-length", 1, 10**8),
        kv_size=reader.size("kv-size"),
        kv_memory_fraction=reader.number("kv-memory-fraction", 0.0, 1.0, 0.9),
        block_size=reader.integer("block-size", 1, 1024, 16),
        max_num_seqs=max_num_seqs,
        limits=_limits(reader, max_num_seqs, device),
        policy=reader.choice("policy", POLICIES),
        speculation=reader.choice("speculation", MODES),
        swap_size=reader.amount("swap-size", SWAP_SIZE),
        threads=reader.optional("threads", 1, 1024),
        pace=parse_pace(raw.get("pace")),
        drain_seconds=reader.number("drain-seconds", 0.0, 86400.0, 300.0, zero=True),
        grace_seconds=reader.number("grace-seconds", 0.0, 3600.0, contract.DRAIN_GRACE_SECONDS, zero=True),
    )
    return options, settings


def _server_settings(raw: Mapping[str, str | None], reader: "_Reader") -> ServerSettings:
    cache = reader.path("cache")
    settings = ServerSettings(
        host=raw.get("host") or "127.0.0.1",
        port=reader.integer("port", 0, 65535, contract.DATA_PORT),
        admin_port=reader.integer("admin-port", 0, 65535, contract.ADMIN_PORT),
        admin_token_file=reader.file("admin-token-file"),
        read_token_file=reader.file("read-token-file"),
        targets_file=reader.path("targets-file"),
        revision_file=reader.path("revision-file"),
        secrets=_secrets(reader),
        cors_origins=_origins(raw.get("cors-origins")),
        cache=None if cache is None else cache.expanduser(),
        fetch_errors=reader.choice("fetch-errors", FETCH_ERRORS),
        metrics_compat=reader.choice("metrics-compat", METRICS_COMPAT),
    )
    if settings.port == settings.admin_port and settings.port != 0:
        raise OptionInvalid(f"--admin-port must differ from --port; both are {settings.port}.")
    return settings


def _secrets(reader: "_Reader") -> SecretPaths:
    paths = SecretPaths(
        api_keys=reader.path("api-keys-file"),
        certificate=reader.path("tls-cert-file"),
        private_key=reader.path("tls-key-file"),
        gateway_token=reader.path("gateway-token-file"),
    )
    if (paths.certificate is None) != (paths.private_key is None):
        raise OptionInvalid("--tls-cert-file and --tls-key-file belong together: give both, or neither.")
    return paths


def _origins(text: str | None) -> tuple[str, ...]:
    origins = tuple(each.strip() for each in (text or "").split(",") if each.strip())
    for origin in origins:
        if origin != "*" and _ORIGIN.fullmatch(origin) is None:
            raise OptionInvalid(
                f"--cors-origins must be origins such as https://app.example.com, or *; not {origin!r}."
            )
    return origins


def _limits(reader: "_Reader", max_num_seqs: int, device: str) -> Limits:
    """The base limits. A concurrency above the engine's buffers is lowered to them."""
    concurrency_max = reader.integer("concurrency-max", 1, 10**6, max_num_seqs)
    concurrency_min = reader.integer("concurrency-min", 1, 10**6, 1)
    if concurrency_min > concurrency_max:
        raise OptionInvalid(
            f"--concurrency-min must not be above --concurrency-max; {concurrency_min} is above {concurrency_max}."
        )
    return Limits(
        max_batched_tokens=reader.integer(
            "max-batched-tokens", 1, 10**6, GPU_TOKENS if expects_gpu(device) else CPU_TOKENS
        ),
        concurrency_min=min(concurrency_min, max_num_seqs),
        concurrency_max=min(concurrency_max, max_num_seqs),
        max_queue=reader.integer("max-queue", 0, 10**6, 1024),
        kv_watermark=reader.number("kv-watermark", 0.0, 1.0, 1.0),
        itl_target=reader.number("itl-ms", 0.0, 1e6, 50.0) / 1000,
        ttft_target=reader.number("ttft-ms", 0.0, 1e7, 2000.0) / 1000,
    )


def parse_size(text: str) -> int:
    """Returns the bytes of a Kubernetes quantity: 64Mi, 2G, 1048576. Raises ValueError."""
    found = re.fullmatch(r"(\d{1,15})(Ki|Mi|Gi|Ti|k|M|G|T)?", text.strip(), re.ASCII)
    if found is None:
        raise ValueError(text)
    return int(found[1]) * {**SUFFIXES, **SUFFIXES_BINARY}[found[2] or ""]


def parse_pace(text: str | None) -> StepTimeModel | None:
    """Parses a step-time model such as "base=0.03,sequence=0.004", in seconds per unit. Raises OptionInvalid."""
    if not text:
        return None
    try:
        return parse_model(text)
    except ValueError as error:
        raise OptionInvalid(f"--pace: {error}.") from error


def _finite(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value - value == 0 else None


class _Reader:
    """The options by their names; an empty text counts as absent. Each method raises OptionInvalid."""

    def __init__(self, raw: Mapping[str, str | None]) -> None:
        self._raw = raw

    def integer(self, name: str, low: int, high: int, default: int) -> int:
        value = self.optional(name, low, high)
        return default if value is None else value

    def optional(self, name: str, low: int, high: int) -> int | None:
        text = self._raw.get(name)
        if text is None or text == "":
            return None
        if not re.fullmatch(r"-?\d{1,18}", text, re.ASCII) or not low <= int(text) <= high:
            raise OptionInvalid(f"--{name} must be an integer between {low} and {high}; not {text!r}.")
        return int(text)

    def number(self, name: str, low: float, high: float, default: float, *, zero: bool = False) -> float:
        text = self._raw.get(name)
        if text is None or text == "":
            return default
        value = _finite(text)
        if value is None or not (low <= value if zero else low < value) or value > high:
            edge = "at least" if zero else "above"
            raise OptionInvalid(f"--{name} must be a number {edge} {low:g} and at most {high:g}; not {text!r}.")
        return value

    def choice(self, name: str, allowed: tuple[Word, ...]) -> Word:
        text = self._raw.get(name) or allowed[0]
        for word in allowed:
            if word == text:
                return word
        raise OptionInvalid(f"--{name} must be one of {', '.join(allowed)}; not {text!r}.")

    def path(self, name: str) -> Path | None:
        text = self._raw.get(name)
        return Path(text) if text else None

    def file(self, name: str) -> Path | None:
        """The path of a file that must exist."""
        path = self.path(name)
        if path is not None and not path.is_file():
            raise OptionInvalid(f"--{name}: there is no file {path}.")
        return path

    def size(self, name: str) -> int | None:
        text = self._raw.get(name)
        if not text:
            return None
        value = self.amount(name, 0)
        if value <= 0:
            raise OptionInvalid(f"--{name} must be above 0; not {text!r}.")
        return value

    def amount(self, name: str, default: int) -> int:
        text = self._raw.get(name)
        if not text:
            return default
        try:
            return parse_size(text)
        except ValueError as error:
            raise OptionInvalid(f"--{name} must be a size such as 64Mi or 2Gi; not {text!r}.") from error
