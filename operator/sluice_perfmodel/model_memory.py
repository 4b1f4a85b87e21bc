"""Whether a model fits a memory, from its config.json and the headers of its weights, before anything is loaded.

need = weights + KV cache of one request of the maximum length / share of the free memory that the cache takes
weights = parameters · bytes of the dtype, or 1 byte if they are quantised to 8 bits
KV cache per token and layer = 2 (key and value) · KV heads · bytes of a head: head size · bytes of the dtype, or head size
    bytes and a scale of 4 bytes with weights of 8 bits

The last formula is section 3.1 of Pope et al., "Efficiently Scaling Transformer Inference" (arXiv:2211.05102), with grouped
KV heads. With tensor parallelism each of n accelerators holds 1/n of both. The result is a lower bound: the process,
activations and idle blocks of layer groups come on top.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

# Headroom in the model's favour: a checkpoint may hold tensors that are not loaded, such as layers for drafting.
CERTAIN_SHARE: Final = 0.9
# A config comes from outside: larger numbers count as not given, so that none of them costs memory here.
MAX_NUMBER: Final = 1 << 31
MAX_LAYERS: Final = 10_000
DTYPE_BYTES: Final = {"float32": 4, "bfloat16": 2, "float16": 2}
INT8_SCALE_BYTES: Final = 4  # of each head of a token whose keys and values are 8-bit integers
_GENERATING: Final = ("ForCausalLM", "LMHeadModel")


@dataclass(frozen=True, slots=True)
class KVLayers:
    """The KV cache of a model that generates text."""

    windows: tuple[int | None, ...]  # per layer: tokens of its sliding window, None: full attention
    heads: int
    head_size: int

    def request_bytes(self, tokens: int, plan: "Plan") -> int:
        """Bytes of one request, in whole blocks. A window holds at least its own tokens."""
        block_size = plan.block_size
        kept = sum(-(-min(tokens, window or tokens) // block_size) * block_size for window in self.windows)
        head = self.head_size + INT8_SCALE_BYTES if plan.int8 else self.head_size * DTYPE_BYTES[plan.dtype]
        return 2 * kept * self.heads * head


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the memory of a model depends on."""

    parameters: int
    dtype: str | None  # the checkpoint's, of DTYPE_BYTES; None: the config names none
    positions: int | None  # the longest request that the model can serve, in tokens; None: unknown
    kv: KVLayers | None  # None: nothing is cached, or the config does not tell


@dataclass(frozen=True, slots=True)
class Plan:
    """How the model is to be served."""

    dtype: str  # of DTYPE_BYTES
    max_model_length: int | None = None  # tokens; None: the model's positions
    kv_size: int | None = None  # bytes; None: `kv_share` of the memory that the weights leave
    kv_share: float = 0.9
    block_size: int = 16  # tokens
    reserved: int = 0  # bytes that are used for something else
    accelerators: int = 1  # that share weights and KV cache
    int8: bool = False  # weights are quantised to 8 bits when they are loaded, keys and values as they are cached


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes on each accelerator, and the tokens of the request that they are for."""

    weights: int
    kv: int
    reserved: int
    tokens: int

    @property
    def total(self) -> int:
        """The memory that each accelerator needs."""
        return self.weights + self.kv + self.reserved


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A model that certainly does not fit."""

    need: Need
    dtype: str  # of the weights
    available: int  # bytes on each accelerator
    fitting_length: int  # tokens of the longest request that would fit; 0: the weights alone do not fit


@dataclass(frozen=True, slots=True)
class Remedies:
    """The words of the two remedies, which differ between a cluster and the command line."""

    memory: str  # "Raise spec.engine.resources.limits.memory to {size}"
    length: str  # "set spec.model.maxModelLength to {tokens} or less"
    dtype: str  # "set spec.model.dtype to bfloat16"


