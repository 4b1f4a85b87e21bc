"""Refuses a model that certainly does not fit the memory before its weights are downloaded, which takes minutes.

Only the headers of the first and the last file are read. What cannot be read is left to the loader, which checks again.
"""

import json
from typing import Final, Protocol

from sluice import contract
from sluice.models.files import LENGTH_BYTES, HeaderInvalid, header_length, loaded_names, parse_header
from sluice_engine.backend.resources import expects_gpu, memory_left, small_pool
from sluice_engine.config import EngineOptions
from sluice_engine.sources.errors import SourceError
from sluice_engine.sources.messages import MemoryPlan
from sluice_engine.sources.snapshot import RemoteFile, Snapshot
from sluice_perfmodel.model_memory import (
    Plan,
    Remedies,
    cache_shortfall,
    facts_of,
    parameters_of,
    sentence,
    shortfall,
)

SENTENCE_MODEL: Final = "modules.json"
_REMEDIES: Final = Remedies(
    memory="Give the engine at least {size} (on a cluster, the container's memory limit)",
    length="serve shorter requests: --max-model-length {tokens} would fit",
    dtype="give --dtype bfloat16",
)


class HeadReader(Protocol):
    """A source of which the first bytes of a file can be read."""

    def head(self, snapshot: Snapshot, file: RemoteFile, size: int) -> bytes:
        """At most `size` bytes. Raises SourceError."""


def memory_plan(options: EngineOptions) -> MemoryPlan | None:
    """The memory that a model on the CPU must fit now; None for a GPU, whose memory only the engine process reads."""
    if expects_gpu(options.device):
        return None
    return MemoryPlan(
        free=memory_left(),
        generates=options.task in ("auto", "generate"),
        dtype=options.dtype,
        max_model_length=options.max_model_length,
        kv_size=options.kv_size,
        kv_share=options.kv_memory_fraction,
        block_size=options.block_size,
        swap_size=options.swap_size,
    )


def check_memory(source: HeadReader, found: Snapshot, config: bytes, plan: MemoryPlan) -> None:
    """Compare the need of the model with the memory. Raises SourceError with the reason InsufficientMemory."""
    parsed = json.loads(config)
    sizes = {file.name: file for file in found.files}
    names = loaded_names(sizes)
    try:
        read = {name: _header(source, found, sizes[name]) for name in {*names[:1], *names[-1:]}}
    except (SourceError, HeaderInvalid):
        return
    headers = [
        (read.get(name, read[names[0]])[0], sizes[name].size - read.get(name, read[names[0]])[1]) for name in names
    ]
    parameters = parameters_of(headers, tied=parsed.get("tie_word_embeddings") is True)
    facts = facts_of(parsed, parameters, generates=plan.generates and SENTENCE_MODEL not in sizes)
    asked = Plan(
        # "auto" counts as the checkpoint's dtype, the smaller one of the two that the engine may choose
        dtype=(facts.dtype or "bfloat16") if plan.dtype == "auto" else plan.dtype,
        max_model_length=plan.max_model_length,
        kv_size=plan.kv_size,
        kv_share=plan.kv_share,
        block_size=plan.block_size,
    )
    if plan.kv_size is not None and (small := cache_shortfall(facts, asked)) is not None:
        needed, fits = small
        text = small_pool(needed.tokens, needed.kv, plan.kv_size, fits)
        raise SourceError(contract.REASON_INSUFFICIENT_MEMORY, text)
    short = shortfall(facts, asked, max(0, plan.free - (plan.swap_size if facts.kv else 0)))
    if short is not None:
        raise SourceError(contract.REASON_INSUFFICIENT_MEMORY, sentence(short, "The free memory", _REMEDIES))


def _header(source: HeadReader, found: Snapshot, file: RemoteFile) -> tuple[dict[str, object], int]:
    """The header of a safetensors file, and the bytes before its tensors."""
    length = header_length(source.head(found, file, LENGTH_BYTES))
    text = source.head(found, file, LENGTH_BYTES + length)
    return parse_header(text[LENGTH_BYTES:]), LENGTH_BYTES + length
