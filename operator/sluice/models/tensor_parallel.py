"""Which numbers of accelerators can share a model: the one rule for the operator, which reads config.json, and the engine.

Every rank holds the same number of query heads, of key-value heads and of the inner values of a feed-forward layer or
of each expert. Where there are fewer key-value heads than ranks, some ranks hold a copy of the same one; the vocabulary is padded.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

MAX_RANKS: Final = 16  # accelerators of one node
MAX_NUMBER: Final = 1 << 31  # larger numbers of a config count as not given
# Model types that the engine serves and whose weights its plan does not split (`backend/parallel/plan.py`): other layers than
# Llama's, other routers, or norms of all heads together. Types that are not listed are tried at load.
UNSHARED_TYPES: Final = frozenset({
    "biogpt", "codegen", "ernie4_5_moe", "falcon", "flex_olmo", "glm4_moe", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox",
    "gptj", "granitemoe", "minimax_m2", "olmo2", "olmo3", "olmoe", "opt", "persimmon", "phi", "phimoe", "starcoder2", "xglm",
})  # fmt: skip
_EXPERT_WIDTHS: Final = ("moe_intermediate_size", "shared_expert_intermediate_size")  # as transformers names them


@dataclass(frozen=True, slots=True)
class ShardedSizes:
    """The sizes that ranks share. `inner`: the width of the feed-forward layer; `experts`: other widths, of experts."""

    heads: int
    kv_heads: int
    inner: int
    experts: tuple[int, ...] = ()


def sizes_of(config: Mapping[str, Any]) -> ShardedSizes | None:
    """The sizes in a config.json; None if it lacks them."""
    heads, inner = _number(config, "num_attention_heads"), _number(config, "intermediate_size")
    if heads is None or inner is None:
        return None
    experts = (width for name in _EXPERT_WIDTHS if (width := _number(config, name)) is not None)
    return ShardedSizes(heads, _number(config, "num_key_value_heads") or heads, inner, tuple(experts))


def unshared_type(config: Mapping[str, Any]) -> str | None:
    """The model type in a config.json if it is one that ranks cannot share."""
    kind = config.get("model_type")
    return kind if isinstance(kind, str) and kind in UNSHARED_TYPES else None


def not_divided(sizes: ShardedSizes, ranks: int) -> str | None:
    """Why so many ranks cannot share a model of these sizes, as a sentence that names the numbers that can; None if they
    can.
    """
    fault = _fault(sizes, ranks)
    if fault is None:
        return None
    fitting = [str(count) for count in range(1, MAX_RANKS + 1) if _fault(sizes, count) is None]
    listed = f"one of {', '.join(fitting)}" if len(fitting) > 1 else fitting[0]
    return f"{fault} cannot be divided by {ranks}; the number of accelerators of this model must be {listed}."


def _fault(sizes: ShardedSizes, ranks: int) -> str | None:
    if sizes.heads % ranks:
        return f"Its {sizes.heads} attention heads"
    if sizes.kv_heads % ranks and ranks % sizes.kv_heads:
        return f"Its {sizes.kv_heads} key-value heads"
    if sizes.inner % ranks:
        return f"The width of its feed-forward layers, {sizes.inner},"
    for width in sizes.experts:
        if width % ranks:
            return f"The width of its experts, {width},"
    return None


def _number(config: Mapping[str, Any], name: str) -> int | None:
    value = config.get(name)
    return value if type(value) is int and 0 < value <= MAX_NUMBER else None
