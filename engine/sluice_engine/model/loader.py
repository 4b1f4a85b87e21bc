"""Loads a folder into a model that is ready to run: transformers' class, safetensors only, this engine's attention.

All faults of the folder, the device or the dtype are detected here and reported with a remedy.
"""

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

from sluice.model_support import quantised, supported
from sluice_engine.backend.computed_dtype import processor_computes_bf16
from sluice_engine.backend.cpu import native
from sluice_engine.backend.cpu.acceptance import OutputMismatch, compile_forward
from sluice_engine.config import EngineOptions
from sluice_engine.errors import (
    AcceleratorNotFound,
    InvalidOption,
    ModelInvalid,
    ModelNotFound,
    UnsupportedArchitecture,
    first_line,
)
from sluice_engine.grammar.compiler import GrammarCompiler
from sluice_engine.model import attention
from sluice_engine.model.fusion import fuse
from sluice_engine.model.introspection import Structure, check, check_config, observe
from sluice_engine.model.kv_cache import KVShape
from sluice_engine.model.memory_check import check_memory
from sluice_engine.model.pooling.pooled_model import PooledModel, load_pooled, usable_positions
from sluice_engine.model.pooling.task import Task, pick_task, read_sentence_files
from sluice_engine.model.pretrained import from_folder, without_progress_bars

_log = logging.getLogger(__name__)
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model and its properties. An embedding or scoring model sets `pooled`, keeps no KV and has no end-of-sequence
    token; its `module` is the encoder.
    """

    module: torch.nn.Module
    device: torch.device
    dtype: torch.dtype
    kv_shape: KVShape
    max_model_length: int
    vocab_size: int  # width of the logits; token ids at or beyond it are rejected
    eos_ids: frozenset[int]
    grammars: GrammarCompiler | None = None  # None for a folder without tokenizer.json
    task: Task = "generate"
    pooled: PooledModel | None = None


def load_model(options: EngineOptions) -> LoadedModel:
    """Load `options.model`. Raises a StartError that names the fault."""
    folder = _model_folder(options.model)
    device = pick_device(options.device)
    config, raw = _read_config(folder)
    dtype = pick_dtype(options.dtype, _checkpoint_dtype(config), device)
    task = pick_task(options.task, folder, config)
    _check_length(options, getattr(config.get_text_config(), "max_position_embeddings", None))
    check_memory(folder, raw, options, device, dtype=str(dtype).removeprefix("torch."), generates=task == "generate")
    kernel = native.find(torch.get_num_threads()) if device.type == "cpu" else None
    attention.register()
    with without_progress_bars():
        if task == "generate":
            return _load_generating(options, folder, config, dtype, device, kernel)
        return _load_pooled(options, task, folder, config, dtype, device)


def _load_pooled(
    options: EngineOptions,
    task: Task,
    folder: Path,
    config: transformers.PretrainedConfig,
    dtype: torch.dtype,
    device: torch.device,
) -> LoadedModel:
    pooled = load_pooled(folder, task, config, dtype, device, options.pooling)
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
    options: EngineOptions,
    folder: Path,
    config: transformers.PretrainedConfig,
    dtype: torch.dtype,
    device: torch.device,
    kernel: native.NativeAttention | None,
) -> LoadedModel:
    if type(config) not in AutoModelForCausalLM._model_mapping:
        raise UnsupportedArchitecture(
            f"Model type {config.model_type!r} is not a decoder-only language model of transformers. {supported()}"
        )
    length = _model_length(options, getattr(config.get_text_config(), "max_position_embeddings", None))
    module, structure = _observed(folder, config, dtype, device)
    kv_shape = structure.kv_shape(dtype)
    vocab_size = module.get_output_embeddings().weight.shape[0]
    try:
        compiled = compile_forward(module, structure, kv_shape, kernel)
    except OutputMismatch as difference:
        _log.warning(
            "the compiled decoder gives other logits than this model (%s): its layers are run by torch", difference
        )
        module, structure = _observed(folder, config, dtype, device)
        compiled = False
    if not compiled:
        attending = [call.module for call in structure.calls]
        attention.choose_backend(attending, kernel, paged_kernel=device.type == "cuda")
        fuse(module, structure, device)
        del attending
    del structure  # it references the replaced layers
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
    )


def _observed(
    folder: Path, config: transformers.PretrainedConfig, dtype: torch.dtype, device: torch.device
) -> tuple[torch.nn.Module, Structure]:
    """The folder's transformers module, inspected and accepted by `check`."""
    module = from_folder(AutoModelForCausalLM, folder, config, dtype)
    module = module.to(device).eval().requires_grad_(False)
    structure = observe(module, device)
    check(module, config, structure)
    return module, structure


def pick_device(asked: str) -> torch.device:
    """The device for "auto", "cpu" or "cuda". Raises AcceleratorNotFound for "cuda" if no GPU is visible."""
    if asked == "cuda" and not torch.cuda.is_available():
        raise AcceleratorNotFound(
            "--device cuda needs a GPU, and torch sees none. Check that nvidia-smi lists one and that torch is a CUDA "
            "build (in a cluster: that the pod requests a GPU, and that the node's device plugin works), or serve on "
            "the CPU with --device cpu."
        )
    if asked == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(asked)


def pick_dtype(asked: str, checkpoint: torch.dtype, device: torch.device) -> torch.dtype:
    """The dtype for "auto" or a name. "auto" is the checkpoint's dtype if the device computes in it, else float32.
    Raises InvalidOption for an unknown name.
    """
    if asked != "auto":
        if asked not in _DTYPES:
            raise InvalidOption(f"--dtype {asked} is not known; one of auto, {', '.join(_DTYPES)}.")
        return _DTYPES[asked]
    if device.type == "cuda" or checkpoint == torch.float32:
        return checkpoint
    if checkpoint == torch.bfloat16 and processor_computes_bf16():
        _log.info("computing in bfloat16, the checkpoint's dtype, which this processor has instructions for")
        return checkpoint
    _log.info("computing in float32: this processor has no instructions for the checkpoint's %s", checkpoint)
    return torch.float32


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
        raw = json.loads(
            (folder / "config.json").read_text()
        )  # reports where the syntax error is; transformers does not
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
