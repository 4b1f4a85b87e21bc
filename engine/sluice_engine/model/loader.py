"""Loads a folder into a model that is ready to run: transformers' class, safetensors only, this engine's attention.

All faults of the folder, the device or the dtype are detected here and reported with a remedy.
"""

import json
import logging
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

from sluice.models.support import quantised, supported
from sluice_engine.backend.base import Backend, OnBytes
from sluice_engine.backend.parallel.shard import share_of
from sluice_engine.config import EngineOptions
from sluice_engine.errors import (
    InvalidOption,
    ModelInvalid,
    ModelNotFound,
    UnsupportedArchitecture,
    first_line,
)
from sluice_engine.grammar.compiler import GrammarCompiler
from sluice_engine.model import attention
from sluice_engine.model.introspection import Structure, check, check_config, observe
from sluice_engine.model.kv_cache import KVShape
from sluice_engine.model.loaded import LoadedModel
from sluice_engine.model.memory_check import check_memory
from sluice_engine.model.pooling.pooled_model import pooled_model, usable_positions
from sluice_engine.model.pooling.task import Task, pick_task, read_sentence_files
from sluice_engine.model.pretrained import Checkpoint, without_progress_bars

_log = logging.getLogger(__name__)
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load_model(options: EngineOptions, backend: Backend, on_bytes: OnBytes | None = None) -> LoadedModel:
    """Load `options.model` for a backend. `on_bytes` gets the progress from a backend that counts bytes. Raises a
    StartError that names the fault.
    """
    folder = _model_folder(options.model)
    config, raw = _read_config(folder)
    dtype = pick_dtype(options.dtype, _checkpoint_dtype(config), backend)
    task = pick_task(options.task, folder, config)
    _check_length(options, getattr(config.get_text_config(), "max_position_embeddings", None))
    generates = task == "generate"
    _check_ranks(options, task, config)
    _check_quantization(options, task)
    memory = backend.memory(options.swap_size if generates else 0)
    check_memory(folder, raw, options, memory, dtype=str(dtype).removeprefix("torch."), generates=generates)
    attention.register()
    with without_progress_bars():
        if generates:
            return _load_generating(options, Checkpoint(folder, config, dtype), backend, on_bytes or _ignore)
        return _load_pooled(options, task, Checkpoint(folder, config, dtype), backend, on_bytes or _ignore)


def _check_ranks(options: EngineOptions, task: Task, config: transformers.PretrainedConfig) -> None:
    """Raises InvalidOption or UnsupportedArchitecture for ranks that cannot share a model of this config."""
    if options.tensor_parallel == 1:
        return
    if task != "generate":
        raise InvalidOption(
            f"--tensor-parallel {options.tensor_parallel} is for models that generate text, and this one is served as "
            f"{task}. Leave the option out."
        )
    share_of(config.get_text_config().to_dict(), 0, options.tensor_parallel)


def _check_quantization(options: EngineOptions, task: Task) -> None:
    """Raises InvalidOption for a quantization that the model's task or its ranks do not have."""
    if options.quantization == "none" or (task == "generate" and options.tensor_parallel == 1):
        return
    device = "CPU" if options.quantization == "int8" else "GPU"
    served = f"this one is served as {task}" if task != "generate" else "several ranks share this one"
    raise InvalidOption(
        f"--quantization {options.quantization} is for models that generate text on one {device}, and {served}. Leave the "
        f"option out."
    )


def _load_pooled(
    options: EngineOptions, task: Task, checkpoint: Checkpoint, backend: Backend, on_bytes: OnBytes
) -> LoadedModel:
    folder, config, dtype, device = checkpoint.folder, checkpoint.config, checkpoint.dtype, backend.device
    module = backend.read_pooled(checkpoint, task, on_bytes)
    pooled = pooled_model(module, checkpoint, task, device, options.pooling)
    backend.attend_texts(pooled.encoder)
    files = read_sentence_files(folder) if task == "embed" else None
    positions = getattr(config.get_text_config(), "max_position_embeddings", None)
    return LoadedModel(
        module=pooled.encoder,
        device=device,
        dtype=dtype,
        kv_shape=KVShape(layers=0, kv_heads=0, head_dim=0, dtype=dtype),
        max_model_length=_model_length(
            options,
            None if positions is None else usable_positions(pooled.encoder, positions),
            None if files is None else files.max_tokens,
        ),
        vocab_size=pooled.encoder.get_input_embeddings().weight.shape[0],
        eos_ids=frozenset(),
        task=task,
        pooled=pooled,
    )


