"""Which models the engine refuses by their config.json alone: the one list for the operator, the download and the loader.

It uses the standard library only, because the operator must not import the engine. What the list does not name is left to
the loader, which runs the architecture once and states what is missing (`sluice_engine.model.introspection`).
"""

from collections.abc import Mapping
from typing import Any, Final

from sluice.models.quantisation import read_quantisation

MAX_WORD: Final = 100  # characters of a name that are quoted
ATTENDING: Final = frozenset({"full_attention", "sliding_attention", "attention"})  # kinds of layers that cache KV
# Model types that tests compare with transformers; others with causal attention of the same form are tried at load.
CHECKED_TYPES: Final = (
    "llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gemma2", "gemma3_text", "phi3",
)  # fmt: skip
# Model types whose attention or state the engine does not compute, with the sentence's second half.
_REFUSED_TYPES: Final = {
    "bloom": "adds a position bias (ALiBi) to its attention",
    "mpt": "adds a position bias (ALiBi) to its attention",
    "gpt_oss": "has attention sinks",
    "deepseek_v2": "has multi-head latent attention",
    "deepseek_v3": "has multi-head latent attention",
    "mamba": "keeps a recurrent state",
    "mamba2": "keeps a recurrent state",
    "rwkv": "keeps a recurrent state",
    "falcon_mamba": "keeps a recurrent state",
    "falcon_h1": "keeps a recurrent state",
    "jamba": "keeps a recurrent state",
    "bamba": "keeps a recurrent state",
    "zamba2": "keeps a recurrent state",
}


def unserved(config: Mapping[str, Any]) -> str | None:
    """Why the engine cannot serve a model with this config.json, as the predicate of a sentence; None if it may.

    Other keys than those read here are of no effect, so any JSON object is valid.
    """
    if (fault := quantised(config)) is not None:
        return fault
    kind = config.get("model_type")
    named = _word(kind) if isinstance(kind, str) and kind else "unknown type"
    for part, taken in (("vision_config", "images"), ("audio_config", "audio")):
        if isinstance(config.get(part), dict):
            return f"takes {taken} ({named}), and the encoder for them is missing. Serve a language model alone."
    fault = _architecture_fault(config, named)
    return None if fault is None else f"is of architecture {_architecture(config, named)}, which {fault}. {supported()}"


def quantised(config: Mapping[str, Any]) -> str | None:
    """The same for the quantisation of the checkpoint alone."""
    read = read_quantisation(config)
    return read if isinstance(read, str) else None


def _architecture_fault(config: Mapping[str, Any], named: str) -> str | None:
    if config.get("is_encoder_decoder") is True:
        return "is an encoder with a decoder"
    if named in _REFUSED_TYPES:
        return _REFUSED_TYPES[named]
    kinds = config.get("layer_types")
    strange = sorted({str(kind) for kind in kinds} - ATTENDING) if isinstance(kinds, list) else []
    return f"has layers of kind {_word(', '.join(strange))}, which have no paged KV" if strange else None


def _architecture(config: Mapping[str, Any], named: str) -> str:
    names = config.get("architectures")
    return _word(names[0]) if isinstance(names, list) and names else named


def supported() -> str:
    """What the engine serves, as a sentence."""
    return (
        "Decoder-only models with causal attention are served; checked are the model types "
        f"{', '.join(CHECKED_TYPES[:-1])} and {CHECKED_TYPES[-1]}."
    )


def _word(value: object) -> str:
    """A value of a config, which comes from outside, as a short printable text."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(value)[:MAX_WORD])
