"""transformers' loading with this engine's fixed settings: safetensors, local files, no code from the folder."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars
from transformers.utils import logging as transformers_logging

from sluice.models.quantisation import Quantisation, read_quantisation
from sluice_engine.errors import ModelInvalid, first_line
from sluice_engine.model import attention
from sluice_engine.model.quantised.checkpoint import dense_weights


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A folder with weights, its config, and the dtype to load it in."""

    folder: Path
    config: transformers.PretrainedConfig
    dtype: torch.dtype


def from_folder(auto: Any, folder: Path, config: transformers.PretrainedConfig, dtype: torch.dtype, **more: Any) -> Any:
    """Load the folder with `auto`, one of transformers' Auto classes, with this engine's attention.

    `more` is passed to its `from_pretrained`, and determines whether a module or a (module, report) pair is returned.
    Quantised weights are dequantised. Raises ModelInvalid.
    """
    quantisation = read_quantisation(config.__dict__)
    if isinstance(quantisation, Quantisation):
        return _from_quantised(auto, folder, config, dtype, quantisation, **more)
    try:
        return auto.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            attn_implementation=attention.NAME,
            **more,
        )
    except Exception as error:  # transformers raises many types; each means that the folder cannot be served
        raise ModelInvalid(f"The model in {folder} cannot be loaded: {first_line(error)}") from error


def _from_quantised(
    auto: Any,
    folder: Path,
    config: transformers.PretrainedConfig,
    dtype: torch.dtype,
    quantisation: Quantisation,
    **more: Any,
) -> Any:
    """`from_folder` of a checkpoint that transformers would need another package for."""
    weights = dense_weights(folder, quantisation, dtype)
    dense = copy.deepcopy(config)
    del dense.quantization_config
    try:
        module, report = auto._model_mapping[type(dense)].from_pretrained(
            None,
            config=dense,
            state_dict=weights,
            dtype=dtype,
            attn_implementation=attention.NAME,
            **more | {"output_loading_info": True},
        )
    except Exception as error:
        raise ModelInvalid(f"The quantised model in {folder} cannot be loaded: {first_line(error)}") from error
    if more.get("output_loading_info"):
        return module, report
    if report["missing_keys"] or report["mismatched_keys"]:
        wrong = sorted(map(str, [*report["missing_keys"], *report["mismatched_keys"]]))
        raise ModelInvalid(
            f"The quantised weights in {folder} lack {len(wrong)} that {type(module).__name__} needs, or have them in "
            f"another shape ({', '.join(wrong[:3])}): the checkpoint is incomplete or of another model."
        )
    return module


@contextmanager
def without_progress_bars() -> Iterator[None]:
    """transformers draws no progress bars inside the context; the previous setting is restored afterwards."""
    shown, hidden = transformers_logging.is_progress_bar_enabled(), are_progress_bars_disabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()
        if shown and hidden:
            disable_progress_bars()