def _load_generating(
    options: EngineOptions, checkpoint: Checkpoint, backend: Backend, on_bytes: OnBytes
) -> LoadedModel:
    folder, config, dtype = checkpoint.folder, checkpoint.config, checkpoint.dtype
    if type(config) not in AutoModelForCausalLM._model_mapping:
        raise UnsupportedArchitecture(
            f"Model type {config.model_type!r} is not a decoder-only language model of transformers. {supported()}"
        )
    length = _model_length(options, getattr(config.get_text_config(), "max_position_embeddings", None))
    device = backend.device
    module, structure = backend.load(partial(_observed, checkpoint, backend, on_bytes), dtype)
    kv_shape = structure.kv_shape(backend.kv_dtype(dtype))
    del structure  # it references the replaced layers
    vocab_size = module.get_output_embeddings().out_features
    eos_ids = _eos_ids(folder, config)
    _log.info("loaded %s as %s on %s", type(module).__name__, dtype, device)
    return LoadedModel(
        module=module,
        device=device,
        dtype=dtype,
        kv_shape=kv_shape,
        max_model_length=length,
        vocab_size=vocab_size,
        eos_ids=eos_ids,
        grammars=GrammarCompiler(folder, vocab_size, eos_ids) if (folder / "tokenizer.json").is_file() else None,
        ranks=options.tensor_parallel,
    )


def _observed(checkpoint: Checkpoint, backend: Backend, on_bytes: OnBytes) -> tuple[torch.nn.Module, Structure]:
    """The folder's transformers module, inspected and accepted by `check`."""
    module = backend.read(checkpoint, on_bytes).eval().requires_grad_(False)
    structure = observe(module, backend.device)
    check(module, checkpoint.config, structure)
    return module, structure


def _ignore(loaded: int, total: int) -> None:
    """The progress is not reported."""


def pick_dtype(asked: str, checkpoint: torch.dtype, backend: Backend) -> torch.dtype:
    """The dtype for "auto" or a name. "auto" is the checkpoint's dtype if the device computes in it, else float32.
    Raises InvalidOption for an unknown name.
    """
    if asked != "auto":
        if asked not in _DTYPES:
            raise InvalidOption(f"--dtype {asked} is not known; one of auto, {', '.join(_DTYPES)}.")
        return _DTYPES[asked]
    return backend.native_dtype(checkpoint)


def _model_folder(model: str) -> Path:
    folder = Path(model).expanduser()
    if not folder.is_dir():
        raise ModelNotFound(
            f"There is no model folder at {folder}. Check the path (in a pod: the volume and its mount); it must hold "
            f"config.json, *.safetensors and a tokenizer."
        )
    if not (folder / "config.json").is_file():
        raise ModelNotFound(f"{folder} holds no config.json. Point to the folder that a model was saved to.")
    if not any(folder.glob("*.safetensors")):
        raise ModelInvalid(
            f"{folder} holds no *.safetensors. Only safetensors weights are loaded; convert others with "
            f"save_pretrained(..., safe_serialization=True)."
        )
    return folder


def _read_config(folder: Path) -> tuple[transformers.PretrainedConfig, dict[str, Any]]:
    """The config as transformers' class, and as it is in the file."""
    try:
        raw = json.loads((folder / "config.json").read_text())  # tells where a syntax error is; transformers does not
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:
        raise ModelInvalid(
            f"{folder / 'config.json'} cannot be read as a model's config: {first_line(error)}"
        ) from error
    check_config(config)
    if (fault := quantised(raw)) is not None:
        raise UnsupportedArchitecture(f"{folder} {fault}")
    return config, raw


def _checkpoint_dtype(config: transformers.PretrainedConfig) -> torch.dtype:
    dtype = getattr(config, "dtype", None)
    if isinstance(dtype, str):
        dtype = _DTYPES.get(dtype)
    return dtype if isinstance(dtype, torch.dtype) else torch.float32


def _model_length(options: EngineOptions, trained: int | None, usual: int | None = None) -> int:
    """The context length: the requested one, else the `usual` one of this model, else all positions it was `trained`
    on.
    """
    if options.max_model_length is None:
        if trained is None and usual is None:
            raise InvalidOption("The model's config has no context length: give --max-model-length.")
        return min(int(given) for given in (trained, usual) if given is not None)
    _check_length(options, trained)
    return options.max_model_length


def _check_length(options: EngineOptions, trained: int | None) -> None:
    """Raises InvalidOption for requests that are longer than the positions a model was trained on."""
    if options.max_model_length is not None and trained is not None and options.max_model_length > trained:
        raise InvalidOption(
            f"--max-model-length {options.max_model_length} exceeds the {trained} positions that the model has; "
            f"give at most {trained}, or leave it out."
        )


def _eos_ids(folder: Path, config: transformers.PretrainedConfig) -> frozenset[int]:
    eos = config.get_text_config().eos_token_id
    if (folder / "generation_config.json").is_file():
        given = GenerationConfig.from_pretrained(folder, local_files_only=True).eos_token_id
        eos = given if given is not None else eos
    if eos is None:
        return frozenset()
    return frozenset([eos] if isinstance(eos, int) else eos)
