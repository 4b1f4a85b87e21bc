"""Dequantises a GGUF file with transformers, and saves what transformers itself can load again.

Every fault of the file is reported before anything is written.
"""

import shutil
import struct
from collections.abc import Callable
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GgufConfig
from transformers.integrations.gguf import GGUF_CONFIG_ARCHS, GgufHeader, read_gguf_metadata
from transformers.modeling_gguf_pytorch_utils import GGUF_SUPPORTED_ARCHITECTURES

from sluice_engine.errors import ModelInvalid, first_line
from sluice_engine.gguf.process import CONVERTED_DTYPES, Stage
from sluice_engine.model.introspection import check_config
from sluice_engine.model.pretrained import without_progress_bars

_NOT_ARCHITECTURES = {"general", "tokenizer"}  # groups of metadata in transformers' table


def dequantise(file: Path, folder: Path, dtype: str, on_stage: Callable[[Stage], None]) -> dict[str, Any]:
    """Convert `file` into `folder` and return its architecture and licence. Raises ModelInvalid and OSError."""
    on_stage("reading")
    metadata = _metadata(file)
    architecture = str(metadata["general.architecture"])
    _check_architecture(file, architecture)
    if dtype not in CONVERTED_DTYPES:
        raise ModelInvalid(f"A GGUF file is kept as one of {', '.join(CONVERTED_DTYPES)}; not {dtype!r}.")
    torch_dtype = getattr(torch, dtype)
    _check_sizes(file, folder.parent, torch_dtype.itemsize)
    with without_progress_bars():
        model, tokenizer = _loaded(file, torch_dtype, on_stage)
        on_stage("writing")
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return {"architecture": architecture, "licence": metadata.get("general.license")}


def _metadata(file: Path) -> dict[str, Any]:
    try:
        return dict(read_gguf_metadata(str(file))[0])
    except (ValueError, struct.error, IndexError) as error:
        raise ModelInvalid(
            f"{file} cannot be read as a GGUF file: {first_line(error)}. It may be truncated or damaged: compare its "
            "size with the original's, and download it again."
        ) from error


def _check_architecture(file: Path, architecture: str) -> None:
    known = {*GGUF_SUPPORTED_ARCHITECTURES, *GGUF_CONFIG_ARCHS} - _NOT_ARCHITECTURES
    if architecture.replace("-", "_") not in {*known, *(name.replace("_", "") for name in known)}:
        raise ModelInvalid(
            f"{file} holds a model of architecture {architecture!r}, which transformers cannot dequantise. It can: "
            f"{', '.join(sorted(known))}. Use the model's safetensors instead."
        )


def _check_sizes(file: Path, parent: Path, itemsize: int) -> None:
    """Raises ModelInvalid for a truncated file, and OSError where the converted weights do not fit on the disk."""
    with suppress(ValueError):  # a tensor type whose size this reader does not list; the conversion reads it
        header = GgufHeader.from_file(str(file))
        size, end = file.stat().st_size, max((tensor.offset + tensor.nbytes for tensor in header.tensors), default=0)
        if size < header.data_start + end:
            raise ModelInvalid(
                f"{file} is truncated: it has {size} of {header.data_start + end} bytes. Download it again."
            )
        needed = itemsize * sum(prod(tensor.shape) for tensor in header.tensors)
        free = shutil.disk_usage(parent).free
        if needed > free:
            raise OSError(
                f"the converted weights need {needed / 2**30:.1f} GiB and {free / 2**30:.1f} GiB are free; free disk "
                "space or set XDG_CACHE_HOME to another disk"
            )


def _loaded(file: Path, dtype: torch.dtype, on_stage: Callable[[Stage], None]) -> tuple[Any, Any]:
    """The model with plain weights in `dtype`, and the tokenizer with its chat template."""
    named: dict[str, Any] = {"gguf_file": file.name, "local_files_only": True}
    try:
        config = AutoConfig.from_pretrained(file.parent, **named)
        check_config(config)
        on_stage("dequantising")
        dense = GgufConfig(dequantize=True)
        model = AutoModelForCausalLM.from_pretrained(
            file.parent, config=config, dtype=dtype, quantization_config=dense, **named
        )
        tokenizer = AutoTokenizer.from_pretrained(file.parent, **named)
    except ModelInvalid:
        raise
    except Exception as error:  # transformers raises many types; each means that this file cannot be converted
        raise ModelInvalid(
            f"transformers cannot convert {file} ({type(error).__name__}: {first_line(error)}). Use the model's safetensors, or another "
            "quantisation of it."
        ) from error
    # The weights are plain now, but save_pretrained refuses while the model is marked as quantised.
    model.config.__dict__.pop("quantization_config", None)
    model.hf_quantizer = None
    return model, tokenizer