def kv_layers(config: Mapping[str, Any]) -> KVLayers | None:
    """The KV cache that a config.json describes; None for a model that does not generate, or with other key names.

    Where the config leaves the layers with a window open, all have it: the result is then too small, never too large.
    """
    names = config.get("architectures")
    if not isinstance(names, list) or not any(str(name).endswith(_GENERATING) for name in names):
        return None
    layers, hidden = _number(config, "num_hidden_layers", "n_layer"), _number(config, "hidden_size", "n_embd")
    heads = _number(config, "num_attention_heads", "n_head")
    if layers is None or heads is None or layers > MAX_LAYERS:
        return None
    head_size = _number(config, "head_dim") or (hidden // heads if hidden else None)
    kv_heads = _number(config, "num_key_value_heads", "num_kv_heads") or (1 if config.get("multi_query") else heads)
    return None if head_size is None else KVLayers(_windows(config, layers), kv_heads, head_size)


def facts_of(config: Mapping[str, Any], parameters: int, *, generates: bool = True) -> ModelFacts:
    """The facts of a config.json whose weights hold so many parameters; without `generates`, nothing is cached."""
    dtype = config.get("dtype") or config.get("torch_dtype")
    return ModelFacts(
        parameters=parameters,
        dtype=dtype if isinstance(dtype, str) and dtype in DTYPE_BYTES else None,
        positions=_number(config, "max_position_embeddings", "n_positions"),
        kv=kv_layers(config) if generates else None,
    )


def parameters_of(headers: Iterable[tuple[Mapping[str, Any], int]], *, tied: bool) -> int:
    """Parameters of a checkpoint, from its files' (safetensors header, bytes of tensors).

    Files whose header is not known may be given with that of another one: they then have the same share of each dtype.
    tied: the output layer shares the embedding, so that a stored copy of it is not loaded.
    """
    total, copies = 0.0, 0
    for header, size in headers:
        tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
        counts = {name: _parameters(name, tensors) for name in tensors}
        listed = sum(entry["data_offsets"][1] - entry["data_offsets"][0] for entry in tensors.values())
        total += size * sum(counts.values()) / listed if listed else 0
        copies = max(copies, counts.get("lm_head.weight", 0))
    return max(0, round(total) - (copies if tied else 0))


def _parameters(name: str, tensors: Mapping[str, Any]) -> int:
    """Parameters of one tensor. The words of a quantised layer (`qweight`, GPTQ or AWQ) hold several each: as many as its
    zero points, which are packed along the outputs, against its scales, which are not. Those two are not counted.
    """
    layer, _, kind = name.rpartition(".")
    count = math.prod(tensors[name]["shape"])
    scales, zeros = tensors.get(f"{layer}.scales"), tensors.get(f"{layer}.qzeros")
    if scales is None or zeros is None or f"{layer}.qweight" not in tensors:
        return count
    if kind in ("scales", "qzeros", "g_idx"):
        return 0
    packed = math.prod(zeros["shape"])
    return count * (math.prod(scales["shape"]) // packed if kind == "qweight" and packed else 1)


def need(facts: ModelFacts, plan: Plan) -> Need:
    """The memory that the model needs for one request of the maximum length."""
    tokens = plan.max_model_length or facts.positions or 0
    itemsize = DTYPE_BYTES[plan.dtype]
    kv = facts.kv.request_bytes(tokens, plan) if facts.kv else 0
    share = plan.kv_share if plan.kv_size is None else 1.0
    n = plan.accelerators
    return Need(
        -(-facts.parameters * (1 if plan.int8 else itemsize) // n), math.ceil(kv / share / n), plan.reserved, tokens
    )


def shortfall(facts: ModelFacts, plan: Plan, available: int) -> Shortfall | None:
    """What is missing in `available` bytes on each accelerator; None if the model may fit."""
    needed = need(facts, plan)
    if CERTAIN_SHARE * needed.total <= available:
        return None
    return Shortfall(
        needed, "int8" if plan.int8 else plan.dtype, available, _fitting_length(facts, plan, needed, available)
    )


def cache_shortfall(facts: ModelFacts, plan: Plan) -> tuple[Need, int] | None:
    """The need, and the tokens that would fit, if the given size of the KV cache holds no request of the maximum length.

    None if it does, or if no size is given.
    """
    needed = need(facts, plan)
    if plan.kv_size is None or needed.kv * plan.accelerators <= plan.kv_size:
        return None
    return needed, _length_in(facts, plan, needed.tokens, plan.kv_size)


def sentence(short: Shortfall, subject: str, remedies: Remedies) -> str:
    """What is needed, what is available, and two remedies. `subject` begins with a capital, as "The memory limit"."""
    needed = short.need
    parts = [f"{gib(needed.weights)} of weights in {short.dtype}"]
    if needed.kv:
        parts.append(f"{gib(needed.kv)} for the KV cache of one request of {needed.tokens} tokens")
    if needed.reserved:
        parts.append(f"{gib(needed.reserved)} of swap space")
    listed = ", ".join(parts[:-1]) + f" and {parts[-1]}" if len(parts) > 1 else parts[0]
    if short.fitting_length:
        second = remedies.length.format(tokens=short.fitting_length)
    elif short.dtype == "float32":
        second = f"{remedies.dtype}, which halves the weights, or choose a smaller model"
    else:
        second = "choose a smaller model"
    first = remedies.memory.format(size=gib(needed.total, up=True))
    return (
        f"The model needs at least {gib(needed.total)}: {listed}. {subject} is {gib(short.available)}. "
        f"{first}, or {second}."
    )


def gib(size: int, *, up: bool = False) -> str:
    """Bytes as GiB with at most two decimals; MiB below 0.1 GiB, KiB below 0.1 MiB. up: rounded up to a tenth of a GiB."""
    if up:
        return f"{math.ceil(size / (1 << 30) * 10) / 10:g} GiB"
    if size < (1 << 20) // 10:
        return f"{size / (1 << 10):.3g} KiB"
    if size < (1 << 30) // 10:
        return f"{size / (1 << 20):.3g} MiB"
    return f"{round(size / (1 << 30), 2):g} GiB"


def _fitting_length(facts: ModelFacts, plan: Plan, needed: Need, available: int) -> int:
    """The tokens of the longest request whose KV cache fits beside the weights."""
    share = plan.kv_share if plan.kv_size is None else 1.0
    return _length_in(
        facts, plan, needed.tokens, (available - needed.weights - needed.reserved) * share * plan.accelerators
    )


def _length_in(facts: ModelFacts, plan: Plan, tokens: int, room: float) -> int:
    """The most tokens, in whole blocks, of a request whose KV cache fits into `room` bytes: up to `tokens` and to the
    model's positions.
    """
    if facts.kv is None or room <= 0:
        return 0
    size = plan.block_size
    low, high = 0, min(tokens, facts.positions or tokens) // size
    while low < high:
        middle = (low + high + 1) // 2
        if facts.kv.request_bytes(middle * size, plan) <= room:
            low = middle
        else:
            high = middle - 1
    return low * size


def _windows(config: Mapping[str, Any], layers: int) -> tuple[int | None, ...]:
    window = _number(config, "sliding_window")
    if window is None or config.get("use_sliding_window") is False:
        return (None,) * layers
    kinds = config.get("layer_types")
    if isinstance(kinds, list) and len(kinds) == layers:
        return tuple(window if kind == "sliding_attention" else None for kind in kinds)
    return (window,) * layers


def _number(config: Mapping[str, Any], *names: str) -> int | None:
    found = (config.get(name) for name in names)
    return next((value for value in found if type(value) is int and 0 < value <= MAX_NUMBER), None)
