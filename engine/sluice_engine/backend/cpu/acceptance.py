"""Decides by a numerical comparison whether the compiled decoder runs a loaded model.

If its logits, keys and values equal the model's within CLOSE, the compiled decoder runs the model; otherwise torch
does. With int8 weights, keys and values the model in its own dtype is the reference, within CLOSE_INT8.
"""

import logging
import time
from functools import partial

import torch

from sluice_engine.backend.cpu.decoder import NativeDecoder
from sluice_engine.backend.cpu.native import NativeAttention
from sluice_engine.backend.probe import OutputMismatch, Probe, module_logits
from sluice_engine.config import Quantization
from sluice_engine.model.decoder_parts import recognise
from sluice_engine.model.introspection import Structure
from sluice_engine.model.kv_cache import KVShape

_log = logging.getLogger(__name__)
CLOSE = {torch.float32: 1e-3, torch.bfloat16: 0.1}  # relative to the largest logit, key or value
CLOSE_INT8 = 0.25


@torch.inference_mode()
def compile_forward(
    module: torch.nn.Module,
    structure: Structure,
    shape: KVShape,
    kernel: NativeAttention | None,
    quantization: Quantization = "none",
) -> str | None:
    """Replace the module's `forward` by the compiled decoder. Returns None, or why it does not compute this model, as a
    clause. The weights are packed and the plain ones dropped, one product at a time. Raises OutputMismatch.
    """
    if kernel is None:
        return "the library of compiled kernels is not there"
    parts = recognise(module, structure)
    if parts is None or not parts.dense:
        return "the compiled decoder has no layers of this kind"
    begun = time.perf_counter()
    probe = Probe(
        shape, parts.head.out_features, getattr(module.config, "max_position_embeddings", None), torch.device("cpu")
    )
    forward = partial(module_logits, module)
    expected = probe.record(forward)
    probing = time.perf_counter() - begun
    try:
        decoder = NativeDecoder(parts, kernel, shape.head_dim, quantization)
    except ValueError as error:
        return f"the compiled decoder does not have {error}"
    module.forward = decoder
    begun = time.perf_counter()
    int8 = quantization == "int8"
    close = CLOSE_INT8 if int8 else CLOSE[shape.dtype]
    difference = probe.difference(forward, expected, close, int8_cache=int8)
    if difference is not None:
        raise OutputMismatch(difference)
    probing += time.perf_counter() - begun
    _log.info(
        "the model's layers are run by the compiled decoder, compared on %d tokens in %.2f s%s",
        probe.tokens,
        probing,
        "; its weights, keys and values are int8" if int8 else "",
    )
    return None
